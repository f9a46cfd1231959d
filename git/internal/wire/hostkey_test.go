package wire_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/headgate-io/headgate/git/internal/wire"
)

func TestKnownHosts(t *testing.T) {
	repo := newRepo(t)
	key := newKey(t, "ed25519")
	s := (&sshServer{dir: repo.dir, env: true}).start(t, key.signer.PublicKey(), "rsa", "ecdsa", "ed25519")
	rsaKey, ecKey, edKey := text(s.keys[0].PublicKey()), text(s.keys[1].PublicKey()), text(s.keys[2].PublicKey())
	other := text(newKey(t, "ed25519").signer.PublicKey())
	otherRSA := text(newKey(t, "rsa").signer.PublicKey())
	host := knownhosts.Normalize(s.addr)
	port := host[strings.LastIndex(host, ":"):]
	hashed := knownhosts.HashHostname(host)
	for _, tt := range []struct {
		name, known string
		want        string // of the error
	}{
		{"rsa only", host + " " + rsaKey, ""},
		{"ecdsa only", host + " " + ecKey, ""},
		{"ed25519 only", host + " " + edKey, ""},
		{"several keys on a line, the last is right", host + " " + otherRSA + " " + ecKey, ""},
		{"several entries on a line", "example.com " + other + " " + host + " " + rsaKey + " a comment", ""},
		{"folded lines with comments", "example.com " + other + " comment " + host + " " + rsaKey, ""},
		{"several lines", host + " " + otherRSA + "\n\n# comment\n" + host + " " + ecKey + " me@home\r\n", ""},
		{"several hosts", "example.com," + host + ",::1 " + edKey, ""},
		{"hashed", hashed + " " + edKey, ""},
		{"wildcard", "[127.0.?.*]" + port + " " + edKey, ""},
		{"everything", "* " + edKey, ""},
		{"plain name", "127.0.0.1 " + edKey, ""},
		{"authority beside a key", "@cert-authority " + host + " " + other + "\n" + host + " " + edKey, ""},
		{"other key revoked", "@revoked * " + other + "\n" + host + " " + edKey, ""},
		{"empty", "", "known_hosts has no keys: add a line"},
		{"no keys", "what is this", "no key can be read in line 1"},
		{"comment only", "# " + host + " " + edKey, "known_hosts has no keys"},
		{"unknown host", "example.com " + edKey, "known_hosts has no key of this host"},
		{"unknown hash", knownhosts.HashHostname("[127.0.0.1]:1") + " " + edKey, "known_hosts has no key of this host"},
		{"damaged hash", "|1|x|y " + edKey, "known_hosts has no key of this host"},
		{"other port", "[127.0.0.1]:1 " + edKey, "known_hosts has no key of this host"},
		{"plain name beside the port", "127.0.0.1 " + edKey + "\n" + host + " " + other, "known_hosts expects ssh-ed25519 "},
		{"negated", "*,!127.0.0.?,!" + host + " " + edKey, "known_hosts has no key of this host"},
		{"changed", host + " " + other, "known_hosts expects " + ssh.KeyAlgoED25519 + " " + fingerprint(t, other)},
		{"revoked", "@revoked " + host + " " + edKey + "\n" + host + " " + edKey, "marks as revoked"},
		{"revoked only", "@revoked * " + edKey, "marks as revoked"},
		{"authority", "@cert-authority " + host + " " + other, "host certificates are not supported"},
		{"lonely marker", "@revoked\n" + host + " " + other, "line 1"},
		{"unknown marker", "@what " + host + " " + edKey, "known_hosts has no key of this host"},
		{"wrong type", host + " " + strings.Replace(edKey, "ssh-ed25519", "ssh-rsa", 1), "no key can be read in line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := s.dial(t, wire.SSHConfig{Identity: key.pem, KnownHosts: []byte(tt.known)})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			e, ok := errors.AsType[*wire.HostKeyError](err)
			if !ok || !strings.Contains(err.Error(), tt.want) || e.Host != host {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
			if e.Offered != "" && !strings.Contains(err.Error(), "SHA256:") {
				t.Errorf("no fingerprint in %v", err)
			}
		})
	}
}

// A server that has none of the known types shows another key, which the error names.
func TestHostKeyOfOtherType(t *testing.T) {
	key := newKey(t, "ed25519")
	s := (&sshServer{}).start(t, key.signer.PublicKey(), "ecdsa")
	known := newKey(t, "rsa").signer
	_, err := s.dial(t, wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(known)})
	e, ok := errors.AsType[*wire.HostKeyError](err)
	if !ok {
		t.Fatal(err)
	}
	want := ssh.FingerprintSHA256(s.keys[0].PublicKey())
	if e.Offered != "ecdsa-sha2-nistp256 "+want || len(e.Expected) != 1 || e.Expected[0] != "ssh-rsa "+ssh.FingerprintSHA256(known.PublicKey()) ||
		!strings.Contains(err.Error(), `add a line "`+e.Host+` ecdsa-sha2-nistp256 KEY"`) {
		t.Errorf("%v", err)
	}
}

func text(key ssh.PublicKey) string {
	return key.Type() + " " + base64.StdEncoding.EncodeToString(key.Marshal())
}

func fingerprint(t *testing.T, line string) string {
	key, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line))
	if err != nil {
		t.Fatal(err)
	}
	return ssh.FingerprintSHA256(key)
}
