package openpgp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	pgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// private is the line that begins a private key of any sort.
var private = regexp.MustCompile(`(?m)^-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)

// IsPrivate reports whether data holds an armored private key of any sort.
func IsPrivate(data []byte) bool { return private.Match(data) }

// ErrPrivate is what is wrong with a private key.
var ErrPrivate = errors.New("holds a private key, which must stay with its owner: put the public key there, and replace this one if others could read it")

var (
	beginKeys = []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")
	endKeys   = []byte("-----END PGP PUBLIC KEY BLOCK-----")
)

// Keys are the public keys that are trusted. They are not safe for concurrent use.
type Keys struct{ list pgp.EntityList }

// Len returns how many keys there are.
func (k *Keys) Len() int { return len(k.list) }

// Add adds the keys in the armored blocks in data, or else in data itself as a
// key ring. The error continues the name of what data is from.
func (k *Keys) Add(data []byte) error {
	if IsPrivate(data) {
		return ErrPrivate
	}
	blocks, err := dearmor(data)
	if err != nil {
		return err
	}
	if blocks == nil {
		blocks = [][]byte{data}
	}
	found := 0
	for _, block := range blocks {
		if err := readable(block); err != nil {
			return err
		}
		list, err := pgp.ReadKeyRing(bytes.NewReader(block))
		if err != nil {
			return fmt.Errorf("is not an OpenPGP public key: %w", err)
		}
		found += len(list)
		for _, e := range list {
			if e.PrivateKey != nil {
				return ErrPrivate
			}
			k.merge(e)
		}
	}
	if found == 0 {
		return errors.New("holds no key: want OpenPGP public keys of version 4 or 6")
	}
	return nil
}

// readable returns an error for what the reader of keys would pass over: what
// is no packet, and a revocation of a sort that is not supported.
func readable(block []byte) error {
	packets := packet.NewOpaqueReader(bytes.NewReader(block))
	for {
		p, err := packets.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("is not an OpenPGP public key: %w", err)
		}
		if _, err := p.Parse(); err != nil && revokes(p) {
			return fmt.Errorf("holds a revocation that cannot be read: %w", err)
		}
	}
}

// revokes reports whether p is a signature that revokes a key or a subkey.
func revokes(p *packet.OpaquePacket) bool {
	const signature, key, subkey = 2, 0x20, 0x28
	at := 1 // behind the version
	if len(p.Contents) > 0 && p.Contents[0] < 4 {
		at = 2 // and a length
	}
	return p.Tag == signature && len(p.Contents) > at && (p.Contents[at] == key || p.Contents[at] == subkey)
}

// dearmor returns what the armored blocks in data hold, nil when there are none.
func dearmor(data []byte) (blocks [][]byte, err error) {
	for n := 1; ; n++ {
		begin := bytes.Index(data, beginKeys)
		if begin < 0 {
			return blocks, nil
		}
		length := bytes.Index(data[begin:], endKeys)
		if length < 0 {
			return nil, fmt.Errorf("is not an OpenPGP public key: block %d does not end", n)
		}
		end := begin + length + len(endKeys)
		block, err := armor.Decode(bytes.NewReader(append(bytes.Clone(data[begin:end]), '\n')))
		if err != nil {
			return nil, fmt.Errorf("is not an OpenPGP public key: block %d: %w", n, noEOF(err))
		}
		content, err := io.ReadAll(block.Body)
		if err != nil {
			return nil, fmt.Errorf("is not an OpenPGP public key: block %d: %w", n, noEOF(err))
		}
		blocks, data = append(blocks, content), data[end:]
	}
}

// noEOF makes the end of the data within something an error that says so.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// merge adds a key, or what it tells of a key that is there already.
func (k *Keys) merge(e *pgp.Entity) {
	i := slices.IndexFunc(k.list, func(old *pgp.Entity) bool { return same(old.PrimaryKey, e.PrimaryKey) })
	if i < 0 {
		k.list = append(k.list, e)
		return
	}
	old := k.list[i]
	old.Revocations = append(old.Revocations, e.Revocations...)
	old.DirectSignatures = append(old.DirectSignatures, e.DirectSignatures...)
	for name, id := range e.Identities {
		id.Primary = old
		if known := old.Identities[name]; known != nil {
			known.SelfCertifications = append(known.SelfCertifications, id.SelfCertifications...)
			known.Revocations = append(known.Revocations, id.Revocations...)
			continue
		}
		old.Identities[name] = id
	}
	for _, sub := range e.Subkeys {
		sub.Primary = old
		if at := slices.IndexFunc(old.Subkeys, func(s pgp.Subkey) bool { return same(s.PublicKey, sub.PublicKey) }); at >= 0 {
			known := &old.Subkeys[at]
			known.Bindings = append(known.Bindings, sub.Bindings...)
			known.Revocations = append(known.Revocations, sub.Revocations...)
			continue
		}
		old.Subkeys = append(old.Subkeys, sub)
	}
}

func same(a, b *packet.PublicKey) bool { return bytes.Equal(a.Fingerprint, b.Fingerprint) }
