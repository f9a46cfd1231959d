// Package tunnel connects through a proxy to servers that do not speak HTTP.
package tunnel

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

	"github.com/headgate-io/headgate/internal/transport"
)

const (
	dialTimeout = 30 * time.Second
	maxAnswer   = 64 << 10 // bytes of a proxy's answer to CONNECT
)

// Dial connects to addr through p, by SOCKS version 5 or by CONNECT. In both cases the proxy
// resolves the host name. Dial takes at most 30 s, or until ctx ends.
func Dial(ctx context.Context, p *transport.Proxy, network, addr string) (conn net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	u, err := p.For(nil)
	if err != nil {
		return nil, err
	}
	if u.Scheme == "socks5" {
		conn, err = dialSOCKS(ctx, u, network, addr)
	} else {
		conn, err = dialCONNECT(ctx, p, u, network, addr)
	}
	if err == nil {
		return conn, nil
	}
	if ctx.Err() != nil && !errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %v", ctx.Err(), err)
	}
	return nil, fmt.Errorf("connect to %s through proxy %s: %w", addr, p, err)
}

func dialSOCKS(ctx context.Context, u *url.URL, network, addr string) (net.Conn, error) {
	var auth *proxy.Auth
	if u.User != nil {
		auth = &proxy.Auth{User: u.User.Username()}
		auth.Password, _ = u.User.Password()
	}
	d, err := proxy.SOCKS5("tcp", u.Host, auth, &net.Dialer{})
	if err != nil {
		return nil, err
	}
	return d.(proxy.ContextDialer).DialContext(ctx, network, addr)
}

// dialCONNECT asks the proxy at u for a tunnel to addr (RFC 9110 section 9.3.6).
func dialCONNECT(ctx context.Context, p *transport.Proxy, u *url.URL, network, addr string) (conn net.Conn, err error) {
	if u.Scheme == "https" {
		conn, err = (&tls.Dialer{Config: p.TLS()}).DialContext(ctx, network, u.Host)
	} else {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, u.Host)
	}
	if err != nil {
		return nil, err
	}
	buffered, err := connect(ctx, p, u, conn, addr)
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &tunnel{conn, buffered}, nil
}

// connect sends the request and returns a reader of the bytes that follow the answer.
func connect(ctx context.Context, p *transport.Proxy, u *url.URL, conn net.Conn, addr string) (*bufio.Reader, error) {
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	req := &http.Request{Method: http.MethodConnect, URL: &url.URL{Opaque: addr}, Host: addr, Header: http.Header{}}
	if _, auth := transport.SplitUser(u); auth != (transport.Auth{}) {
		req.Header.Set("Proxy-Authorization", auth.Header())
	}
	answer := &io.LimitedReader{R: conn, N: maxAnswer}
	buffered := bufio.NewReader(answer)
	var resp *http.Response
	err := req.Write(conn)
	if err == nil {
		resp, err = http.ReadResponse(buffered, req) // no body to close: a successful CONNECT has none
	}
	if !stop() {
		return nil, ctx.Err()
	}
	switch {
	case err == nil && resp.StatusCode == http.StatusOK:
	case err == nil:
		return nil, &transport.ProxyError{Proxy: p.String(), Status: resp.StatusCode}
	case answer.N <= 0:
		return nil, fmt.Errorf("answer to CONNECT has more than %d bytes", maxAnswer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, fmt.Errorf("proxy closed the connection: %w", io.ErrUnexpectedEOF)
	default:
		return nil, err
	}
	answer.N = math.MaxInt64 // the tunnel has no limit
	return buffered, nil
}

// A tunnel is a connection whose first bytes may have been read together with the proxy's answer.
type tunnel struct {
	net.Conn
	r *bufio.Reader
}

func (t *tunnel) Read(b []byte) (int, error) { return t.r.Read(b) }
