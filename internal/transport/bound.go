package transport

import (
	"net/http"
	"net/url"

	"github.com/headgate-io/headgate/internal/origin"
)

// A bound round tripper shows its credentials to one origin only.
type bound struct {
	origin  string
	header  string          // value of Authorization, "" for none
	own     *http.Transport // for the origin
	foreign *http.Transport // for everybody else: without the client certificate
	proxied func(*http.Request) (*url.URL, error)
	refused func()
}

func newBound(c Config) *bound {
	b := &bound{proxied: c.Proxy}
	if c.Origin != nil {
		clean, auth := SplitUser(c.Origin)
		if c.Auth != (Auth{}) {
			auth = c.Auth
		}
		b.origin, b.header = origin.Of(clean), auth.Header()
		c.Origin = clean
	}
	if b.header != "" {
		b.refused = c.Refused
	}
	b.foreign = transport(c, false)
	b.own = b.foreign
	if c.Origin != nil && c.TLS != nil && len(c.TLS.Certificates) > 0 {
		b.own = transport(c, true)
	}
	return b
}

// RoundTrip implements [http.RoundTripper].
func (b *bound) RoundTrip(req *http.Request) (*http.Response, error) {
	t, mine := b.foreign, b.mine(req)
	if mine {
		t = b.own
		if b.header != "" {
			req = req.Clone(req.Context())
			req.Header.Set("Authorization", b.header)
		}
	}
	resp, err := t.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired && b.proxied != nil {
		proxy, _ := b.proxied(req)
		if proxy != nil {
			resp.Body.Close()
			return nil, &ProxyError{proxy.Scheme + "://" + proxy.Host, resp.StatusCode}
		}
	}
	if err == nil && mine && b.refused != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		b.refused()
	}
	return resp, err
}

// mine reports whether req goes to the bound origin and no redirect led it through another.
func (b *bound) mine(req *http.Request) bool {
	for r := req; ; r = r.Response.Request {
		if b.origin == "" || origin.Of(r.URL) != b.origin {
			return false
		}
		if r.Response == nil || r.Response.Request == nil {
			return true
		}
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections].
func (b *bound) CloseIdleConnections() {
	b.own.CloseIdleConnections()
	b.foreign.CloseIdleConnections()
}

// SameOrigin reports whether a and b have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool { return origin.Of(a) == origin.Of(b) }
