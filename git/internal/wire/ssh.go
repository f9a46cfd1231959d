package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"sync"
	"unicode"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/internal/redact"
)

// An SSHConfig says who we are and which servers we know.
type SSHConfig struct {
	User       string // empty: that of the URL, or else git
	Identity   []byte // private key, PEM: OpenSSH, PKCS#1, PKCS#8 or EC
	Passphrase []byte // of the private key, if it has one
	KnownHosts []byte // text as in OpenSSH's known_hosts
	// Dial connects to the server, by way of a proxy for example. Nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Algorithms in the order of preference; nil means those of golang.org/x/crypto/ssh
	// and, for host keys, Ed25519, ECDSA, and RSA with SHA-2.
	KeyExchanges, HostKeyAlgorithms []string
}

// SSH returns the transport to the repository at u: ssh://[USER@]HOST[:PORT]/PATH,
// where a PATH that starts with ~ is relative to a home directory. One connection
// serves all requests of a Remote; it does not survive the end of the context of one.
func SSH(cfg SSHConfig, u *url.URL) Transport { return &sshTransport{cfg, u} }

type sshTransport struct {
	cfg SSHConfig
	url *url.URL
}

func (t *sshTransport) String() string { return redact.URL(t.url) }

func (t *sshTransport) dial(ctx context.Context) (conn, error) {
	path, err := quotedPath(t.url)
	if err != nil {
		return nil, inPhase(Dial, err)
	}
	host := t.url.Hostname()
	hosts, err := parseKnownHosts(t.cfg.KnownHosts).of(host, port(t.url))
	if err != nil {
		return nil, inPhase(Handshake, err)
	}
	config, err := t.clientConfig(hosts)
	if err != nil {
		return nil, inPhase(Handshake, err)
	}
	dial := t.cfg.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	address := net.JoinHostPort(host, port(t.url))
	network, err := dial(ctx, "tcp", address)
	if err != nil {
		return nil, inPhase(Dial, err)
	}
	defer context.AfterFunc(ctx, func() { network.Close() })()
	c, channels, requests, err := ssh.NewClientConn(network, address, config)
	if err != nil {
		network.Close()
		return nil, inPhase(Handshake, hosts.explain(t.cfg, err))
	}
	return &sshConn{network: network, client: ssh.NewClient(c, channels, requests), command: "git-upload-pack " + path}, nil
}

func (t *sshTransport) clientConfig(hosts *hostKeys) (*ssh.ClientConfig, error) {
	config := &ssh.ClientConfig{
		User:              t.cfg.User,
		HostKeyCallback:   func(_ string, _ net.Addr, key ssh.PublicKey) error { return hosts.check(key) },
		HostKeyAlgorithms: hosts.algorithms(t.cfg.HostKeyAlgorithms),
	}
	config.KeyExchanges = t.cfg.KeyExchanges
	if config.User == "" && t.url.User != nil {
		config.User = t.url.User.Username()
	}
	if config.User == "" {
		config.User = "git"
	}
	if len(t.cfg.Identity) > 0 {
		signer, err := parseIdentity(t.cfg.Identity, t.cfg.Passphrase)
		if err != nil {
			return nil, fmt.Errorf("%w: identity: %w", ErrAuth, err)
		}
		config.Auth = []ssh.AuthMethod{ssh.PublicKeys(signer)}
	}
	return config, nil
}

// quotedPath returns the path of the repository at u as one word to the shell of
// the server, whatever characters it has.
func quotedPath(u *url.URL) (string, error) {
	if u == nil || u.Scheme != "ssh" || u.Hostname() == "" || strings.Trim(u.Path, "/") == "" || u.RawQuery != "" {
		return "", errors.New("the URL must be ssh://[USER@]HOST[:PORT]/PATH")
	}
	path := u.Path
	if strings.HasPrefix(path, "/~") {
		path = path[1:]
	}
	if strings.ContainsFunc(path, func(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }) {
		return "", errors.New("the path of the URL has control characters, or is not UTF-8")
	}
	return "'" + strings.NewReplacer("'", `'\''`, "!", `'\!'`).Replace(path) + "'", nil
}

// An sshConn runs git-upload-pack in one session after the other, in most cases
// only one: a session ends when its answer was not read to the end.
type sshConn struct {
	network net.Conn
	client  *ssh.Client
	command string
	session *sshSession
}

func (c *sshConn) ready() bool { return c.session != nil && c.session.idle }

func (c *sshConn) close() {
	c.network.Close()
	c.client.Close()
}

func (c *sshConn) greet(ctx context.Context) (stream, error) {
	defer context.AfterFunc(ctx, func() { c.network.Close() })()
	if c.session != nil {
		c.session.release(false)
	}
	s, err := c.client.NewSession()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	c.session = &sshSession{c: c, s: s, exit: sync.OnceValue(s.Wait)}
	s.Stderr = &c.session.stderr
	if c.session.stdin, err = s.StdinPipe(); err == nil {
		c.session.stdout, err = s.StdoutPipe()
	}
	if err == nil { // a server that refuses the variable answers in version 0
		_, err = s.SendRequest("env", false, ssh.Marshal(struct{ Name, Value string }{"GIT_PROTOCOL", "version=2"}))
	}
	if err == nil {
		err = s.Start(c.command)
	}
	if err != nil {
		c.session.release(false)
		return nil, fmt.Errorf("%w: the server does not run git-upload-pack: %w", ErrRemote, err)
	}
	return c.session, nil
}

func (c *sshConn) ask(ctx context.Context, body []byte) (stream, error) {
	defer context.AfterFunc(ctx, func() { c.network.Close() })()
	s := c.session
	s.idle = false
	if _, err := s.stdin.Write(body); err != nil {
		err = s.why(err)
		s.release(false)
		return nil, err
	}
	return s, nil
}

// An sshSession is one run of git-upload-pack.
type sshSession struct {
	c      *sshConn
	s      *ssh.Session
	stdin  io.WriteCloser
	stdout io.Reader
	stderr capped
	exit   func() error // waits for the end of the run; may be called again
	idle   bool         // a request can be sent
}

func (s *sshSession) Read(p []byte) (int, error) {
	n, err := s.stdout.Read(p)
	if n == 0 && err != nil {
		err = s.why(err)
	}
	return n, err
}

func (s *sshSession) abort() { s.c.network.Close() }

func (s *sshSession) release(whole bool) {
	s.idle = whole
	if !whole {
		s.s.Close()
		if s.c.session == s {
			s.c.session = nil
		}
	}
}

// why explains the end of a session by what the server said about it.
func (s *sshSession) why(err error) error {
	if s.exit() == nil {
		return err
	}
	if text := s.stderr.text(); text != "" {
		return remoteError(text)
	}
	return err
}

// A capped writer keeps the first bytes, more than are repeated. Sessions write to it while
// we read from it.
type capped struct {
	mu sync.Mutex
	b  []byte
}

func (c *capped) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b = append(c.b, p[:min(len(p), 2*maxMessage-len(c.b))]...)
	return len(p), nil
}

func (c *capped) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clean(string(c.b))
}
