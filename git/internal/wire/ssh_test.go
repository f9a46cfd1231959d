package wire_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/headgate-io/headgate/git/internal/wire"
	"github.com/headgate-io/headgate/internal/testenv"
)

// rsaKey returns the RSA key that all tests share, because generating one takes time.
var rsaKey = sync.OnceValue(func() *rsa.PrivateKey { key, _ := rsa.GenerateKey(rand.Reader, 2048); return key })

func TestSSHIdentity(t *testing.T) {
	marshal := func(b *pem.Block, err error) []byte {
		must(t, err)
		return pem.EncodeToMemory(b)
	}
	rsaKey := rsaKey()
	ecKey, _ := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	pkcs8, _ := x509.MarshalPKCS8PrivateKey(rsaKey)
	ec, _ := x509.MarshalECPrivateKey(ecKey)
	sealed := marshal(ssh.MarshalPrivateKeyWithPassphrase(ecKey, "", []byte("open")))
	ecPublic, _ := ssh.NewPublicKey(ecKey.Public())
	rsaPublic, _ := ssh.NewPublicKey(rsaKey.Public())
	for _, tt := range []struct {
		name       string
		public     ssh.PublicKey
		identity   []byte
		passphrase string
		want       string
	}{
		{"openssh", ecPublic, marshal(ssh.MarshalPrivateKey(ecKey, "")), "", ""},
		{"needless passphrase", ecPublic, marshal(ssh.MarshalPrivateKey(ecKey, "")), "open", ""},
		{"pkcs1", rsaPublic, marshal(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(rsaKey)}, nil), "", ""},
		{"pkcs8", rsaPublic, marshal(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}, nil), "", ""},
		{"ec", ecPublic, marshal(&pem.Block{Type: "EC PRIVATE KEY", Bytes: ec}, nil), "", ""},
		{"passphrase", ecPublic, sealed, "open", ""},
		{"no passphrase", ecPublic, sealed, "", "passphrase is missing"},
		{"wrong passphrase", ecPublic, sealed, "shut", "passphrase of the private key is wrong"},
		{"public key", ecPublic, ssh.MarshalAuthorizedKey(ecPublic), "", "this is a public key"},
		{"no key", ecPublic, []byte("s3cret"), "", "not a private key in PEM format"},
		{"damaged key", ecPublic, marshal(&pem.Block{Type: "EC PRIVATE KEY", Bytes: []byte("s3cret")}, nil), "", "damaged"},
		{"foreign key", rsaPublic, marshal(ssh.MarshalPrivateKey(ecKey, "")), "", "does not accept the key"},
		{"none", rsaPublic, nil, "", "identity is missing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serveSSH(t, testenv.SSHConfig{Users: []ssh.PublicKey{tt.public}, Run: program(greeting2, "", 0)}, nil)
			s.config.Identity, s.config.Passphrase = tt.identity, []byte(tt.passphrase)
			r, err := dial(t.Context(), s.to(t, "/p"))
			if tt.want == "" {
				must(t, err)
				r.Close()
				return
			}
			if !errors.Is(err, wire.ErrAuth) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSSHErrors(t *testing.T) {
	s := serveSSH(t, testenv.SSHConfig{Run: program("", "fatal: '/none.git' does not appear to be a git repository", 128)}, nil)
	try := func(u *url.URL) error {
		_, err := dial(context.Background(), wire.SSH(s.config, u))
		return err
	}
	err := try(testenv.URL(t, "ssh://user:s3cret@"+s.Addr+"/none.git"))
	if e, ok := errors.AsType[*wire.Error](err); !ok || !errors.Is(err, wire.ErrNotFound) || e.Phase != wire.Advertisement || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("no repository: %v", err)
	}
	if user := s.Sessions()[0].User; user != "user" {
		t.Errorf("user %q", user)
	}
	for _, bad := range []string{"ssh://h", "ssh://h/", "ssh:///p", "http://h/p", "ssh://h/a%0ab", "ssh://h/a%00", "ssh://h/%ff", "ssh://h/a?b"} {
		if e, ok := errors.AsType[*wire.Error](try(testenv.URL(t, bad))); !ok || e.Phase != wire.Dial {
			t.Errorf("%s: %v", bad, e)
		}
	}
	s.config.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("proxy is down") }
	if e, ok := errors.AsType[*wire.Error](try(testenv.URL(t, s.Repo()))); !ok || e.Phase != wire.Dial || !strings.Contains(e.Error(), "proxy is down") {
		t.Errorf("dial: %v", e)
	}
}

