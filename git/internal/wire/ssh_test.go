package wire_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"

	"github.com/headgate-io/headgate/git/internal/wire"
)

// An sshServer serves a repository by git upload-pack to those who have a key.
type sshServer struct {
	t        testing.TB
	dir      string
	addr     string
	keys     []ssh.Signer
	env      bool // accepts environment variables
	users    []string
	commands []string
	run      func(ch ssh.Channel, env []string) uint32 // in place of git upload-pack
	stall    chan struct{}                             // told when a session is asked for, which is then ignored
	refuse   string                                    // channel or exec
	conns    []net.Conn
	mu       sync.Mutex
}

type keyPair struct {
	pem    []byte
	signer ssh.Signer
}

// dial opens the repository and closes it with the test.
func (s *sshServer) dial(t testing.TB, cfg wire.SSHConfig) (*wire.Remote, error) {
	r, err := dial(context.Background(), wire.SSH(cfg, s.url("/repo.git")))
	if err == nil {
		t.Cleanup(r.Close)
	}
	return r, err
}

// transport starts the server and leads to it.
func (s *sshServer) transport(t testing.TB) wire.Transport {
	key := newKey(t, "ed25519")
	s.start(t, key.signer.PublicKey(), "ed25519")
	return wire.SSH(wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)}, s.url("/repo.git"))
}

func newKey(t testing.TB, kind string) keyPair {
	t.Helper()
	var key crypto.PrivateKey
	var err error
	switch kind {
	case "rsa":
		key, err = rsa.GenerateKey(rand.Reader, 2048)
	case "ecdsa":
		key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	case "ed25519":
		_, key, err = ed25519.GenerateKey(rand.Reader)
	}
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{pem.EncodeToMemory(block), signer}
}

// start serves with host keys of the kinds named, to clients with key.
func (s *sshServer) start(t testing.TB, client ssh.PublicKey, kinds ...string) *sshServer {
	t.Helper()
	s.t = t
	cfg := &ssh.ServerConfig{PublicKeyCallback: func(c ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.users = append(s.users, c.User())
		if client == nil || !bytes.Equal(key.Marshal(), client.Marshal()) {
			return nil, errors.New("no")
		}
		return nil, nil
	}}
	for _, kind := range kinds {
		key := newKey(t, kind).signer
		s.keys = append(s.keys, key)
		cfg.AddHostKey(key)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			wg.Go(func() { s.serve(c, cfg) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

func (s *sshServer) serve(c net.Conn, cfg *ssh.ServerConfig) {
	defer c.Close()
	_, channels, requests, err := ssh.NewServerConn(c, cfg)
	if err != nil {
		return
	}
	go ssh.DiscardRequests(requests)
	for n := range channels {
		if s.stall != nil { // the channel is neither accepted nor refused
			s.stall <- struct{}{}
			continue
		}
		if s.refuse == "channel" {
			n.Reject(ssh.Prohibited, "no channels here")
			continue
		}
		ch, reqs, err := n.Accept()
		if err == nil {
			go s.session(ch, reqs)
		}
	}
}

func (s *sshServer) session(ch ssh.Channel, reqs <-chan *ssh.Request) {
	env := gitEnv()
	for req := range reqs {
		switch req.Type {
		case "env":
			var v struct{ Name, Value string }
			if ssh.Unmarshal(req.Payload, &v) == nil && s.env {
				env = append(env, v.Name+"="+v.Value)
			}
		case "exec":
			var v struct{ Command string }
			ssh.Unmarshal(req.Payload, &v)
			s.mu.Lock()
			s.commands = append(s.commands, v.Command)
			s.mu.Unlock()
			if req.Reply(s.refuse == "", nil); s.refuse != "" {
				continue
			}
			go func() {
				status := s.exec(ch, v.Command, env)
				ch.SendRequest("exit-status", false, ssh.Marshal(struct{ S uint32 }{status}))
				ch.Close()
			}()
		}
	}
}

func (s *sshServer) exec(ch ssh.Channel, command string, env []string) uint32 {
	if s.run != nil {
		return s.run(ch, env)
	}
	path := strings.Trim(strings.TrimPrefix(command, "git-upload-pack "), "'")
	cmd := exec.Command("git", "upload-pack", filepath.Join(s.dir, path))
	cmd.Env, cmd.Stdout, cmd.Stderr = env, ch, ch.Stderr()
	stdin, err := cmd.StdinPipe()
	if err != nil || cmd.Start() != nil {
		return 1
	}
	go func() { io.Copy(stdin, ch); stdin.Close() }()
	if cmd.Wait() != nil {
		return 128
	}
	return 0
}

func (s *sshServer) url(path string) *url.URL { return parse(s.t, "ssh://"+s.addr+path) }

// known is the line of known_hosts for some of the server's keys.
func (s *sshServer) known(keys ...ssh.Signer) []byte {
	var b strings.Builder
	for _, k := range keys {
		fmt.Fprintln(&b, knownhosts.Line([]string{s.addr}, k.PublicKey()))
	}
	return []byte(b.String())
}

// One session serves the list of refs and the fetch.
func TestSSHOneSession(t *testing.T) {
	repo := newRepo(t)
	key := newKey(t, "ed25519")
	s := (&sshServer{dir: repo.dir, env: true}).start(t, key.signer.PublicKey(), "ed25519")
	r := open(t, wire.SSH(wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)}, s.url("/repo.git")))
	refs, err := r.Refs(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		fetch(t, r, wire.FetchRequest{Wants: ids(refs[0]), Depth: 1})
	}
	if len(s.commands) != 1 {
		t.Errorf("%d sessions, want 1", len(s.commands))
	}
}

func TestSSHIdentity(t *testing.T) {
	repo := newRepo(t)
	marshal := func(b *pem.Block, err error) []byte {
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(b)
	}
	rsaKey, _ := rsa.GenerateKey(rand.Reader, 2048)
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
			s := (&sshServer{dir: repo.dir, env: true}).start(t, tt.public, "ed25519")
			_, err := s.dial(t, wire.SSHConfig{Identity: tt.identity, Passphrase: []byte(tt.passphrase), KnownHosts: s.known(s.keys...)})
			if tt.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !errors.Is(err, wire.ErrAuth) || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "s3cret") {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestSSHErrors(t *testing.T) {
	repo := newRepo(t)
	key := newKey(t, "ed25519")
	s := (&sshServer{dir: repo.dir, env: true}).start(t, key.signer.PublicKey(), "ed25519")
	cfg := wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)}
	try := func(u *url.URL) error {
		_, err := dial(context.Background(), wire.SSH(cfg, u))
		return err
	}
	err := try(parse(t, "ssh://user:s3cret@"+s.addr+"/none.git"))
	if e, ok := errors.AsType[*wire.Error](err); !ok || !errors.Is(err, wire.ErrNotFound) || e.Phase != wire.Advertisement || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("no repository: %v", err)
	}
	if s.users[0] != "user" {
		t.Errorf("user %q", s.users[0])
	}
	for _, bad := range []string{"ssh://h", "ssh://h/", "ssh:///p", "http://h/p", "ssh://h/a%0ab", "ssh://h/a%00", "ssh://h/%ff", "ssh://h/a?b"} {
		if e, ok := errors.AsType[*wire.Error](try(parse(t, bad))); !ok || e.Phase != wire.Dial {
			t.Errorf("%s: %v", bad, e)
		}
	}
	cfg.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("proxy is down") }
	if e, ok := errors.AsType[*wire.Error](try(s.url("/repo.git"))); !ok || e.Phase != wire.Dial || !strings.Contains(e.Error(), "proxy is down") {
		t.Errorf("dial: %v", e)
	}
}

