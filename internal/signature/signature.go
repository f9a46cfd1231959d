// Package signature verifies the signatures of people with public keys that a Secret
// trusts: those of Git commits and tags, and OpenPGP cleartext signatures.
//
// # Keys
//
// [Parse] reads the entries of a Secret (reference A9):
//
//	*.sshpub       lines of OpenSSH public keys; blank lines and # comments are skipped
//	anything else  OpenPGP public keys, usually *.asc: any number of armored
//	               blocks, or one binary key ring
//
// [ParseOpenPGP] reads every entry as OpenPGP keys. A line of SSH with options before the
// key, or with a certificate, is rejected: a restriction that is not understood must not be
// ignored. Copies of one OpenPGP key are merged, as in a key ring: a revocation in one
// counts for all.
//
// # What is accepted
//
//	OpenPGP  one signature of version 4 or 6 by a key that may sign data
//	SSH      an SSHSIG of version 1 for the namespace git, by a listed key
//
// The package rejects X.509 signatures (S/MIME, "SIGNED MESSAGE"); hashes weaker than
// SHA-256, and SHA-224; RSA keys of fewer than 2048 bits, DSA, and every algorithm that its
// tables lack. It also rejects text around a signature, which the signature would not
// cover.
//
// # Time
//
// An OpenPGP key is judged by its newest self-signatures, at the time that the caller
// gives. At that time the key must be neither expired nor revoked; a key that has a
// revocation is revoked, whatever the reason, the date and the issuer of the revocation.
// The signature must have been made within the lifetime of the key and not after the given
// time, and must not have expired itself. So the signatures of a key become valid again
// when the key is renewed, and invalid when it expires. A subkey and its primary key must
// both pass. Self-signatures may use SHA-1, as those of many older keys do: they come from
// the person who chose the keys. SSH keys and signatures carry no times.
//
// # Limits
//
// There may be 4 MiB of keys and 1000 keys; a signature of a commit or tag may have 64 KiB.
package signature

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	pgp "github.com/ProtonMail/go-crypto/openpgp/v2"
	"golang.org/x/crypto/ssh"
)

const (
	maxKeys      = 1000
	maxKeyBytes  = 4 << 20
	maxSignature = 64 << 10
	minRSA       = 2048 // bits
)

// Keys are trusted public keys. They are not safe for concurrent use.
type Keys struct {
	pgp pgp.EntityList
	ssh []ssh.PublicKey
}

// Parse reads OpenPGP and SSH keys from the entries of a Secret. The error names
// the entry that cannot be used, and never shows its content.
func Parse(entries map[string][]byte) (*Keys, error) {
	return parse(entries, ".sshpub", "OpenPGP (NAME.asc) or SSH (NAME.sshpub)")
}

// ParseOpenPGP is [Parse] of entries that all hold OpenPGP keys.
func ParseOpenPGP(entries map[string][]byte) (*Keys, error) { return parse(entries, "", "OpenPGP") }

// parse reads the entries whose names end in sshSuffix, if it is set, as SSH keys, and all
// others as OpenPGP keys.
func parse(entries map[string][]byte, sshSuffix, want string) (*Keys, error) {
	k, size := new(Keys), 0
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		data := entries[name]
		if size += len(data); size > maxKeyBytes {
			return nil, fmt.Errorf("more than the limit of %d bytes of keys", maxKeyBytes)
		}
		add := k.addOpenPGP
		if sshSuffix != "" && strings.HasSuffix(name, sshSuffix) {
			add = k.addSSH
		}
		err := errPrivate
		if !privateKeyLine.Match(data) {
			err = add(data)
		}
		if err != nil {
			return nil, fmt.Errorf("entry %q %w", name, err)
		}
		if len(k.pgp)+len(k.ssh) > maxKeys {
			return nil, fmt.Errorf("more than the limit of %d keys", maxKeys)
		}
	}
	if len(k.pgp)+len(k.ssh) == 0 {
		return nil, errors.New("no entry: want public keys of " + want)
	}
	return k, nil
}

// privateKeyLine matches the line that begins a private key of any sort.
var privateKeyLine = regexp.MustCompile(`(?m)^-----BEGIN [A-Z0-9 ]*PRIVATE KEY`)

var (
	errPrivate  = errors.New("holds a private key, which must stay with its owner: put the public key there, and replace this one if others could read it")
	errMismatch = errors.New("it does not belong to this content: the content or the signature was changed")
)

// ErrUnsigned says that there is no signature to verify.
var ErrUnsigned = errors.New("it carries no signature")

// formats are the kinds of signatures that Git supports, by their first line.
var formats = []struct {
	begin  string
	verify func(k *Keys, payload, signature []byte, now time.Time) (signer string, err error)
}{
	{"-----BEGIN PGP SIGNATURE-----", (*Keys).verifyBinary},
	{"-----BEGIN PGP MESSAGE-----", (*Keys).verifyBinary},
	{"-----BEGIN SSH SIGNATURE-----", (*Keys).verifySSH},
	{"-----BEGIN SIGNED MESSAGE-----", refuseX509},
}

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
	for _, format := range formats {
		if bytes.HasPrefix(signature, []byte(format.begin)) {
			return format.verify(k, payload, signature, now)
		}
	}
	line, _, _ := bytes.Cut(signature, []byte{'\n'})
	return "", fmt.Errorf("a signature that begins with %.40q is neither OpenPGP nor SSH", line)
}

func refuseX509(*Keys, []byte, []byte, time.Time) (string, error) {
	return "", errors.New("X.509 signatures (S/MIME) are not supported: sign with OpenPGP or SSH (git config gpg.format)")
}

// checkRSA returns why an RSA key of so many bits is too weak, nil if it is not.
func checkRSA(bits int) error {
	if bits < minRSA {
		return fmt.Errorf("the key is too weak: RSA of %d bits, less than %d", bits, minRSA)
	}
	return nil
}
