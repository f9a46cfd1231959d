package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"unicode"

	"github.com/headgate-io/headgate/internal/origin"
	"github.com/headgate-io/headgate/internal/zone"
)

// originTransport is a round tripper that sends its credentials to one origin only.
type originTransport struct {
	config        Config
	origin        string
	header        string          // value of Authorization, "" for none
	hasClientCert bool            // the origin receives a client certificate
	shared        *http.Transport // for the origin, with shared connections; nil for none

	mu         sync.Mutex
	transports map[route]*http.Transport
}

// A route is how connections are made. A connection of one route is never used for another.
type route struct {
	clientCert bool // with the client certificate
	from       Zone // the widest zone of the servers that redirected
}

func newOriginTransport(c Config) *originTransport {
	b := &originTransport{transports: map[route]*http.Transport{}}
	if c.Origin != nil {
		clean, auth := SplitUser(c.Origin)
		if c.Auth != (Auth{}) {
			auth = c.Auth
		}
		b.origin, b.header = origin.Of(clean), auth.Header()
		c.Origin = clean
		if c.Guard == nil {
			c.Guard = NewNetworkGuard(clean, nil)
		}
	}
	b.config = c
	b.hasClientCert = c.Origin != nil && c.TLS != nil && len(c.TLS.Certificates) > 0
	// If another server named Origin, its connections are not shared: that others were
	// allowed to open them says nothing about this client.
	if c.Reuse != nil && c.Origin != nil && c.Guard.namedBy == nil {
		b.shared = c.sharedTransport(b.hasClientCert)
	}
	return b
}

// transportFor returns the transport that sends req, whose step is s, and the request to send.
func (b *originTransport) transportFor(req *http.Request, s *hop, toOrigin bool) (*http.Transport, *http.Request) {
	if toOrigin && b.header != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", b.header)
	}
	r := route{from: s.redirectedBy.zone}
	if toOrigin {
		if b.shared != nil {
			return b.shared, req
		}
		r = route{b.hasClientCert, Link}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.transports[r] == nil {
		b.transports[r] = newTransport(b.config, r.clientCert)
	}
	return b.transports[r], req
}

// RoundTrip implements [http.RoundTripper].
func (b *originTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	s, stepped, err := b.config.beginHop(req)
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	toOrigin := b.isForOrigin(req)
	t, req := b.transportFor(stepped, s, toOrigin)
	resp, err := t.RoundTrip(req)
	if hint := s.certHint.Load(); err != nil && hint != nil && req.Context().Err() == nil && !timedOut(err) {
		err = fmt.Errorf("%w: %s", err, *hint)
	}
	if err == nil && resp.StatusCode == http.StatusProxyAuthRequired && s.proxy != nil {
		resp.Body.Close()
		return nil, &ProxyError{s.proxy.Scheme + "://" + s.proxy.Host, resp.StatusCode}
	}
	if err == nil && toOrigin && b.header != "" && b.config.Refused != nil && (resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden) {
		b.config.Refused()
	}
	return resp, err
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// isForOrigin reports whether req goes to the bound origin and no redirect led it through another.
func (b *originTransport) isForOrigin(req *http.Request) bool {
	for r := req; ; r = r.Response.Request {
		if b.origin == "" || origin.Of(r.URL) != b.origin {
			return false
		}
		if r.Response == nil || r.Response.Request == nil {
			return true
		}
	}
}

// CloseIdleConnections is called by [http.Client.CloseIdleConnections]. Shared connections
// stay open.
func (b *originTransport) CloseIdleConnections() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range b.transports {
		t.CloseIdleConnections()
	}
}

// SameOrigin reports whether a and b have the same scheme, host and port.
func SameOrigin(a, b *url.URL) bool { return origin.Of(a) == origin.Of(b) }

// Dial and LookupNetIP are the network. Tests replace them before they use this package.
var (
	Dial        = (*net.Dialer).DialContext
	LookupNetIP = net.DefaultResolver.LookupNetIP
)

// A hop describes how one request is sent. It is in the context of the request: the dialer
// finds it there, and so do, by way of the response, the requests that redirects lead to.
type hop struct {
	config       *Config
	host         string                 // of the request
	redirectedBy redirector             // that redirected to it
	proxy        *url.URL               // proxy that the request is sent to, nil for none
	answeredZone atomic.Int64           // the zone of the server that answered
	certHint     atomic.Pointer[string] // why a server that asked for a client certificate may have ended the connection
}

// A redirector redirected a request. Its host is "" for none.
type redirector struct {
	host string
	zone Zone // the widest of all that redirected; redirects lead no further
}

type hopKey struct{}

func hopOf(ctx context.Context) *hop {
	s, _ := ctx.Value(hopKey{}).(*hop)
	return s
}

// beginHop begins a request: it chooses the proxy and, if there is one, judges the host by its
// name, since the proxy looks up the address itself.
func (c *Config) beginHop(req *http.Request) (*hop, *http.Request, error) {
	s := &hop{config: c, host: req.URL.Hostname(), redirectedBy: redirector{zone: Link}}
	for r := req; r.Response != nil && r.Response.Request != nil; r = r.Response.Request {
		if before := hopOf(r.Response.Request.Context()); before != nil {
			if at := Zone(before.answeredZone.Load()); s.redirectedBy.host == "" || at < s.redirectedBy.zone {
				s.redirectedBy = redirector{before.host, at}
			}
		}
	}
	ctx := context.WithValue(req.Context(), hopKey{}, s)
	if c.Proxy != nil {
		var err error
		if s.proxy, err = c.Proxy(req); err != nil {
			return nil, nil, err
		}
	}
	if s.proxy == nil {
		ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if at, err := netip.ParseAddrPort(info.Conn.RemoteAddr().String()); err == nil {
				s.recordZone(zone.Of(at.Addr()))
			}
		}})
		return s, req.WithContext(ctx), nil
	}
	at := zone.OfHost(req.URL)
	ip, _ := zone.Literal(s.host)
	ownHost := s.redirectedBy.host == s.host || c.Guard != nil && c.Guard.Is(s.host)
	if !ownHost && strings.ContainsFunc(s.host, func(r rune) bool { return r > unicode.MaxASCII }) {
		at = Link // the proxy gets an ASCII form of the name, which may be any
	}
	if err := s.checkZone(ctx, at, ip); err != nil {
		return nil, nil, err
	}
	s.recordZone(at)
	return s, req.WithContext(ctx), nil
}

// recordZone records the zone of the server that answered.
func (s *hop) recordZone(from Zone) {
	s.answeredZone.Store(int64(from))
	if f := s.config.Guard; f != nil && f.Is(s.host) {
		f.Found(from)
	}
}

// Proxied reports whether a request to u may be sent to a proxy.
func (c *Config) Proxied(u *url.URL) bool {
	if c.Proxy == nil {
		return false
	}
	proxy, err := c.Proxy(&http.Request{URL: u})
	return err != nil || proxy != nil
}

// checkAddress judges an address for the request that needs the connection, unless it is
// the address of a proxy. It is a ControlContext of [net.Dialer].
func checkAddress(ctx context.Context, _, address string, _ syscall.RawConn) error {
	s := hopOf(ctx)
	if s == nil || s.proxy != nil {
		return nil
	}
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	return s.checkZone(ctx, zone.Of(at.Addr()), at.Addr())
}
