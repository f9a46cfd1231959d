package transport

import (
	"net/http"
	"net/url"
	"sync"

	"github.com/headgate-io/headgate/internal/origin"
)

// A bound round tripper shows its credentials to one origin only.
type bound struct {
	way     Config
	origin  string
	header  string                           // value of Authorization, "" for none
	shared  *http.Transport                  // for the origin, with connections of others too; nil: there are none
	own     func() *http.Transport           // for the origin, with the client certificate; nil: it has none
	foreign [Link + 1]func() *http.Transport // for everybody else, by how far those lead that redirected there
	refused func()

	mu     sync.Mutex
	opened []*http.Transport // by own and foreign
}

func newBound(c Config) *bound {
	b := &bound{}
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
	if c.Fence == nil && c.Origin != nil {
		c.Fence = NewFence(c.Origin, nil)
	}
	b.way = c
	for zone := range b.foreign {
		b.foreign[zone] = b.once(false)
	}
	if c.presents() {
		b.own = b.once(true)
	}
	if c.reuses() {
		b.shared = c.shared()
	}
	return b
}

// once returns what makes a transport when it is needed first.
func (b *bound) once(own bool) func() *http.Transport {
	return sync.OnceValue(func() *http.Transport {
		t := transport(b.way, own)
		b.mu.Lock()
		defer b.mu.Unlock()
		b.opened = append(b.opened, t)
		return t
	})
}

// to returns who sends req, which is at s, and req as it is to be sent. A
// connection that was allowed to one sender is used for no other.
func (b *bound) to(req *http.Request, s *step, mine bool) (*http.Transport, *http.Request) {
	if mine && b.header != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", b.header)
	}
	switch {
	case mine && b.shared != nil:
		return b.shared, req
	case mine && b.own != nil:
		return b.own(), req
	case mine:
		return b.foreign[Link](), req
	}
	return b.foreign[s.sent.zone](), req
}

// RoundTrip implements [http.RoundTripper].
func (b *bound) RoundTrip(req *http.Request) (*http.Response, error) {
	s, stepped, err := b.way.step(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	mine := b.mine(req)
	t, req := b.to(stepped, s, mine)
	resp, err := t.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired && s.proxy != nil {
		resp.Body.Close()
		return nil, &ProxyError{s.proxy.Scheme + "://" + s.proxy.Host, resp.StatusCode}
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

// CloseIdleConnections is called by [http.Client.CloseIdleConnections]. What
// others use as well stays open.
func (b *bound) CloseIdleConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.opened {
		t.CloseIdleConnections()
	}
}

// SameOrigin reports whether a and b have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool { return origin.Of(a) == origin.Of(b) }
