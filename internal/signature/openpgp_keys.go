package signature

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	pgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

var (
	beginKeys = []byte("-----BEGIN PGP PUBLIC KEY BLOCK-----")
	endKeys   = []byte("-----END PGP PUBLIC KEY BLOCK-----")
)

// addOpenPGP adds the keys in the armored blocks of data or, if there are none, in data as
// a key ring. The error reads as the continuation of the name of data.
func (k *Keys) addOpenPGP(data []byte) error {
	blocks, err := dearmor(data)
	if err != nil {
		return notKey(err)
	}
	found := 0
	for _, block := range blocks {
		if err := checkPackets(block); err != nil {
			return err
		}
		list, err := pgp.ReadKeyRing(bytes.NewReader(block))
		if err != nil {
			return notKey(err)
		}
		found += len(list)
		for _, e := range list {
			if e.PrivateKey != nil {
				return errPrivate
			}
			k.merge(e)
		}
	}
	if found == 0 {
		return errors.New("holds no key: want OpenPGP public keys of version 4 or 6")
	}
	return nil
}

func notKey(err error) error { return fmt.Errorf("is not an OpenPGP public key: %w", err) }

// dearmor returns the content of each armored block in data, or data itself if it has no
// armored block.
func dearmor(data []byte) (blocks [][]byte, err error) {
	rest := data
	for n := 1; ; n++ {
		begin := bytes.Index(rest, beginKeys)
		if begin < 0 {
			break
		}
		text, after, ended := bytes.Cut(rest[begin:], endKeys)
		if !ended {
			return nil, fmt.Errorf("block %d does not end", n)
		}
		text = slices.Concat(text, endKeys, []byte("\n"))
		block, err := armor.Decode(bytes.NewReader(text))
		var content []byte
		if err == nil {
			content, err = io.ReadAll(block.Body)
		}
		if err != nil {
			return nil, fmt.Errorf("block %d: %w", n, noEOF(err))
		}
		blocks, rest = append(blocks, content), after
	}
	if blocks == nil {
		return [][]byte{data}, nil
	}
	return blocks, nil
}

// checkPackets returns an error for packets that [pgp.ReadKeyRing] would skip: malformed
// ones, and revocations in a format that is not supported.
func checkPackets(block []byte) error {
	packets := packet.NewOpaqueReader(bytes.NewReader(block))
	for {
		p, err := packets.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return notKey(err)
		}
		if _, err := p.Parse(); err != nil && revokes(p) {
			return fmt.Errorf("holds a revocation that cannot be read: %w", err)
		}
	}
}

// revokes reports whether p is a signature that revokes a key or a subkey.
func revokes(p *packet.OpaquePacket) bool {
	const signature = 2
	at := 1 // after the version
	if len(p.Contents) > 0 && p.Contents[0] < 4 {
		at = 2 // and a length
	}
	if p.Tag != signature || len(p.Contents) <= at {
		return false
	}
	kind := packet.SignatureType(p.Contents[at])
	return kind == packet.SigTypeKeyRevocation || kind == packet.SigTypeSubkeyRevocation
}

// noEOF replaces io.EOF by io.ErrUnexpectedEOF, for data that ends within something.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// merge adds a key, or adds its signatures to those of a copy that k has already.
func (k *Keys) merge(e *pgp.Entity) {
	i := slices.IndexFunc(k.pgp, func(old *pgp.Entity) bool { return same(old.PrimaryKey, e.PrimaryKey) })
	if i < 0 {
		k.pgp = append(k.pgp, e)
		return
	}
	old := k.pgp[i]
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
