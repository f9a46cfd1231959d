package transport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
)

// proxyCases are the proxies that every client goes through.
func proxyCases(ca *testenv.CA) []testenv.Proxy {
	return []testenv.Proxy{
		{Scheme: "http"},
		{Scheme: "http", Username: "pat", Password: "p:w"},
		{Scheme: "https", CA: ca},
		{Scheme: "https", CA: ca, Username: "pat", Password: "p:w"},
		{Scheme: "socks5"},
		{Scheme: "socks5", Username: "pat", Password: "p:w"},
	}
}

func proxyName(c testenv.Proxy) string {
	if c.Username != "" {
		return c.Scheme + " with credentials"
	}
	return c.Scheme
}

// use returns the proxy that a Secret with these credentials names.
func use(t *testing.T, s *testenv.ProxyServer, user, password string, c *tls.Config) *transport.Proxy {
	t.Helper()
	p, err := transport.ProxyFromSecret("default/proxy", secret("address", s.URL, "username", user, "password", password), c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClientGoesThroughProxy(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	trust, err := transport.CertTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range proxyCases(ca) {
		t.Run(proxyName(c), func(t *testing.T) {
			plain, secure := newHost(t, nil, ok), newHost(t, ca, ok)
			c.Hosts = map[string]string{"localhost:7": plain.Listener.Addr().String()}
			s := testenv.ServeProxy(t, c)
			p := use(t, s, c.Username, c.Password, trust)
			for url, own := range map[string]*host{plain.URL: plain, secure.URL: secure, "http://localhost:7": plain} {
				status, err := get(t, transport.Config{Origin: own.url(), TLS: trust, Proxy: p.For}, url)
				if err != nil || status != http.StatusOK {
					t.Fatalf("%s: %d, %v", url, status, err)
				}
			}
			if secure.seen() != "alice" || s.Certificates() != 0 {
				t.Errorf("origin was shown %q, proxy %d certificates", secure.seen(), s.Certificates())
			}
			seen := strings.Join(s.Seen(), " ")
			if len(s.Seen()) != 3 || !strings.Contains(seen, "localhost:7") || !strings.Contains(seen, secure.Listener.Addr().String()) {
				t.Errorf("proxy saw %q", seen)
			}
		})
	}
}

func TestProxyWantsCredentials(t *testing.T) {
	ca := testenv.NewCA(t)
	trust := &tls.Config{RootCAs: ca.Pool()}
	plain, secure := newHost(t, nil, ok), newHost(t, ca, ok)
	for _, scheme := range []string{"http", "https", "socks5"} {
		t.Run(scheme, func(t *testing.T) {
			s := testenv.ServeProxy(t, testenv.Proxy{Scheme: scheme, CA: ca, Username: "pat", Password: "right"})
			p := use(t, s, "pat", "canary", trust)
			for _, url := range []string{plain.URL, secure.URL} {
				_, err := get(t, transport.Config{TLS: trust, Proxy: p.For}, url)
				wantRefusal(t, err, scheme)
			}
			_, err := p.Dial(t.Context(), "tcp", plain.Listener.Addr().String())
			wantRefusal(t, err, scheme)
			if !slices.Equal(s.Seen(), []string{"refused", "refused", "refused"}) {
				t.Errorf("proxy saw %q", s.Seen())
			}
		})
	}
}

// wantRefusal checks that err says that the proxy wants other credentials.
func wantRefusal(t *testing.T, err error, scheme string) {
	t.Helper()
	var e *transport.ProxyError
	switch {
	case err == nil, strings.Contains(err.Error(), "canary"):
		t.Errorf("error %v", err)
	case scheme == "socks5" && !strings.Contains(err.Error(), "username/password authentication failed"):
		t.Errorf("error %v", err)
	case scheme != "socks5" && (!errors.As(err, &e) || e.Status != 407 || !strings.Contains(err.Error(), "check its username and password")):
		t.Errorf("error %v", err)
	}
}

// greeter is a server that speaks first, as ssh does.
func greeter(t *testing.T) string {
	return testenv.Listen(t, func(c net.Conn) {
		io.WriteString(c, "SSH-2.0-greeter\r\n")
		io.Copy(c, c)
	})
}

func TestDialThroughProxy(t *testing.T) {
	ca := testenv.NewCA(t)
	addr := greeter(t)
	for _, c := range proxyCases(ca) {
		t.Run(proxyName(c), func(t *testing.T) {
			c.Hosts = map[string]string{"git.example:22": addr}
			s := testenv.ServeProxy(t, c)
			p := use(t, s, c.Username, c.Password, &tls.Config{RootCAs: ca.Pool()})
			conn, err := p.Dial(t.Context(), "tcp", "git.example:22")
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			hello := make([]byte, len("SSH-2.0-greeter\r\nping"))
			io.WriteString(conn, "ping")
			if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "SSH-2.0-greeter\r\nping" {
				t.Errorf("read %q, %v", hello, err)
			}
			if seen := s.Seen(); len(seen) != 1 || !strings.HasSuffix(seen[0], " git.example:22") {
				t.Errorf("proxy saw %q", seen)
			}
		})
	}
}

func TestDialFailures(t *testing.T) {
	ca := testenv.NewCA(t)
	answering := func(answer string) string {
		return "http://" + testenv.Listen(t, func(c net.Conn) {
			c.Read(make([]byte, 4096))
			io.WriteString(c, answer)
		})
	}
	closed, _ := net.Listen("tcp", "127.0.0.1:0")
	closed.Close()
	secure := testenv.ServeProxy(t, testenv.Proxy{Scheme: "https", CA: ca})
	socks := testenv.ServeProxy(t, testenv.Proxy{Scheme: "socks5"})
	for _, c := range []struct{ name, proxy, want string }{
		{"not http", answering("SSH-2.0-OpenSSH\r\n"), "malformed HTTP"},
		{"silent", answering(""), "closed the connection"},
		{"cut", answering("HTTP/1.1 200 OK\r\nX:"), "closed the connection"},
		{"endless header", answering("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), "more than 65536 bytes"},
		{"bad gateway", answering("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "answers 502 Bad Gateway"},
		{"refused", "http://" + closed.Addr().String(), "connection refused"},
		{"unknown certificate", secure.URL, "certificate signed by unknown authority"},
		{"unreachable", socks.URL, "host unreachable"},
		{"no socks", strings.Replace(answering("HTTP/1.1 400\r\n\r\n"), "http:", "socks5:", 1), "unexpected protocol version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := transport.ProxyFromSecret("default/proxy", secret("address", c.proxy), nil)
			if err != nil {
				t.Fatal(err)
			}
			conn, err := p.Dial(t.Context(), "tcp", "git.example:22")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, %v, want %q", conn, err, c.want)
			}
		})
	}
}

func TestDialObeysCancellation(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, scheme := range []string{"http", "https", "socks5"} {
		p, err := transport.ProxyFromSecret("default/proxy", secret("address", scheme+"://"+l.Addr().String()), nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			c, err := l.Accept()
			if err == nil {
				c.Read(make([]byte, 1))
				cancel()
				io.Copy(io.Discard, c)
				c.Close()
			}
		}()
		if _, err := p.Dial(ctx, "tcp", "git.example:22"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", scheme, err)
		}
		cancel()
	}
}
