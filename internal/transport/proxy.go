package transport

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/source"
)

const maxAddress = 2048 // bytes of a proxy's address

// proxyPorts has the supported schemes of proxies, with their default ports.
var proxyPorts = map[string]string{"http": "80", "https": "443", "socks5": "1080"}

// A Proxy is an http, https or socks5 proxy for all requests.
type Proxy struct {
	url *url.URL // with credentials
	tls *tls.Config
}

// ProxyFromSecret returns the proxy of a Secret named by proxySecretRef. Its address is a
// URL of at most 2048 bytes with scheme http, https or socks5; the keys username and
// password replace credentials in it.
//
// Over https the proxy's certificate is checked with the CAs of c, which may be nil. The
// proxy does not receive a client certificate in c.
func ProxyFromSecret(name string, s source.Secret, c *tls.Config) (*Proxy, error) {
	r := newReader(name, s)
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

// For returns the URL of the proxy, with credentials, for every request: see
// [http.Transport.Proxy].
func (p *Proxy) For(*http.Request) (*url.URL, error) { return p.url, nil }

// TLS returns the settings that say which certificates of the proxy are trusted.
func (p *Proxy) TLS() *tls.Config { return p.tls }

// String returns the proxy's URL without credentials.
func (p *Proxy) String() string { return p.url.Scheme + "://" + p.url.Host }

// A ProxyError says that a proxy refused a connection.
type ProxyError struct {
	Proxy  string // URL without credentials
	Status int    // of its response; 407 means that it wants other credentials
}

func (e *ProxyError) Error() string {
	msg := fmt.Sprintf("proxy %s answers %d %s", e.Proxy, e.Status, http.StatusText(e.Status))
	if e.Status == http.StatusProxyAuthRequired {
		msg += ": check its username and password"
	}
	return msg
}
