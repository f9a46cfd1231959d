package transport_test

import (
	"crypto/tls"
	"errors"
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
	must(t, err)
	return p
}

func TestClientGoesThroughProxy(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	trust, err := transport.CertTLS("s", secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)))
	must(t, err)
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
			if !slices.Equal(s.Seen(), []string{"refused", "refused"}) {
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
