package openpgp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	pgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

const dateTime = "2006-01-02 15:04:05 MST"

// Verify checks that signature, armored and detached, is one over the bytes of
// payload by one of the keys, at the time now. It returns the ID of the primary
// key: 16 upper-case hexadecimal digits. The error says why the signature is
// refused, and names the key that made it as far as the signature tells.
func (k *Keys) Verify(payload, signature []byte, now time.Time) (signer string, err error) {
	return k.verify(payload, signature, packet.SigTypeBinary, now)
}

func (k *Keys) verify(payload, signature []byte, over packet.SignatureType, now time.Time) (string, error) {
	sig, err := read(signature)
	if err != nil {
		return "", err
	}
	issuer := *sig.IssuerKeyId
	if err := check(sig, over, now); err != nil {
		return "", fmt.Errorf("signature by the OpenPGP key %016X: %w", issuer, err)
	}
	err = fmt.Errorf("signed by the OpenPGP key %016X, which is none of the trusted keys", issuer)
	for _, e := range k.list.EntitiesById(issuer) {
		if err = verifyBy(e, sig, payload, now); err == nil {
			return e.PrimaryKey.KeyIdString(), nil
		}
		err = fmt.Errorf("signature by the OpenPGP key %016X: %w", issuer, err)
	}
	return "", err
}

// read reads an armored signature: exactly one, with nothing around it.
// Several signatures would leave open which of them counts.
func read(signature []byte) (*packet.Signature, error) {
	malformed := func(err error) (*packet.Signature, error) {
		return nil, fmt.Errorf("the OpenPGP signature is malformed: %w", noEOF(err))
	}
	end := bytes.LastIndex(signature, []byte("\n-----END PGP "))
	if end < 0 || bytes.IndexByte(signature[end+1:], '\n') >= 0 || bytes.Count(signature, []byte("-----BEGIN ")) != 1 {
		return malformed(errors.New("want one armored block and no text around it"))
	}
	block, err := armor.Decode(bytes.NewReader(append(bytes.Clone(signature), '\n')))
	if err != nil {
		return malformed(err)
	}
	packets := packet.NewReader(block.Body)
	first, err := packets.NextWithUnsupported()
	if err != nil {
		return malformed(err)
	}
	if u, is := first.(*packet.UnsupportedPacket); is {
		return nil, fmt.Errorf("the OpenPGP signature is of a sort that is not supported, maybe an outdated one: %w", u.Error)
	}
	sig, is := first.(*packet.Signature)
	if !is {
		return malformed(errors.New("it is no detached signature"))
	}
	if sig.IssuerKeyId == nil {
		return malformed(errors.New("it does not tell which key made it"))
	}
	switch _, err := packets.NextWithUnsupported(); err {
	case io.EOF:
		return sig, nil
	case nil:
		return malformed(errors.New("more follows the first signature"))
	default:
		return malformed(err)
	}
}

// kinds are what a signature can be over.
var kinds = map[packet.SignatureType]string{packet.SigTypeBinary: "binary data", packet.SigTypeText: "a text"}

// check checks what a signature tells of itself, and that it is of the type over.
func check(sig *packet.Signature, over packet.SignatureType, now time.Time) error {
	switch {
	case sig.Version != 4 && sig.Version != 6:
		return fmt.Errorf("version %d is not supported", sig.Version)
	case sig.SigType != over:
		return fmt.Errorf("type %#02x is not a signature over %s", uint8(sig.SigType), kinds[over])
	case sig.CreationTime.After(now):
		return fmt.Errorf("it was made in the future, at %s: check the clocks", sig.CreationTime.UTC().Format(dateTime))
	case sig.SigExpired(now):
		expired := sig.CreationTime.Add(time.Duration(*sig.SigLifetimeSecs) * time.Second)
		return fmt.Errorf("it expired at %s", expired.UTC().Format(dateTime))
	}
	for _, n := range sig.Notations {
		if n.IsCritical {
			return fmt.Errorf("it depends on the notation %.80q, which is not supported", n.Name)
		}
	}
	return hashStrength(sig.Hash)
}

// verifyBy checks sig with the key of e that made it.
func verifyBy(e *pgp.Entity, sig *packet.Signature, payload []byte, now time.Time) error {
	key, err := signingKey(e, *sig.IssuerKeyId, sig.CreationTime, now)
	if err != nil {
		return err
	}
	hash, err := sig.PrepareVerify()
	if err != nil {
		return err
	}
	hash.Write(payload)
	if key.VerifySignature(hash, sig) != nil {
		return ErrMismatch
	}
	return nil
}

// ErrMismatch is the mark of a content that was changed, or a signature that was moved.
var ErrMismatch = errors.New("it does not belong to this content: the content or the signature was changed")

// signingKey returns the key of e that has the ID, if it may sign data, could
// do so at the time made and may be relied on now.
func signingKey(e *pgp.Entity, id uint64, made, now time.Time) (*packet.PublicKey, error) {
	self, err := e.VerifyPrimaryKey(now, nil)
	if err == nil && len(e.Revocations) > 0 {
		err = pgperrors.ErrKeyRevoked
	}
	if err != nil {
		return nil, lifeError("the key", e.PrimaryKey, err)
	}
	key := e.PrimaryKey
	if key.KeyId != id {
		if key, self, err = subkey(e, id, now); err != nil {
			return nil, err
		}
	}
	switch {
	case made.Before(e.PrimaryKey.CreationTime) || made.Before(key.CreationTime):
		return nil, fmt.Errorf("it was made at %s, before its key was", made.UTC().Format(dateTime))
	case !self.FlagsValid || !self.FlagSign:
		return nil, errors.New("the key is not meant for signing data (wrong usage)")
	}
	if err := strength(e.PrimaryKey); err != nil {
		return nil, err
	}
	return key, strength(key)
}

// subkey returns the subkey with the ID and the signature that binds it.
func subkey(e *pgp.Entity, id uint64, now time.Time) (*packet.PublicKey, *packet.Signature, error) {
	for i := range e.Subkeys {
		s := &e.Subkeys[i]
		if s.PublicKey.KeyId != id {
			continue
		}
		binding, err := s.Verify(now, nil)
		if err == nil && len(s.Revocations) > 0 {
			err = pgperrors.ErrKeyRevoked
		}
		if err != nil {
			return nil, nil, lifeError("the subkey", s.PublicKey, err)
		}
		return s.PublicKey, binding, nil
	}
	return nil, nil, errors.New("the key has no such subkey")
}

// lifeError says in our words why a key cannot be relied on now.
func lifeError(what string, key *packet.PublicKey, err error) error {
	switch {
	case errors.Is(err, pgperrors.ErrKeyRevoked):
		return fmt.Errorf("%s %s is revoked", what, key.KeyIdString())
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return fmt.Errorf("%s %s is expired", what, key.KeyIdString())
	}
	return fmt.Errorf("%s %s cannot be used: %w", what, key.KeyIdString(), err)
}
