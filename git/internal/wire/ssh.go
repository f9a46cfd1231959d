package wire

import (
	"context"
	"crypto/x509"
	"encoding/pem"
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

// An SSHConfig holds the client's key and the known keys of servers.
type SSHConfig struct {
	Identity   []byte // private key, PEM: OpenSSH, PKCS#1, PKCS#8 or EC
	Passphrase []byte // of the private key, if it has one
	KnownHosts []byte // text as in OpenSSH's known_hosts
	// Dial connects to the server, by way of a proxy for example. Nil means net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// SSH returns the transport to the repository at u: ssh://[USER@]HOST[:PORT]/PATH,
// where a PATH that starts with ~ is relative to a home directory. One connection
// serves all requests of a Remote; it is closed if the context of a request ends.
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
	hosts, err := readKnownHosts(t.cfg.KnownHosts, host, port(t.url))
	if err != nil {
		return nil, inPhase(Handshake, err)
	}
	config := &ssh.ClientConfig{User: "git", HostKeyCallback: hosts.check, HostKeyAlgorithms: hosts.algorithms()}
	if name := t.url.User.Username(); name != "" {
		config.User = name
	}
	if len(t.cfg.Identity) > 0 {
		signer, err := parseIdentity(t.cfg.Identity, t.cfg.Passphrase)
		if err != nil {
			return nil, inPhase(Handshake, fmt.Errorf("%w: identity: %w", ErrAuth, err))
		}
		config.Auth = []ssh.AuthMethod{ssh.PublicKeys(signer)}
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
		return nil, inPhase(Handshake, t.explain(err))
	}
	return &sshConn{network: network, client: ssh.NewClient(c, channels, requests), path: path}, nil
}

// explain turns the error of a handshake into one that says what to do.
func (t *sshTransport) explain(err error) error {
	if e, ok := errors.AsType[*HostKeyError](err); ok {
		return e
	}
	switch { // package ssh has no type for this error
	case !strings.Contains(err.Error(), "unable to authenticate"):
		return err
	case len(t.cfg.Identity) == 0:
		return fmt.Errorf("%w: the server wants a key: identity is missing in the Secret", ErrAuth)
	}
	return fmt.Errorf("%w: the server does not accept the key: check identity in the Secret, and the user of the URL", ErrAuth)
}

// quotedPath returns the path of the repository at u, quoted as one word for the
// shell of the server.
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

// An sshConn runs git-upload-pack in one session at a time. It starts another session
// only if an answer was not read to its end.
type sshConn struct {
	network net.Conn
	client  *ssh.Client
	path    string // quoted, see quotedPath
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
		err = s.Start("git-upload-pack " + c.path)
	}
	if err != nil {
		c.session.release(false)
		return nil, fmt.Errorf("%w: the server does not run git-upload-pack: %w", ErrRemote, err)
	}
	return c.session, nil
}

func (c *sshConn) sendRequest(ctx context.Context, body []byte) (stream, error) {
	defer context.AfterFunc(ctx, func() { c.network.Close() })()
	s := c.session
	s.idle = false
	if _, err := s.stdin.Write(body); err != nil {
		err = s.stderrError(err)
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
	stderr boundedBuffer
	exit   func() error // waits for the end of the run; may be called again
	idle   bool         // a request can be sent
}

func (s *sshSession) Read(p []byte) (int, error) {
	n, err := s.stdout.Read(p)
	if n == 0 && err != nil {
		err = s.stderrError(err)
	}
	return n, err
}

func (s *sshSession) abort() { s.c.network.Close() }

func (s *sshSession) release(complete bool) {
	s.idle = complete
	if !complete {
		s.s.Close()
		if s.c.session == s {
			s.c.session = nil
		}
	}
}

// stderrError returns the message that a failed session wrote to its standard error, or err
// if it wrote none.
func (s *sshSession) stderrError(err error) error {
	if s.exit() == nil {
		return err
	}
	if text := s.stderr.text(); text != "" {
		return remoteError(text)
	}
	return err
}

// A boundedBuffer keeps the first 2 KiB that are written to it, more than errors
// repeat. It is safe for concurrent use.
type boundedBuffer struct {
	mu sync.Mutex
	b  []byte
}

func (c *boundedBuffer) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.b = append(c.b, p[:min(len(p), 2*maxMessage-len(c.b))]...)
	return len(p), nil
}

