package wire

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// A HostKeyError tells that the key of an SSH server is not the one that
// known_hosts has for it, or that known_hosts has none.
type HostKeyError struct {
	Host     string   // as known_hosts names it: HOST or [HOST]:PORT
	Offered  string   // the server's key: type and SHA-256 fingerprint; "" if known_hosts has no keys at all
	Expected []string // the keys in known_hosts, likewise
	Revoked  bool     // known_hosts marks the offered key as revoked
	note     string
}

func (e *HostKeyError) Error() string {
	algorithm, _, _ := strings.Cut(e.Offered, " ")
	switch {
	case e.Offered == "":
		return fmt.Sprintf("host key of %s: known_hosts has no keys: add a line \"%s KEYTYPE KEY\", as ssh-keyscan prints it%s", e.Host, e.Host, e.note)
	case e.Revoked:
		return fmt.Sprintf("host key of %s: the server offers %s, which known_hosts marks as revoked", e.Host, e.Offered)
	case len(e.Expected) == 0:
		return fmt.Sprintf("host key of %s: the server offers %s, known_hosts has no key of this host: if the fingerprint is right, add a line \"%s %s KEY\"%s",
			e.Host, e.Offered, e.Host, algorithm, e.note)
	}
	return fmt.Sprintf("host key of %s: the server offers %s, known_hosts expects %s: if the offered fingerprint is right, add a line \"%s %s KEY\"%s",
		e.Host, e.Offered, strings.Join(e.Expected, " or "), e.Host, algorithm, e.note)
}

// A hostKeys holds what known_hosts says about one host.
type hostKeys struct {
	name    string
	keys    []ssh.PublicKey
	revoked []ssh.PublicKey
	ca      bool  // there are certificate authorities for the host
	bad     []int // lines of known_hosts without a key
}

func (h *hostKeys) take(k *knownHosts, name string) {
	for _, e := range k.entries {
		if !e.matches(name) {
			continue
		}
		switch e.marker {
		case "":
			h.keys = append(h.keys, e.key)
		case "@revoked":
			h.revoked = append(h.revoked, e.key)
		case "@cert-authority":
			h.ca = true
		}
	}
}

// check accepts a key that is known and not revoked.
func (h *hostKeys) check(key ssh.PublicKey) error {
	same := func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), key.Marshal()) }
	revoked := slices.ContainsFunc(h.revoked, same)
	if !revoked && slices.ContainsFunc(h.keys, same) {
		return nil
	}
	e := &HostKeyError{Host: h.name, Offered: fingerprint(key), Revoked: revoked, note: badLines(h.bad)}
	for _, k := range h.keys {
		e.Expected = append(e.Expected, fingerprint(k))
	}
	if h.ca {
		e.note += "; its @cert-authority lines are not used: host certificates are not supported"
	}
	return e
}

func fingerprint(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

// hostKeyAlgorithms are the signature algorithms for host keys and the types of
// key they go with, in the order of preference.
var hostKeyAlgorithms = []struct{ algorithm, key string }{
	{ssh.KeyAlgoED25519, ssh.KeyAlgoED25519},
	{ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA256},
	{ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA384},
	{ssh.KeyAlgoECDSA521, ssh.KeyAlgoECDSA521},
	{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSA},
	{ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSA},
}

// algorithms returns what to negotiate: first the algorithms of the keys we
// know, so that a server with several keys shows one of those; then the others,
// so that a server with none of them shows a key that the error can name.
func (h *hostKeys) algorithms(preferred []string) []string {
	keyType := map[string]string{}
	var all []string
	for _, a := range hostKeyAlgorithms {
		keyType[a.algorithm] = a.key
		all = append(all, a.algorithm)
	}
	if len(preferred) > 0 {
		all = slices.Clone(preferred)
	}
	known := func(a string) int {
		if slices.ContainsFunc(h.keys, func(k ssh.PublicKey) bool { return k.Type() == keyType[a] }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return known(a) - known(b) })
	return all
}

// explain makes clear what went wrong in a handshake.
func (h *hostKeys) explain(cfg SSHConfig, err error) error {
	if e, ok := errors.AsType[*HostKeyError](err); ok {
		return e
	}
	// The package has no type for this error.
	if strings.Contains(err.Error(), "unable to authenticate") {
		if len(cfg.Identity) == 0 {
			return fmt.Errorf("%w: the server wants a key: identity is missing in the Secret", ErrAuth)
		}
		return fmt.Errorf("%w: the server does not accept the key: check identity in the Secret, and the user of the URL", ErrAuth)
	}
	return err
}
