package signature

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/openpgp"
)

// Keys are the public keys that are trusted. They are not safe for concurrent use.
type Keys struct {
	pgp openpgp.Keys
	ssh []ssh.PublicKey
}

// Parse reads keys from the entries of a Secret. The error names the entry that
// cannot be used, and never shows what is in it.
func Parse(entries map[string][]byte) (*Keys, error) {
	size := 0
	for _, data := range entries {
		size += len(data)
	}
	if size > maxKeyBytes {
		return nil, fmt.Errorf("%d bytes of keys, more than the limit of %d", size, maxKeyBytes)
	}
	k := new(Keys)
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		if err := k.add(name, entries[name]); err != nil {
			return nil, fmt.Errorf("entry %q %w", name, err)
		}
		if n := k.pgp.Len() + len(k.ssh); n > maxKeys {
			return nil, fmt.Errorf("more than the limit of %d keys", maxKeys)
		}
	}
	if k.pgp.Len()+len(k.ssh) == 0 {
		return nil, errors.New("no entry: want public keys of OpenPGP (NAME.asc) or SSH (NAME.sshpub)")
	}
	return k, nil
}

// add reads one entry.
func (k *Keys) add(name string, data []byte) error {
	if strings.HasSuffix(name, ".sshpub") {
		if openpgp.IsPrivate(data) {
			return openpgp.ErrPrivate
		}
		return k.addSSH(data)
	}
	return k.pgp.Add(data)
}

// addSSH reads lines of OpenSSH public keys.
func (k *Keys) addSSH(data []byte) error {
	before, number := len(k.ssh), 0
	for line := range bytes.Lines(data) {
		number++
		if line = bytes.TrimSpace(line); len(line) == 0 || line[0] == '#' {
			continue
		}
		key, _, options, _, err := ssh.ParseAuthorizedKey(line)
		switch {
		case err != nil:
			return fmt.Errorf("line %d is not an OpenSSH public key", number)
		case len(options) > 0:
			return fmt.Errorf("line %d has options or principals before the key, which are not supported: write the key alone", number)
		}
		if _, is := key.(*ssh.Certificate); is {
			return fmt.Errorf("line %d is an SSH certificate, which is not supported: write the public key", number)
		}
		k.ssh = append(k.ssh, key)
	}
	if len(k.ssh) == before {
		return errors.New("holds no key: want OpenSSH public keys, one a line")
	}
	return nil
}
