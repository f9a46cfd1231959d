package tester

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"golang.org/x/net/netutil"

	"github.com/headgate-io/headgate/rollout/tester/access"
)

// An Endpoint is the address that a test runner listens at, and what is asked
// of those who come.
type Endpoint struct {
	Addr      string        // HOST:PORT; default 127.0.0.1:8080; port 0 takes a free one
	Cert, Key string        // PEM files for TLS, both or none; read again when they change
	ClientCA  string        // PEM file; clients have to show a certificate by it
	Optional  bool          // clients without a certificate have to have a token
	Insecure  bool          // an address that others can reach needs no authentication
	MaxConns  int           // connections at a time, those beyond wait; default 10000
	Grace     time.Duration // for runs and answers when it ends; default 30 s
}

// Limits of connections.
const (
	defaultAddr    = "127.0.0.1:8080"
	defaultConns   = 10000
	defaultGrace   = 30 * time.Second
	idleTime       = 2 * time.Minute // between the requests of a connection
	maxHeaderBytes = 64 << 10
)

// ErrExposed is an address that others can reach, of a test runner that asks nobody who it is.
var ErrExposed = errors.New("others can reach it, and it asks nobody who they are")

// A Listener is where a test runner can be reached.
type Listener struct {
	URL string // as http://127.0.0.1:8080

	server   *Server
	listener net.Listener
	grace    time.Duration
	request  time.Duration // for a request to come, its head and its body
	hosts    []string      // that requests may be for; nil for any
}

// Listen begins to listen. An address that is not of this machine alone is
// refused with [ErrExposed], unless callers have to say who they are or
// e.Insecure is set. Without authentication an address of this machine answers
// only requests for this machine, or for the host of BaseURL: pages of other
// sites can make a browser come here under a name of their own.
func (s *Server) Listen(ctx context.Context, e Endpoint) (*Listener, error) {
	addr := cmp.Or(e.Addr, defaultAddr)
	config, err := e.tls(s)
	if err != nil {
		return nil, err
	}
	place, err := resolve(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", addr, err)
	}
	asks := s.Guard.Required()
	if e.ClientCA != "" && !asks {
		return nil, errors.New("client certificates are asked for, and nothing says who has them: open the guard with Certificates")
	}
	if !place.local && !asks && !e.Insecure {
		return nil, fmt.Errorf("listen at %s: %w", addr, ErrExposed)
	}
	var lc net.ListenConfig
	raw, err := lc.Listen(ctx, "tcp", place.addr)
	if err != nil {
		return nil, err
	}
	l := &Listener{server: s, grace: cmp.Or(e.Grace, defaultGrace), request: bodyTime, listener: netutil.LimitListener(raw, cmp.Or(e.MaxConns, defaultConns))}
	l.URL = "http://" + raw.Addr().String()
	if config != nil {
		l.URL = "https://" + raw.Addr().String()
		l.listener = tls.NewListener(l.listener, config)
	}
	if place.local && !asks && !e.Insecure {
		l.hosts = append([]string{place.name}, hostOf(s.BaseURL)...)
	}
	return l, nil
}

// tls returns how connections are encrypted, nil when they are not.
func (e Endpoint) tls(s *Server) (*tls.Config, error) {
	switch {
	case (e.Cert == "") != (e.Key == ""):
		return nil, errors.New("a certificate and its key go together")
	case e.ClientCA != "" && e.Cert == "":
		return nil, errors.New("certificates of clients need TLS: a certificate and its key")
	case e.Optional && e.ClientCA == "":
		return nil, errors.New("certificates of clients that may be missing need a CA")
	case e.Cert == "":
		return nil, nil
	}
	warn := func(err error) { s.logger().Error("certificates", "problem", err.Error()) }
	return access.TLS{Cert: e.Cert, Key: e.Key, ClientCA: e.ClientCA, Optional: e.Optional, Warn: warn}.Config()
}

// A place is where to listen.
type place struct {
	addr  string // with an IP address, or with none for all
	name  string // of the host, as it was given
	local bool   // nobody but this machine can reach it
}

// resolve returns the place of HOST:PORT. A name is resolved once, so that what
// was judged is what is listened at.
func resolve(ctx context.Context, addr string) (place, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return place{}, errors.New("want HOST:PORT, as 127.0.0.1:8080 or [::1]:8080")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return place{}, fmt.Errorf("port %q: want a number from 0 to 65535", port)
	}
	if host == "" {
		return place{addr: ":" + port}, nil
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		if err != nil {
			return place{}, err
		}
		if len(found) == 0 {
			return place{}, fmt.Errorf("%q has no address", host)
		}
		ip = found[0]
		for _, other := range found {
			if other.Unmap().Is4() {
				ip = other
				break
			}
		}
	}
	ip = ip.Unmap()
	return place{addr: net.JoinHostPort(ip.String(), port), name: host, local: ip.IsLoopback()}, nil
}
