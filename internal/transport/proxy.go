package transport

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/proxy"

	"github.com/headgate-io/headgate/source"
)

const (
	maxAddress       = 2048     // bytes of a proxy's address
	maxConnectAnswer = 64 << 10 // bytes of a proxy's answer to CONNECT
)

// proxyPorts has the schemes a proxy may have, with their default ports.
var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// A Proxy is an http, https or socks5 proxy that everything goes through.
type Proxy struct {
	url *url.URL // with credentials
	tls *tls.Config
}

// ProxyFromSecret returns the proxy of a Secret named by proxySecretRef. Its
// address is a URL of at most 2048 bytes with scheme http, https or socks5;
// credentials in it give way to the keys username and password.
//
// Over https the proxy's certificate is checked with the CAs of c, which may be nil;
// a client certificate in c is not for the proxy.
func ProxyFromSecret(name string, s source.Secret, c *tls.Config) (*Proxy, error) {
	r := read(name, s)
	address, err := r.Text(keyAddress)
	if err != nil {
		return nil, err
	}
	auth, err := BasicAuth(name, s)
	if err != nil {
		return nil, err
	}
	if address == "" {
		return nil, r.Problem("address", "is missing: it is the URL of the proxy")
	}
	if len(address) > maxAddress {
		return nil, r.Problem("address", "has %d bytes, at most %d are allowed", len(address), maxAddress)
	}
	u, err := url.Parse(address) // err would print credentials
	if err != nil || u.Hostname() == "" {
		return nil, r.Problem("address", "is not a URL: it should read http://HOST:PORT")
	}
	port, ok := proxyPorts[u.Scheme]
	if !ok {
		return nil, r.Problem("address", "has the scheme %q: use http, https or socks5", u.Scheme)
	}
	if u.Port() != "" {
		port = u.Port()
	}
	user := u.User
	if auth != (Auth{}) {
		user = url.UserPassword(auth.Username, auth.Password)
	}
	host := net.JoinHostPort(u.Hostname(), port)
	return &Proxy{&url.URL{Scheme: u.Scheme, Host: host, User: user}, withoutCertificate(c, u.Hostname())}, nil
}

// withoutCertificate returns the part of c that says which servers are trusted.
func withoutCertificate(c *tls.Config, host string) *tls.Config {
	out := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if c != nil {
		out.RootCAs = c.RootCAs
	}
	return out
}

// For returns the URL of the proxy, credentials included, whatever the request: see [http.Transport.Proxy].
func (p *Proxy) For(*http.Request) (*url.URL, error) { return p.url, nil }

// String returns the proxy's URL without credentials.
func (p *Proxy) String() string { return p.url.Scheme + "://" + p.url.Host }

// A ProxyError says that a proxy did not let a connection through.
type ProxyError struct {
	Proxy  string // URL without credentials
	Status int    // of its answer; 407 means that it wants other credentials
}

func (e *ProxyError) Error() string {
	msg := fmt.Sprintf("proxy %s answers %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusProxyAuthRequired {
		msg += ": check its username and password"
	}
	return msg
}

// Dial connects to addr through the proxy: by SOCKS version 5, which resolves
// the host name too, or by CONNECT. It obeys ctx, and waits for at most 30 s without one.
func (p *Proxy) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dial := p.dialCONNECT
	if p.url.Scheme == "socks5" {
		dial = p.dialSOCKS
	}
	conn, err := dial(ctx, network, addr)
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %v", ctx.Err(), err)
	}
	return nil, fmt.Errorf("connect to %s through proxy %s: %w", addr, p, err)
}

func (p *Proxy) dialCONNECT(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := p.dialServer(ctx, network, p.url.Host)
	if err != nil {
		return nil, err
	}
	tunnel, err := p.connect(ctx, conn, addr)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return tunnel, nil
}

func (p *Proxy) dialSOCKS(ctx context.Context, network, addr string) (net.Conn, error) {
	var auth *proxy.Auth
	if p.url.User != nil {
		auth = &proxy.Auth{User: p.url.User.Username()}
		auth.Password, _ = p.url.User.Password()
	}
	d, err := proxy.SOCKS5("tcp", p.url.Host, auth, &net.Dialer{})
	if err != nil {
		return nil, err
	}
	return d.(proxy.ContextDialer).DialContext(ctx, network, addr)
}

// dialServer connects to the proxy itself.
func (p *Proxy) dialServer(ctx context.Context, network, addr string) (net.Conn, error) {
	if p.url.Scheme == "https" {
		return (&tls.Dialer{Config: p.tls}).DialContext(ctx, network, addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, addr)
}

// connect asks the proxy at the other end of conn for a tunnel to addr (RFC 9110 section 9.3.6).
func (p *Proxy) connect(ctx context.Context, conn net.Conn, addr string) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if _, auth := SplitUser(p.url); auth != (Auth{}) {
		req.Header.Set("Proxy-Authorization", auth.Header())
	}
	answer := &io.LimitedReader{R: conn, N: maxConnectAnswer}
	buffered := bufio.NewReader(answer)
	resp, err := roundTrip(req, conn, buffered)
	if !stop() {
		return nil, ctx.Err()
	}
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
	case err == nil:
		return nil, &ProxyError{p.String(), resp.StatusCode}
	case answer.N <= 0:
		return nil, fmt.Errorf("answer to CONNECT has more than %d bytes", maxConnectAnswer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("proxy closed the connection: %w", io.ErrUnexpectedEOF)
	default:
		return nil, err
	}
	answer.N = math.MaxInt64 // the tunnel has no limit
	return &tunnel{conn, buffered}, nil
}

func roundTrip(req *http.Request, w io.Writer, r *bufio.Reader) (*http.Response, error) {
	if err := req.Write(w); err != nil {
		return nil, err
	}
	return http.ReadResponse(r, req) // a body is none of the tunnel: CONNECT has none when it succeeds
}

// A tunnel is a connection of which the first bytes may have been read ahead with the proxy's answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(b []byte) (int, error) { return t.r.Read(b) }
