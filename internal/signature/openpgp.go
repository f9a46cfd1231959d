package signature

import (
	"bytes"
	"crypto"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
	pgperrors "github.com/ProtonMail/go-crypto/openpgp/errors"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	pgp "github.com/ProtonMail/go-crypto/openpgp/v2"
)

// hashes are the hash functions that an OpenPGP signature may use.
var hashes = map[crypto.Hash]bool{
	crypto.SHA256: true, crypto.SHA384: true, crypto.SHA512: true,
	crypto.SHA3_256: true, crypto.SHA3_512: true,
}

// algorithms are the algorithms that an OpenPGP key may use.
var algorithms = map[packet.PublicKeyAlgorithm]bool{
	packet.PubKeyAlgoRSA: true, packet.PubKeyAlgoRSASignOnly: true,
	packet.PubKeyAlgoECDSA: true, packet.PubKeyAlgoEdDSA: true,
	packet.PubKeyAlgoEd25519: true, packet.PubKeyAlgoEd448: true,
}

const dateTime = "2006-01-02 15:04:05 MST"

var errSurrounded = errors.New("want one text that is signed in the clear (OpenPGP cleartext signature), and nothing around it")

// VerifyText checks a text with a cleartext signature (RFC 9580 section 7), as
// [Keys.Verify] does. It returns the signed text, with LF line endings. Nothing else in
// message can be trusted.
func (k *Keys) VerifyText(message []byte, now time.Time) (text []byte, signer string, err error) {
	message = bytes.ReplaceAll(bytes.TrimSpace(message), []byte("\r\n"), []byte("\n"))
	begin := []byte("-----BEGIN PGP SIGNED MESSAGE-----")
	// In the text, a line that begins with a dash has another dash before it, so no line
	// looks like this.
	at := bytes.Index(message, []byte("\n-----BEGIN PGP SIGNATURE-----"))
	if !bytes.HasPrefix(message, begin) || bytes.Count(message, begin) != 1 || at < 0 {
		return nil, "", errSurrounded
	}
	block, rest := clearsign.Decode(append(bytes.Clone(message), '\n'))
	switch {
	case block == nil:
		return nil, "", errors.New("the text that is signed in the clear is malformed")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, "", errSurrounded
	}
	if signer, err = k.verifyOpenPGP(block.Bytes, message[at+1:], packet.SigTypeText, now); err != nil {
		return nil, "", err
	}
	return bytes.ReplaceAll(block.Bytes, []byte("\r\n"), []byte("\n")), signer, nil
}

func (k *Keys) verifyBinary(payload, signature []byte, now time.Time) (string, error) {
	return k.verifyOpenPGP(payload, signature, packet.SigTypeBinary, now)
}

// verifyOpenPGP checks an armored and detached signature whose type must be sigType.
func (k *Keys) verifyOpenPGP(payload, signature []byte, sigType packet.SignatureType, now time.Time) (string, error) {
	sig, err := readSignature(signature)
	if err != nil {
		return "", err
	}
	issuer := *sig.IssuerKeyId
	if err := checkSignature(sig, sigType, now); err != nil {
		return "", fmt.Errorf("signature by the OpenPGP key %016X: %w", issuer, err)
	}
	err = fmt.Errorf("signed by the OpenPGP key %016X, which is none of the trusted keys", issuer)
	for _, e := range k.pgp.EntitiesById(issuer) { // another key may have the same ID
		if err = verifyBy(e, sig, payload, now); err == nil {
			return e.PrimaryKey.KeyIdString(), nil
		}
		err = fmt.Errorf("signature by the OpenPGP key %016X: %w", issuer, err)
	}
	return "", err
}

