package wire

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"
)

// A knownHosts is the content of a known_hosts file (sshd(8)). One line may hold
// several keys of its hosts, one after the other, and even several entries, as
// when the newlines of a file were lost; a word that is neither is a comment.
type knownHosts struct {
	entries []knownHost
	bad     []int // lines that have no key we can read
}

type knownHost struct {
	hosts  string // patterns separated by commas, or a hash
	marker string // "", "@revoked" or "@cert-authority"
	key    ssh.PublicKey
}

func parseKnownHosts(text []byte) *knownHosts {
	k := &knownHosts{}
	number := 0
	for line := range bytes.Lines(text) {
		number++
		words := strings.Fields(string(line))
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		before := len(k.entries)
		if k.add(words); len(k.entries) == before {
			k.bad = append(k.bad, number)
		}
	}
	return k
}

// add takes the words of one line.
func (k *knownHosts) add(words []string) {
	var e knownHost
	if words[0][0] == '@' {
		e.marker, words = words[0], words[1:]
	}
	if len(words) == 0 {
		return
	}
	e.hosts, words = words[0], words[1:]
	for len(words) >= 2 {
		if e.key = keyOf(words[0], words[1]); e.key != nil {
			k.entries = append(k.entries, e)
			words = words[2:]
			continue
		}
		if len(words) > 2 && keyOf(words[1], words[2]) != nil {
			e.hosts = words[0]
		}
		words = words[1:]
	}
}

// keyOf returns the key that two words of a line are, or nil.
func keyOf(algorithm, encoded string) ssh.PublicKey {
	b, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return nil
	}
	key, err := ssh.ParsePublicKey(b)
	if err != nil || key.Type() != algorithm {
		return nil
	}
	return key
}

// of returns the keys of a host. As with OpenSSH, the entries of the plain name
// count for a port other than 22 if there are none for that port.
func (k *knownHosts) of(host, port string) (*hostKeys, error) {
	name := strings.ToLower(host)
	h := &hostKeys{name: name, bad: k.bad}
	if port != "22" {
		h.name = "[" + name + "]:" + port
	}
	if h.take(k, h.name); len(h.keys)+len(h.revoked) == 0 && h.name != name {
		h.take(k, name)
	}
	if len(k.entries) == 0 {
		return nil, &HostKeyError{Host: h.name, note: badLines(k.bad)}
	}
	return h, nil
}

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
		if wildcardMatches(pattern, name) {
			if negated {
				return false
			}
			found = true
		}
	}
	return found
}

// wildcards makes a pattern of path.Match out of one of known_hosts, which knows
// * and ? only.
var wildcards = strings.NewReplacer(`[`, `\[`, `]`, `\]`, `\`, `\\`)

func wildcardMatches(pattern, name string) bool {
	ok, err := path.Match(wildcards.Replace(pattern), name)
	return ok && err == nil
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

func badLines(lines []int) string {
	if len(lines) == 0 {
		return ""
	}
	const few = 5
	return fmt.Sprintf("; no key can be read in line %s of known_hosts",
		strings.Trim(strings.ReplaceAll(fmt.Sprint(lines[:min(len(lines), few)]), " ", ", "), "[]"))
}
