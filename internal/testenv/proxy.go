package testenv

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Proxy says how [ServeProxy] serves.
type Proxy struct {
	Scheme             string // http (default), https or socks5
	CA                 *CA    // for https
	Username, Password string // wanted, unless both are empty

	// Hosts gives names (host:port) that only the proxy can resolve the address they stand for.
	Hosts map[string]string
}

// A ProxyServer is a running proxy.
type ProxyServer struct {
	URL string // without credentials

	config    Proxy
	transport *http.Transport
	mu        sync.Mutex
	seen      []string
	certs     int
	conns     map[net.Conn]bool
	closed    bool
	wg        sync.WaitGroup
}

// ServeProxy runs a proxy until the test ends.
func ServeProxy(t testing.TB, c Proxy) *ProxyServer {
	t.Helper()
	p := &ProxyServer{config: c, conns: map[net.Conn]bool{}}
	p.transport = &http.Transport{}
	var stop func()
	if c.Scheme == "socks5" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		p.URL, stop = "socks5://"+l.Addr().String(), func() { l.Close() }
		p.wg.Go(func() { p.acceptSOCKS(l) })
	} else {
		h := httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
		h.Config.ErrorLog = quiet
		if c.Scheme == "https" {
			h.TLS = c.CA.ServerConfig(false)
			h.TLS.ClientAuth = tls.RequestClientCert // asks for one, and notes who shows it
			h.StartTLS()
		} else {
			h.Start()
		}
		p.URL, stop = h.URL, h.Close
	}
	t.Cleanup(func() {
		p.mu.Lock()
		p.closed = true
		for conn := range p.conns {
			conn.Close()
		}
		p.mu.Unlock()
		p.transport.CloseIdleConnections()
		stop()
		p.wg.Wait()
	})
	return p
}

// WithAuth returns the URL with credentials in it.
func (p *ProxyServer) WithAuth(user, password string) string {
	u, _ := url.Parse(p.URL)
	u.User = url.UserPassword(user, password)
	return u.String()
}

// Seen returns what passed so far: "CONNECT host:port", "GET http://…",
// "SOCKS host:port", or "refused" for each client without the right credentials.
func (p *ProxyServer) Seen() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.seen)
}

// Certificates returns how many requests came with a client certificate for the proxy.
func (p *ProxyServer) Certificates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.certs
}

func (p *ProxyServer) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = append(p.seen, what)
}

// track ends conn with the test; it reports false when the test has ended.
func (p *ProxyServer) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return !p.closed
}

func (p *ProxyServer) allowed(user, password string) bool {
	return p.config.Username == "" && p.config.Password == "" || same(user, p.config.Username) && same(password, p.config.Password)
}

func (p *ProxyServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		p.mu.Lock()
		p.certs++
		p.mu.Unlock()
	}
	sent := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	user, password, _ := sent.BasicAuth()
	if !p.allowed(user, password) {
		p.note("refused")
		w.Header().Set("Proxy-Authenticate", `Basic realm="testenv"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method == http.MethodConnect {
		p.note("CONNECT " + r.Host)
		p.tunnel(w, r)
		return
	}
	p.note(r.Method + " " + r.URL.String())
	p.forward(w, r)
}

func (p *ProxyServer) tunnel(w http.ResponseWriter, r *http.Request) {
	far, err := p.dial(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	near, buffered, err := w.(http.Hijacker).Hijack()
	if err != nil {
		far.Close()
		return
	}
	io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.join(&bufferedConn{near, buffered}, far)
}

func (p *ProxyServer) forward(w http.ResponseWriter, r *http.Request) {
	r.RequestURI = ""
	r.Header.Del("Proxy-Authorization")
	if to, ok := p.config.Hosts[r.URL.Host]; ok {
		r.URL.Host = to
	}
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	for k, v := range resp.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(resp.StatusCode)
	io.Copy(w, resp.Body)
}

func (p *ProxyServer) dial(addr string) (net.Conn, error) {
	if to, ok := p.config.Hosts[addr]; ok {
		addr = to
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	if host != "localhost" && !strings.HasPrefix(host, "127.") {
		return nil, errors.New("only loopback is reachable from here")
	}
	return net.Dial("tcp", addr)
}

// join copies both ways until one end closes.
func (p *ProxyServer) join(near, far net.Conn) {
	defer near.Close()
	defer far.Close()
	if !p.track(near) || !p.track(far) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(far, near)
		far.Close()
	}()
	io.Copy(near, far)
	near.Close()
	<-done
}

type bufferedConn struct {
	net.Conn
	r io.Reader
}

func (c *bufferedConn) Read(b []byte) (int, error) { return c.r.Read(b) }
