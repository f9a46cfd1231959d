// Package signature verifies the signatures of Git commits and tags against
// keys that somebody trusts.
//
// # Keys
//
// [Parse] reads the entries of a Secret (reference A9):
//
//	*.sshpub       lines of OpenSSH public keys; blank lines and # comments are skipped
//	anything else  OpenPGP public keys, usually *.asc: any number of armored
//	               blocks, or one binary key ring
//
// A line of SSH with options before the key, or with a certificate, is refused:
// a restriction that is not understood must not be passed over. Several copies
// of one OpenPGP key are merged, as in a key ring: a revocation in one counts
// for all.
//
// # What is accepted
//
//	OpenPGP  one signature of version 4 or 6 over binary data, by a key that may sign data
//	SSH      an SSHSIG of version 1 for the namespace git, by a listed key
//
// X.509 signatures (S/MIME, "SIGNED MESSAGE") are refused by name. So are
// ssh-rsa signatures, which hash with SHA-1, and every algorithm of SSH that the
// table in strength.go lacks. Text around a signature, which it would not cover,
// is refused as well. Package openpgp tells which keys and signatures of OpenPGP
// count, and when. SSH keys and signatures carry no times.
//
// # Limits
//
// 4 MiB of keys, 1000 keys, 64 KiB a signature.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

const (
	maxKeys      = 1000
	maxKeyBytes  = 4 << 20
	maxSignature = 64 << 10
)

// kinds are the signatures that Git knows, by the line each begins with.
var kinds = []struct {
	begin  string
	verify func(k *Keys, payload, signature []byte, now time.Time) (signer string, err error)
}{
	{"-----BEGIN PGP SIGNATURE-----", (*Keys).verifyPGP},
	{"-----BEGIN PGP MESSAGE-----", (*Keys).verifyPGP},
	{"-----BEGIN SSH SIGNATURE-----", (*Keys).verifySSH},
	{"-----BEGIN SIGNED MESSAGE-----", refuseX509},
}

// ErrUnsigned says that there is no signature to verify.
var ErrUnsigned = errors.New("it carries no signature")

// Verify checks that signature is one over payload by one of the keys, at the
// time now. It returns the signer: the key ID of an OpenPGP primary key (16
// upper-case hexadecimal digits) or the SHA256 fingerprint of an SSH key.
//
// The error says why the signature is refused, and names the key that made it
// as far as the signature tells. It is [ErrUnsigned] when signature is empty.
func (k *Keys) Verify(payload, signature []byte, now time.Time) (signer string, err error) {
	signature = bytes.TrimSpace(signature)
	switch {
	case len(signature) == 0:
		return "", ErrUnsigned
	case len(signature) > maxSignature:
		return "", fmt.Errorf("the signature has %d bytes, more than the limit of %d", len(signature), maxSignature)
	}
	for _, kind := range kinds {
		if bytes.HasPrefix(signature, []byte(kind.begin)) {
			return kind.verify(k, payload, signature, now)
		}
	}
	line, _, _ := bytes.Cut(signature, []byte{'\n'})
	return "", fmt.Errorf("a signature that begins with %.40q is neither OpenPGP nor SSH", line)
}

func (k *Keys) verifyPGP(payload, signature []byte, now time.Time) (string, error) {
	return k.pgp.Verify(payload, signature, now)
}

func refuseX509(*Keys, []byte, []byte, time.Time) (string, error) {
	return "", errors.New("X.509 signatures (S/MIME) are not supported: sign with OpenPGP or SSH (git config gpg.format)")
}
