package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"path"
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
	if e.Offered == "" {
		return fmt.Sprintf("host key of %s: known_hosts has no keys: add a line \"%s KEYTYPE KEY\", as ssh-keyscan prints it%s", e.Host, e.Host, e.note)
	}
	if e.Revoked {
		return fmt.Sprintf("host key of %s: the server offers %s, which known_hosts marks as revoked", e.Host, e.Offered)
	}
	has, which := "has no key of this host", "the"
	if len(e.Expected) > 0 {
		has, which = "expects "+strings.Join(e.Expected, " or "), "the offered"
	}
	algorithm, _, _ := strings.Cut(e.Offered, " ")
	return fmt.Sprintf("host key of %s: the server offers %s, known_hosts %s: if %s fingerprint is right, add a line \"%s %s KEY\"%s",
		e.Host, e.Offered, has, which, e.Host, algorithm, e.note)
}

// A hostKeys holds what known_hosts says about one host.
type hostKeys struct {
	name    string
	keys    []ssh.PublicKey
	revoked []ssh.PublicKey
	note    string // about lines of known_hosts that are of no use
}

// A knownHost is an entry of a known_hosts file (sshd(8)).
type knownHost struct {
	hosts  string // patterns separated by commas, or a hash
	marker string // "", "@revoked" or "@cert-authority"
	key    ssh.PublicKey
}

// readKnownHosts returns the keys of a host. As with OpenSSH, the entries of the
// plain name count for a port other than 22 if there are none for that port.
func readKnownHosts(text []byte, host, port string) (*hostKeys, error) {
	entries, note := parseKnownHosts(text)
	h := &hostKeys{name: strings.ToLower(host), note: note}
	names := []string{h.name}
	if port != "22" {
		h.name = "[" + h.name + "]:" + port
		names = []string{h.name, names[0]}
	}
	if len(entries) == 0 {
		return nil, &HostKeyError{Host: h.name, note: note}
	}
	for _, name := range names {
		for _, e := range entries {
			switch {
			case !e.matches(name):
			case e.marker == "":
				h.keys = append(h.keys, e.key)
			case e.marker == "@revoked":
				h.revoked = append(h.revoked, e.key)
			case e.marker == "@cert-authority":
				h.note = note + "; its @cert-authority lines are not used: host certificates are not supported"
			}
		}
		if len(h.keys)+len(h.revoked) > 0 {
			break
		}
	}
	return h, nil
}

// parseKnownHosts reads a known_hosts file. One line may hold several keys of its
// hosts, one after the other, and even several entries, as when the newlines of a
// file were lost; any other word is a comment. The note names the lines without a key
// that this package can read.
func parseKnownHosts(text []byte) (entries []knownHost, note string) {
	var badLines []string
	number := 0
	for line := range bytes.Lines(text) {
		number++
		words := strings.Fields(string(line))
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		var e knownHost
		if words[0][0] == '@' {
			e.marker, words = words[0], words[1:]
		}
		before := len(entries)
		if len(words) > 0 {
			e.hosts, words = words[0], words[1:]
		}
		for len(words) >= 2 {
			if e.key = keyOf(words[0], words[1]); e.key != nil {
				entries, words = append(entries, e), words[2:]
				continue
			}
			if len(words) > 2 && keyOf(words[1], words[2]) != nil {
				e.hosts = words[0]
			}
			words = words[1:]
		}
		if len(entries) == before {
			badLines = append(badLines, fmt.Sprint(number))
		}
	}
	if len(badLines) > 0 {
		note = "; no key can be read in line " + strings.Join(badLines[:min(len(badLines), 5)], ", ") + " of known_hosts"
	}
	return entries, note
}

// keyOf parses two words of a line as a key. It returns nil if they are none.
func keyOf(algorithm, encoded string) ssh.PublicKey {
	b, _ := base64.StdEncoding.DecodeString(encoded)
	key, err := ssh.ParsePublicKey(b)
	if err != nil || key.Type() != algorithm {
		return nil
	}
	return key
}

// wildcards turns a pattern of known_hosts, which has only * and ?, into one of
// path.Match.
var wildcards = strings.NewReplacer(`[`, `\[`, `]`, `\]`, `\`, `\\`)

// matches reports whether the entry is for a host by the name given.
func (e knownHost) matches(name string) bool {
	found := false
	for _, pattern := range strings.Split(e.hosts, ",") {
		if rest, ok := strings.CutPrefix(pattern, "|1|"); ok {
			found = found || hashMatches(rest, name)
			continue
		}
		pattern, negated := strings.CutPrefix(strings.ToLower(pattern), "!")
		if host, port, err := net.SplitHostPort(pattern); err == nil && port == "22" {
			pattern = host
		}
		if ok, _ := path.Match(wildcards.Replace(pattern), name); ok && negated {
			return false
		} else if ok {
			found = true
		}
	}
	return found
}

// hashMatches reports whether hash, SALT|HMAC-SHA1, is that of name.
func hashMatches(hash, name string) bool {
	salt, sum, _ := strings.Cut(hash, "|")
	key, err1 := base64.StdEncoding.DecodeString(salt)
	want, err2 := base64.StdEncoding.DecodeString(sum)
	if err1 != nil || err2 != nil {
		return false
	}
	mac := hmac.New(sha1.New, key)
	mac.Write([]byte(name))
	return hmac.Equal(mac.Sum(nil), want)
}

// check accepts a key that is known and not revoked.
func (h *hostKeys) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	same := func(k ssh.PublicKey) bool { return bytes.Equal(k.Marshal(), key.Marshal()) }
	revoked := slices.ContainsFunc(h.revoked, same)
	if !revoked && slices.ContainsFunc(h.keys, same) {
		return nil
	}
	e := &HostKeyError{Host: h.name, Offered: fingerprint(key), Revoked: revoked, note: h.note}
	for _, k := range h.keys {
		e.Expected = append(e.Expected, fingerprint(k))
	}
	return e
}

func fingerprint(key ssh.PublicKey) string { return key.Type() + " " + ssh.FingerprintSHA256(key) }

// algorithms returns the signature algorithms to negotiate for the host key. Those of
// the known keys come first, so that a server with several keys shows a known one;
// the others follow, so that a server without a known key shows one that the error
// can name.
func (h *hostKeys) algorithms() []string {
	all := []string{ssh.KeyAlgoED25519, ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521, ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
	unknown := func(algorithm string) int {
		if strings.HasPrefix(algorithm, "rsa-") {
			algorithm = ssh.KeyAlgoRSA
		}
		if slices.ContainsFunc(h.keys, func(k ssh.PublicKey) bool { return k.Type() == algorithm }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(a, b string) int { return unknown(a) - unknown(b) })
	return all
}
