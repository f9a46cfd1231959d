package testenv

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

// SSHConfig says how [ServeSSH] serves.
type SSHConfig struct {
	Users     []ssh.PublicKey // keys that may log in, with any user name
	HostKeys  []string        // types of host keys; default ed25519, ecdsa, rsa
	NoEnv     bool            // do not accept GIT_PROTOCOL, so that clients get version 0
	NoAnyWant bool            // in version 0, serve only tips of refs
	Grant     string          // output of git-lfs-authenticate; "" means that there is no such command

	Run    func(ssh.Channel) uint32 // answers every command in place of git; returns the exit status
	Refuse string                   // "channel" or "command": refuse every one of them
	Ignore func()                   // called for each channel, which is then neither accepted nor refused

}

// An SSHServer is a running ssh server that runs git upload-pack, may answer
// git-lfs-authenticate, and does nothing else.
type SSHServer struct {
	Addr     string // host:port
	HostKeys []ssh.Signer

	config   SSHConfig
	repos    map[string]*Repo
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
	sessions []Session
}

// A Session is one command that a client of an [SSHServer] requested.
type Session struct {
	User     string
	Command  string
	Protocol string // GIT_PROTOCOL, if accepted
}

// UserKey returns a new ed25519 key as an OpenSSH private key, encrypted unless the
// passphrase is "".
func UserKey(t testing.TB, passphrase string) (identity []byte, public ssh.PublicKey) {
	t.Helper()
	pub, priv, err := ed25519.GenerateKey(rand.Reader)
	Must(t, err)
	block, err := ssh.MarshalPrivateKey(priv, "tester")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(priv, "tester", []byte(passphrase))
	}
	Must(t, err)
	public, err = ssh.NewPublicKey(pub)
	Must(t, err)
	return pem.EncodeToMemory(block), public
}

// ServeSSH serves repositories, each by its path, over ssh until the test ends.
func ServeSSH(t testing.TB, c SSHConfig, repos map[string]*Repo) *SSHServer {
	t.Helper()
	s := &SSHServer{config: c, repos: repos}
	if c.HostKeys == nil {
		c.HostKeys = []string{"ed25519", "ecdsa", "rsa"}
	}
	config := &ssh.ServerConfig{PublicKeyCallback: s.login}
	for _, kind := range c.HostKeys {
		key := hostKey(t, kind)
		s.HostKeys = append(s.HostKeys, key)
		config.AddHostKey(key)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	s.Addr = l.Addr().String()
	s.wg.Go(func() { s.accept(l, config) })
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for _, c := range s.conns {
			c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	return s
}

// Repo returns the URL of /repo.git.
func (s *SSHServer) Repo() string { return "ssh://git@" + s.Addr + "/repo.git" }

// KnownHosts returns a known_hosts line for each host key. With hashed, it hashes the
// host names.
func (s *SSHServer) KnownHosts(hashed bool) []byte {
	var out strings.Builder
	for _, k := range s.HostKeys {
		host := knownhosts.Normalize(s.Addr)
		if hashed {
			host = knownhosts.HashHostname(host)
		}
		fmt.Fprintln(&out, knownhosts.Line([]string{host}, k.PublicKey()))
	}
	return []byte(out.String())
}

// Sessions returns the commands that were requested so far.
func (s *SSHServer) Sessions() []Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions)
}

// hostKeys are shared by all servers, because generating RSA keys is slow.
var hostKeys = map[string]func() (any, error){
	"ed25519": sync.OnceValues(func() (any, error) { _, key, err := ed25519.GenerateKey(rand.Reader); return key, err }),
	"ecdsa":   sync.OnceValues(func() (any, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }),
	"rsa":     sync.OnceValues(func() (any, error) { return rsa.GenerateKey(rand.Reader, 2048) }),
}

func hostKey(t testing.TB, kind string) ssh.Signer {
	t.Helper()
	key, err := hostKeys[kind]()
	Must(t, err)
	signer, err := ssh.NewSignerFromKey(key)
	Must(t, err)
	return signer
}

func (s *SSHServer) login(_ ssh.ConnMetadata, key ssh.PublicKey) (*ssh.Permissions, error) {
	for _, u := range s.config.Users {
		if string(u.Marshal()) == string(key.Marshal()) {
			return &ssh.Permissions{}, nil
		}
	}
	return nil, errors.New("unknown key")
}

func (s *SSHServer) accept(l net.Listener, config *ssh.ServerConfig) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.conns = append(s.conns, c)
		s.mu.Unlock()
		s.wg.Go(func() {
			defer c.Close()
			conn, channels, requests, err := ssh.NewServerConn(c, config)
			if err != nil {
				return
			}
			go ssh.DiscardRequests(requests)
			for ch := range channels {
				if s.config.Ignore != nil {
					s.config.Ignore()
					continue
				}
				s.wg.Go(func() { s.session(conn.User(), ch) })
			}
		})
	}
}

// session answers one channel: env requests, then one exec.
func (s *SSHServer) session(user string, open ssh.NewChannel) {
	if open.ChannelType() != "session" || s.config.Refuse == "channel" {
		open.Reject(ssh.Prohibited, "no channels here")
		return
	}
	ch, requests, err := open.Accept()
	if err != nil {
		return
	}
	defer ch.Close()
	session := Session{User: user}
	for r := range requests {
		var env struct{ Name, Value string }
		var exec struct{ Command string }
		switch {
		case r.Type == "env" && !s.config.NoEnv && ssh.Unmarshal(r.Payload, &env) == nil && env.Name == "GIT_PROTOCOL":
			session.Protocol = env.Value
			r.Reply(true, nil)
		case r.Type == "exec" && ssh.Unmarshal(r.Payload, &exec) == nil:
			session.Command = exec.Command
			s.mu.Lock()
			s.sessions = append(s.sessions, session)
			s.mu.Unlock()
			if r.Reply(s.config.Refuse != "command", nil); s.config.Refuse == "command" {
				continue
			}
			go ssh.DiscardRequests(requests)
			code := s.exec(session, ch)
			ch.CloseWrite()
			ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{code}))
			return
		default:
			r.Reply(false, nil)
		}
	}
}

// exec runs git upload-pack for a command and returns its exit status.
func (s *SSHServer) exec(session Session, ch ssh.Channel) uint32 {
	if s.config.Run != nil {
		return s.config.Run(ch)
	}
	if session.Command == "git-lfs-authenticate '/repo.git' download" && s.config.Grant != "" {
		io.WriteString(ch, s.config.Grant)
		return 0
	}
	path, ok := strings.CutPrefix(session.Command, "git-upload-pack ")
	repo := s.repos[strings.TrimPrefix(strings.Trim(path, "'"), "/")]
	if !ok || repo == nil {
		fmt.Fprintf(ch.Stderr(), "fatal: %q is not served here\n", session.Command)
		return 128
	}
	cmd := exec.Command("git", "upload-pack", repo.Dir)
	cmd.Env = slices.Concat(repo.env, uploadPackConfig(false, s.config.NoAnyWant), []string{"GIT_PROTOCOL=" + session.Protocol})
	cmd.Stdout, cmd.Stderr = ch, ch.Stderr()
	in, err := cmd.StdinPipe() // git may end before the client has closed its side
	if err != nil {
		return 255
	}
	go func() {
		io.Copy(in, ch) // ends when the client or the connection does
		in.Close()
	}()
	if cmd.Run() != nil {
		return 128
	}
	return 0
}
