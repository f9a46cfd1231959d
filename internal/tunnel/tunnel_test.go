package tunnel_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/internal/tunnel"
	"github.com/headgate-io/headgate/source"
)

// greeter is a server that speaks first, as ssh does.
func greeter(t *testing.T) string {
	return testenv.Listen(t, func(c net.Conn) {
		io.WriteString(c, "SSH-2.0-greeter\r\n")
		io.Copy(c, c)
	})
}

// proxyFor returns the proxy at an address, with a user name and a password unless they are "".
func proxyFor(t *testing.T, address, user, password string, c *tls.Config) *transport.Proxy {
	t.Helper()
	data := map[string][]byte{"address": []byte(address), "username": []byte(user), "password": []byte(password)}
	p, err := transport.ProxyFromSecret("default/proxy", source.Secret{Data: data}, c)
	must(t, err)
	return p
}

func TestDialThroughProxy(t *testing.T) {
	ca := testenv.NewCA(t)
	addr := greeter(t)
	for _, c := range []testenv.ProxyConfig{
		{Scheme: "http"}, {Scheme: "http", Username: "pat", Password: "p:w"},
		{Scheme: "https", CA: ca}, {Scheme: "https", CA: ca, Username: "pat", Password: "p:w"},
		{Scheme: "socks5"}, {Scheme: "socks5", Username: "pat", Password: "p:w"},
	} {
		t.Run(c.Scheme+c.Username, func(t *testing.T) {
			c.Hosts = map[string]string{"git.example:22": addr}
			s := testenv.ServeProxy(t, c)
			p := proxyFor(t, s.URL, c.Username, c.Password, &tls.Config{RootCAs: ca.Pool()})
			conn, err := tunnel.Dial(t.Context(), p, "tcp", "git.example:22")
			must(t, err)
			defer conn.Close()
			hello := make([]byte, len("SSH-2.0-greeter\r\nping"))
			io.WriteString(conn, "ping")
			if _, err := io.ReadFull(conn, hello); err != nil || string(hello) != "SSH-2.0-greeter\r\nping" {
				t.Errorf("read %q, %v", hello, err)
			}
			if seen := s.Requests(); len(seen) != 1 || !strings.HasSuffix(seen[0], " git.example:22") {
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
	secure := testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: "https", CA: ca})
	socks := testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: "socks5"})
	wanting := func(scheme string) string {
		return testenv.ServeProxy(t, testenv.ProxyConfig{Scheme: scheme, Username: "pat", Password: "right"}).URL
	}
	for _, c := range []struct{ name, proxy, want string }{
		{"not http", answering("SSH-2.0-OpenSSH\r\n"), "malformed HTTP"},
		{"silent", answering(""), "closed the connection"},
		{"cut", answering("HTTP/1.1 200 OK\r\nX:"), "closed the connection"},
		{"endless header", answering("HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<20)), "more than 65536 bytes"},
		{"bad gateway", answering("HTTP/1.1 502 Bad Gateway\r\n\r\n"), "answers 502 Bad Gateway"},
		{"refused", "http://127.0.0.1:1", "connection refused"},
		{"unknown certificate", secure.URL, "certificate signed by unknown authority"},
		{"other credentials", wanting("http"), "check its username and password"},
		{"other credentials for socks", wanting("socks5"), "username/password authentication failed"},
		{"unreachable", socks.URL, "host unreachable"},
		{"no socks", strings.Replace(answering("HTTP/1.1 400\r\n\r\n"), "http:", "socks5:", 1), "unexpected protocol version"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn, err := tunnel.Dial(t.Context(), proxyFor(t, c.proxy, "pat", "canary", nil), "tcp", "git.example:22")
			if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("got %v, %v, want %q", conn, err, c.want)
			}
		})
	}
}

func TestDialObeysCancellation(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	for _, scheme := range []string{"http", "https", "socks5"} {
		p := proxyFor(t, scheme+"://"+l.Addr().String(), "", "", nil)
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
		if _, err := tunnel.Dial(ctx, p, "tcp", "git.example:22"); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", scheme, err)
		}
		cancel()
	}
}

var must = testenv.Must