// The path is one word to a shell, and cannot be an option.
func TestSSHQuoting(t *testing.T) {
	key := newKey(t, "ed25519")
	for path, want := range map[string]string{
		"/a%20b.git":       `git-upload-pack '/a b.git'`,
		"/a';touch%20x;'b": `git-upload-pack '/a'\'';touch x;'\''b'`,
		"/a!b$(c)`d`":      "git-upload-pack '/a'\\!'b$(c)`d`'",
		"/~me/a.git":       `git-upload-pack '~me/a.git'`,
		"/-u/--exec=x":     `git-upload-pack '/-u/--exec=x'`,
	} {
		s := (&sshServer{run: func(ssh.Channel, []string) uint32 { return 1 }}).start(t, key.signer.PublicKey(), "ed25519")
		_, err := dial(context.Background(), wire.SSH(wire.SSHConfig{Identity: key.pem, KnownHosts: s.known(s.keys...)}, s.url(path)))
		if !errors.Is(err, wire.ErrProtocol) || len(s.commands) != 1 || s.commands[0] != want {
			t.Errorf("%s: %v, %v, want %s", path, s.commands, err, want)
		}
	}
}

func TestSSHSessionErrors(t *testing.T) {
	for _, tt := range []struct {
		name   string
		server *sshServer
		phase  wire.Phase
		kind   error
		want   string
	}{
		{"no channels", &sshServer{refuse: "channel"}, wire.Advertisement, nil, "no channels here"},
		{"no commands", &sshServer{refuse: "exec"}, wire.Advertisement, wire.ErrRemote, "does not run git-upload-pack"},
		{"message", &sshServer{run: says("ERROR: Repository not found.\n", "")}, wire.Advertisement, wire.ErrNotFound, "Repository not found."},
		{"long message", &sshServer{run: says(strings.Repeat("\x1blong ", 10_000), "")}, wire.Advertisement, wire.ErrRemote, "…"},
		{"no message", &sshServer{run: says("", "")}, wire.Advertisement, wire.ErrProtocol, "ends early"},
		{"end after the greeting", &sshServer{run: says("out of memory", greeting2)}, wire.LsRefs, wire.ErrRemote, "out of memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := everything(t.Context(), tt.server.transport(t), func(wire.Phase) {})
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Phase != tt.phase || tt.kind != nil && !errors.Is(err, tt.kind) ||
				!strings.Contains(err.Error(), tt.want) || len(err.Error()) > 2000 || strings.Contains(err.Error(), "\x1b") {
				t.Errorf("%v, want %v", err, tt.want)
			}
		})
	}
}

// says is a command that writes and fails.
func says(stderr, stdout string) func(ssh.Channel, []string) uint32 {
	return func(ch ssh.Channel, _ []string) uint32 {
		io.WriteString(ch, stdout)
		io.WriteString(ch.Stderr(), stderr)
		return 1
	}
}