// The path is one word for the shell, and cannot be an option.
func TestSSHQuoting(t *testing.T) {
	for path, want := range map[string]string{
		"/a%20b.git":       `git-upload-pack '/a b.git'`,
		"/a';touch%20x;'b": `git-upload-pack '/a'\'';touch x;'\''b'`,
		"/a!b$(c)`d`":      "git-upload-pack '/a'\\!'b$(c)`d`'",
		"/~me/a.git":       `git-upload-pack '~me/a.git'`,
		"/-u/--exec=x":     `git-upload-pack '/-u/--exec=x'`,
	} {
		s := serveSSH(t, testenv.SSHConfig{Run: program("", "", 1)}, nil)
		_, err := dial(context.Background(), s.to(t, path))
		if got := s.Sessions(); !errors.Is(err, wire.ErrProtocol) || len(got) != 1 || got[0].Command != want {
			t.Errorf("%s: %v, %v, want %s", path, got, err, want)
		}
	}
}

func TestSSHSessionErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server testenv.SSHConfig
		phase  wire.Phase
		kind   error
		want   string
	}{
		{"no channels", testenv.SSHConfig{Refuse: "channel"}, wire.Advertisement, nil, "no channels here"},
		{"no commands", testenv.SSHConfig{Refuse: "command"}, wire.Advertisement, wire.ErrRemote, "does not run git-upload-pack"},
		{"message", testenv.SSHConfig{Run: program("", "ERROR: Repository not found.\n", 1)}, wire.Advertisement, wire.ErrNotFound, "Repository not found."},
		{"long message", testenv.SSHConfig{Run: program("", strings.Repeat("\x1blong ", 10_000), 1)}, wire.Advertisement, wire.ErrRemote, "…"},
		{"no message", testenv.SSHConfig{Run: program("", "", 1)}, wire.Advertisement, wire.ErrProtocol, "ends early"},
		{"end after the greeting", testenv.SSHConfig{Run: program(greeting2, "out of memory", 1)}, wire.LsRefs, wire.ErrRemote, "out of memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := runAllPhases(t.Context(), serveSSH(t, tt.server, nil).to(t, "/p"), func(wire.Phase) {})
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Phase != tt.phase || tt.kind != nil && !errors.Is(err, tt.kind) ||
				!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

func TestKnownHosts(t *testing.T) {
	s := serveSSH(t, testenv.SSHConfig{HostKeys: []string{"rsa", "ecdsa", "ed25519"}, Run: program(greeting2, "", 0)}, nil)
	rsaKey, ecKey, edKey := text(s.HostKeys[0].PublicKey()), text(s.HostKeys[1].PublicKey()), text(s.HostKeys[2].PublicKey())
	otherKey, otherRSAKey := otherKeys(t)
	other, otherRSA := text(otherKey), text(otherRSAKey)
	host := knownhosts.Normalize(s.Addr)
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
		{"changed", host + " " + other, "known_hosts expects " + ssh.KeyAlgoED25519 + " " + ssh.FingerprintSHA256(otherKey)},
		{"revoked", "@revoked " + host + " " + edKey + "\n" + host + " " + edKey, "marks as revoked"},
		{"revoked only", "@revoked * " + edKey, "marks as revoked"},
		{"authority", "@cert-authority " + host + " " + other, "host certificates are not supported"},
		{"lonely marker", "@revoked\n" + host + " " + other, "line 1"},
		{"unknown marker", "@what " + host + " " + edKey, "known_hosts has no key of this host"},
		{"wrong type", host + " " + strings.Replace(edKey, "ssh-ed25519", "ssh-rsa", 1), "no key can be read in line 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s.config.KnownHosts = []byte(tt.known)
			r, err := dial(t.Context(), s.to(t, "/p"))
			if tt.want == "" {
				must(t, err)
				r.Close()
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

// A server without a key of the known types shows another key, which the error names.
func TestHostKeyOfOtherType(t *testing.T) {
	s := serveSSH(t, testenv.SSHConfig{HostKeys: []string{"ecdsa"}}, nil)
	_, known := otherKeys(t)
	s.config.KnownHosts = []byte(knownhosts.Line([]string{s.Addr}, known))
	_, err := dial(t.Context(), s.to(t, "/p"))
	e, ok := errors.AsType[*wire.HostKeyError](err)
	if !ok {
		t.Fatal(err)
	}
	want := ssh.FingerprintSHA256(s.HostKeys[0].PublicKey())
	if e.Offered != "ecdsa-sha2-nistp256 "+want || len(e.Expected) != 1 || e.Expected[0] != "ssh-rsa "+ssh.FingerprintSHA256(known) ||
		!strings.Contains(err.Error(), `add a line "`+e.Host+` ecdsa-sha2-nistp256 KEY"`) {
		t.Errorf("%v", err)
	}
}

func text(key ssh.PublicKey) string {
	return key.Type() + " " + base64.StdEncoding.EncodeToString(key.Marshal())
}

// otherKeys returns keys that no server has.
func otherKeys(t *testing.T) (ed25519, rsa ssh.PublicKey) {
	_, ed25519 = testenv.UserKey(t, "")
	rsa, err := ssh.NewPublicKey(rsaKey().Public())
	must(t, err)
	return ed25519, rsa
}

func TestLFSGrant(t *testing.T) {
	for name, row := range map[string]struct {
		server testenv.SSHConfig
		want   string
		err    error
		say    string
	}{
		"answer":         {testenv.SSHConfig{Run: program(`{"href":"x"}`, "a warning", 0)}, `{"href":"x"}`, nil, ""},
		"no program":     {testenv.SSHConfig{Run: program("", "sh: git-lfs-authenticate:\x1b[1m command not found\n", 127)}, "", wire.ErrUnsupported, "git-lfs-authenticate: sh: git-lfs-authenticate:"},
		"refused":        {testenv.SSHConfig{Run: program("{}", "fatal: DENIED", 1)}, "", wire.ErrUnsupported, "DENIED"},
		"too long":       {testenv.SSHConfig{Run: program(strings.Repeat("x", 64<<10+1), "", 0)}, "", wire.ErrLimit, "more than 65536 bytes"},
		"no command":     {testenv.SSHConfig{Refuse: "command"}, "", wire.ErrUnsupported, "does not run git-lfs-authenticate"},
		"no channel":     {testenv.SSHConfig{Refuse: "channel"}, "", nil, "no channels here"},
		"no exit":        {testenv.SSHConfig{Run: hangUp("{}")}, "{}", nil, ""},
		"nothing":        {testenv.SSHConfig{Run: hangUp("")}, "", wire.ErrUnsupported, ""},
		"cut complaint":  {testenv.SSHConfig{Run: program("", strings.Repeat("c ", 508)+"part-of-a-secret", 1)}, "", wire.ErrUnsupported, "c c…"},
		"long complaint": {testenv.SSHConfig{Run: program("", strings.Repeat("complaint ", 10_000), 1)}, "", wire.ErrUnsupported, "…"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serveSSH(t, row.server, nil)
			got, err := wire.LFSGrant(t.Context(), s.to(t, "/repo.git"))
			if row.want == "" && row.say == "" && err == nil || row.say != "" && (err == nil || !strings.Contains(err.Error(), row.say)) || row.err != nil && !errors.Is(err, row.err) {
				t.Fatalf("%q, %v; want %v, %s", got, err, row.err, row.say)
			}
			if err == nil && string(got) != row.want {
				t.Errorf("%q", got)
			}
			if err != nil {
				checkError(t, err)
			}
			if got := s.Sessions(); row.server.Refuse != "channel" && (len(got) != 1 || got[0].Command != "git-lfs-authenticate '/repo.git' download") {
				t.Errorf("sessions %q", got)
			}
		})
	}
}

// hangUp returns a program that ends without an exit status.
func hangUp(out string) func(ssh.Channel) uint32 {
	return func(ch ssh.Channel) uint32 {
		io.WriteString(ch, out)
		ch.Close()
		return 0
	}
}

// checkError checks that an error names its phase and has no control characters.
func checkError(t *testing.T, err error) {
	t.Helper()
	e, ok := errors.AsType[*wire.Error](err)
	if !ok || e.Phase != wire.LFS || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("the error is %#v: %v", e, err)
	}
}

func TestLFSGrantNeedsSSH(t *testing.T) {
	_, err := wire.LFSGrant(t.Context(), wire.HTTP(http.DefaultClient, testenv.URL(t, "http://127.0.0.1/repo.git")))
	if !errors.Is(err, wire.ErrUnsupported) {
		t.Errorf("%v", err)
	}
	_, err = wire.LFSGrant(t.Context(), wire.SSH(wire.SSHConfig{}, testenv.URL(t, "ssh://127.0.0.1/")))
	if err == nil || !strings.Contains(err.Error(), "ssh://[USER@]HOST") {
		t.Errorf("%v", err)
	}
	_, err = wire.LFSGrant(t.Context(), serveSSH(t, testenv.SSHConfig{Users: []ssh.PublicKey{}}, nil).to(t, "/repo.git"))
	if !errors.Is(err, wire.ErrAuth) {
		t.Errorf("%v", err)
	}
}

// If a server stalls, LFSGrant ends with the context; with a context that has ended
// it sends nothing.
func TestLFSGrantStalls(t *testing.T) {
	began, done := make(chan struct{}), make(chan struct{})
	defer close(done)
	enough := errors.New("enough")
	for name, s := range map[string]testenv.SSHConfig{
		"before the session": {Ignore: func() { began <- struct{}{} }},
		"in the answer": {Run: func(ch ssh.Channel) uint32 {
			io.WriteString(ch, "{")
			began <- struct{}{}
			<-done
			return 0
		}},
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		to := serveSSH(t, s, nil).to(t, "/repo.git")
		go func() { <-began; cancel(enough) }()
		if _, err := wire.LFSGrant(ctx, to); !errors.Is(err, enough) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