// readSignature reads an armored signature: exactly one, with nothing around it.
// Several signatures would leave open which of them counts.
func readSignature(signature []byte) (*packet.Signature, error) {
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

// checkSignature checks the metadata of a signature, and that its type is sigType.
func checkSignature(sig *packet.Signature, sigType packet.SignatureType, now time.Time) error {
	switch {
	case sig.Version != 4 && sig.Version != 6:
		return fmt.Errorf("version %d is not supported", sig.Version)
	case sig.SigType != sigType:
		kind := map[packet.SignatureType]string{packet.SigTypeBinary: "binary data", packet.SigTypeText: "a text"}[sigType]
		return fmt.Errorf("type %#02x is not a signature over %s", uint8(sig.SigType), kind)
	case sig.CreationTime.After(now):
		return fmt.Errorf("it was made in the future, at %s: check the clocks", sig.CreationTime.UTC().Format(dateTime))
	case sig.SigExpired(now):
		expired := sig.CreationTime.Add(time.Duration(*sig.SigLifetimeSecs) * time.Second)
		return fmt.Errorf("it expired at %s", expired.UTC().Format(dateTime))
	case !hashes[sig.Hash]:
		return fmt.Errorf("the signature is too weak: its hash function is %v, want SHA-256 or better", sig.Hash)
	}
	for _, n := range sig.Notations {
		if n.IsCritical {
			return fmt.Errorf("it depends on the notation %.80q, which is not supported", n.Name)
		}
	}
	return nil
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
		return errMismatch
	}
	return nil
}

// signingKey returns the key of e that has the ID, if the key may sign data, existed at the
// time signedAt, and can be relied on now.
func signingKey(e *pgp.Entity, id uint64, signedAt, now time.Time) (*packet.PublicKey, error) {
	key := e.PrimaryKey
	self, err := e.VerifyPrimaryKey(now, nil)
	if err := lifeError("the key", key, err, e.Revocations); err != nil {
		return nil, err
	}
	if key.KeyId != id {
		at := 0
		for e.Subkeys[at].PublicKey.KeyId != id { // EntitiesById found one
			at++
		}
		sub := &e.Subkeys[at]
		key = sub.PublicKey
		self, err = sub.Verify(now, nil)
		if err := lifeError("the subkey", key, err, sub.Revocations); err != nil {
			return nil, err
		}
	}
	switch {
	case signedAt.Before(e.PrimaryKey.CreationTime) || signedAt.Before(key.CreationTime):
		return nil, fmt.Errorf("it was made at %s, before its key was", signedAt.UTC().Format(dateTime))
	case !self.FlagsValid || !self.FlagSign:
		return nil, errors.New("the key is not meant for signing data (wrong usage)")
	}
	if err := checkKey(e.PrimaryKey); err != nil {
		return nil, err
	}
	return key, checkKey(key)
}

// lifeError returns why a key cannot be relied on now, if go-crypto returned err for it or
// it has revocations.
func lifeError(what string, key *packet.PublicKey, err error, revocations []*packet.VerifiableSignature) error {
	switch {
	case errors.Is(err, pgperrors.ErrKeyRevoked), err == nil && len(revocations) > 0:
		return fmt.Errorf("%s %s is revoked", what, key.KeyIdString())
	case errors.Is(err, pgperrors.ErrKeyExpired):
		return fmt.Errorf("%s %s is expired", what, key.KeyIdString())
	case err != nil:
		return fmt.Errorf("%s %s cannot be used: %w", what, key.KeyIdString(), err)
	}
	return nil
}

// checkKey returns why a key is too weak or not supported, nil if it is neither.
func checkKey(key *packet.PublicKey) error {
	switch algorithm := key.PubKeyAlgo; {
	case algorithm == packet.PubKeyAlgoDSA:
		return errors.New("the key is too weak: DSA")
	case key.Version != 4 && key.Version != 6:
		return fmt.Errorf("the key has version %d, which is not supported", key.Version)
	case !algorithms[algorithm]:
		return fmt.Errorf("the key has an algorithm (number %d) that is not supported", algorithm)
	case algorithm == packet.PubKeyAlgoRSA || algorithm == packet.PubKeyAlgoRSASignOnly:
		bits, err := key.BitLength()
		if err != nil {
			return err
		}
		return checkRSA(int(bits))
	}
	return nil
}