func (c *boundedBuffer) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return clean(string(c.b))
}

// parseIdentity reads a private key. Its errors repeat nothing of the key.
func parseIdentity(key, passphrase []byte) (ssh.Signer, error) {
	raw, err := ssh.ParseRawPrivateKey(key)
	if _, ok := errors.AsType[*ssh.PassphraseMissingError](err); ok {
		if len(passphrase) == 0 {
			return nil, errors.New("the private key is encrypted: its passphrase is missing (password in the Secret)")
		}
		raw, err = ssh.ParseRawPrivateKeyWithPassphrase(key, passphrase)
		if errors.Is(err, x509.IncorrectPasswordError) {
			return nil, errors.New("the passphrase of the private key is wrong (password in the Secret)")
		}
	}
	if err != nil {
		return nil, keyFormatError(key)
	}
	signer, err := ssh.NewSignerFromKey(raw)
	if err != nil {
		return nil, fmt.Errorf("private key of type %T: use an Ed25519, ECDSA or RSA key", raw)
	}
	if s, ok := signer.(ssh.AlgorithmSigner); ok && signer.PublicKey().Type() == ssh.KeyAlgoRSA {
		return ssh.NewSignerWithAlgorithms(s, []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256})
	}
	return signer, nil
}

// keyFormatError returns an error that says why key is no private key that this package can
// read.
func keyFormatError(key []byte) error {
	if _, _, _, _, err := ssh.ParseAuthorizedKey(key); err == nil {
		return errors.New("this is a public key: the private key is needed")
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return errors.New("this is not a private key in PEM format")
	}
	return fmt.Errorf("private key of PEM type %.40q is damaged or of an unknown format: ssh-keygen -p -f FILE rewrites it", block.Type)
}

// maxGrant bounds the answer of git-lfs-authenticate, in bytes.
const maxGrant = 64 << 10

// LFSGrant runs git-lfs-authenticate for a download on the server of an [SSH]
// transport, over a connection of its own, and returns what it answers. The error
// wraps [ErrUnsupported] when the program refuses or is not there: the server does
// not tell these two apart reliably.
func LFSGrant(ctx context.Context, t Transport) (answer []byte, err error) {
	s, ok := t.(*sshTransport)
	switch {
	case ctx.Err() != nil:
		err = ctx.Err()
	case !ok:
		err = fmt.Errorf("%w: the repository is not reached over ssh", ErrUnsupported)
	default:
		answer, err = s.grant(ctx)
	}
	if err == nil {
		err = ctx.Err() // the end of ctx may have cut the answer
	}
	if err != nil {
		return nil, wrap(ctx, LFS, t.String(), err)
	}
	return answer, nil
}

func (t *sshTransport) grant(ctx context.Context) ([]byte, error) {
	dialed, err := t.dial(ctx)
	if err != nil {
		return nil, err
	}
	c := dialed.(*sshConn)
	defer c.close()
	defer context.AfterFunc(ctx, c.close)()
	session, err := c.client.NewSession()
	if err != nil {
		return nil, fmt.Errorf("session: %w", err)
	}
	defer session.Close()
	return output(session, "git-lfs-authenticate "+c.path+" download")
}

// output runs a command and returns its standard output.
func output(session *ssh.Session, command string) ([]byte, error) {
	var stderr boundedBuffer
	session.Stderr = &stderr
	out, err := session.StdoutPipe()
	if err == nil {
		err = session.Start(command)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the server does not run git-lfs-authenticate: %w", ErrUnsupported, err)
	}
	answer, err := io.ReadAll(io.LimitReader(out, maxGrant+1))
	switch {
	case err != nil:
		return nil, err
	case len(answer) > maxGrant:
		return nil, fmt.Errorf("%w: git-lfs-authenticate answers with more than %d bytes", ErrLimit, maxGrant)
	}
	err = session.Wait()
	_, failed := errors.AsType[*ssh.ExitError](err)
	_, silent := errors.AsType[*ssh.ExitMissingError](err)
	switch {
	case failed || silent && len(answer) == 0:
		return nil, fmt.Errorf("%w: git-lfs-authenticate: %s", ErrUnsupported, stderr.text())
	case silent:
		return answer, nil
	}
	return answer, err
}
