package testenv

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// ProxyConfig says how [ServeProxy] serves.
type ProxyConfig struct {
	Scheme             string // http (default), https or socks5
	CA                 *CA    // for https
	Username, Password string // required, unless both are empty

	// Hosts maps names (host:port) that only the proxy can resolve to their addresses.
	Hosts map[string]string
}

// A ProxyServer is a running proxy.
type ProxyServer struct {
	URL string // without credentials

	config    ProxyConfig
	transport *http.Transport
	mu        sync.Mutex
	requests  []string
	certs     int
	conns     map[net.Conn]bool
	closed    bool
	wg        sync.WaitGroup
}

// ServeProxy runs a proxy until the test ends.
func ServeProxy(t testing.TB, c ProxyConfig) *ProxyServer {
	t.Helper()
	p := &ProxyServer{config: c, conns: map[net.Conn]bool{}}
	p.transport = &http.Transport{}
	var stop func()
	if c.Scheme == "socks5" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		Must(t, err)
		p.URL, stop = "socks5://"+l.Addr().String(), func() { l.Close() }
		p.wg.Go(func() { p.acceptSOCKS(l) })
	} else {
		h := httptest.NewUnstartedServer(http.HandlerFunc(p.serve))
		h.Config.ErrorLog = discardLogger
		if c.Scheme == "https" {
			h.TLS = c.CA.ServerConfig(false)
			h.TLS.ClientAuth = tls.RequestClientCert // serve counts the requests that have a certificate
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

// Certificates returns how many requests had a client certificate for the proxy.
func (p *ProxyServer) Certificates() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.certs
}

// Requests returns the requests so far: "CONNECT host:port", "GET http://…",
// "SOCKS host:port", or "refused" for a request without the right credentials.
func (p *ProxyServer) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

func (p *ProxyServer) record(request string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, request)
}

// track makes the end of the test close conn. It reports false if the test has ended already.
func (p *ProxyServer) track(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	return !p.closed
}

func (p *ProxyServer) serve(w http.ResponseWriter, r *http.Request) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) > 0 {
		p.mu.Lock()
		p.certs++
		p.mu.Unlock()
	}
	sent := &http.Request{Header: http.Header{"Authorization": r.Header["Proxy-Authorization"]}}
	if !authorized(sent, p.config.Username, p.config.Password) {
		p.record("refused")
		w.Header().Set("Proxy-Authenticate", `Basic realm="testenv"`)
		w.WriteHeader(http.StatusProxyAuthRequired)
		return
	}
	if r.Method == http.MethodConnect {
		p.record("CONNECT " + r.Host)
		p.tunnel(w, r)
		return
	}
	p.record(r.Method + " " + r.URL.String())
	if to, ok := p.config.Hosts[r.URL.Host]; ok {
		r.URL.Host = to
	}
	(&httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: p.transport, ErrorLog: discardLogger}).ServeHTTP(w, r)
}

func (p *ProxyServer) tunnel(w http.ResponseWriter, r *http.Request) {
	upstream, err := p.dial(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		upstream.Close()
		return
	}
	io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	p.join(client, upstream) // nothing is buffered: clients send nothing before this answer
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
func (p *ProxyServer) join(client, upstream net.Conn) {
	defer client.Close()
	defer upstream.Close()
	if !p.track(client) || !p.track(upstream) {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(upstream, client)
		upstream.Close()
	}()
	io.Copy(client, upstream)
	client.Close()
	<-done
}

// acceptSOCKS serves SOCKS version 5 (RFC 1928) with user name and password (RFC 1929).
func (p *ProxyServer) acceptSOCKS(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		if !p.track(conn) {
			conn.Close()
			return
		}
		p.wg.Go(func() {
			defer conn.Close()
			addr, err := p.greetSOCKS(conn)
			if err != nil {
				return
			}
			p.record("SOCKS " + addr)
			upstream, err := p.dial(addr)
			if err != nil {
				conn.Write([]byte{5, 4, 0, 1, 0, 0, 0, 0, 0, 0}) // host unreachable
				return
			}
			conn.Write([]byte{5, 0, 0, 1, 127, 0, 0, 1, 0, 0})
			p.join(conn, upstream)
		})
	}
}

// greetSOCKS does the handshake and returns the address that the client requests.
func (p *ProxyServer) greetSOCKS(conn net.Conn) (addr string, err error) {
	read := func(n byte) []byte {
		b := make([]byte, n)
		if _, e := io.ReadFull(conn, b); err == nil {
			err = e
		}
		return b
	}
	read(read(2)[1]) // methods
	if p.config.Username == "" && p.config.Password == "" {
		conn.Write([]byte{5, 0})
	} else {
		conn.Write([]byte{5, 2})
		read(1) // version
		user, password := string(read(read(1)[0])), string(read(read(1)[0]))
		if !equalSecret(user, p.config.Username) || !equalSecret(password, p.config.Password) {
			p.record("refused")
			conn.Write([]byte{1, 1})
			return "", errors.New("refused")
		}
		conn.Write([]byte{1, 0})
	}
	var host string
	switch read(4)[3] { // version, command, reserved, type of address
	case 1:
		host = net.IP(read(4)).String()
	case 3:
		host = string(read(read(1)[0]))
	default:
		return "", errors.Join(err, errors.New("unknown type of address"))
	}
	port := binary.BigEndian.Uint16(read(2))
	return net.JoinHostPort(host, strconv.Itoa(int(port))), err
}
