// Package listen opens the door of an HTTP server: where it listens, who gets as
// far as its handler, and how it ends.
//
// # Rules
//
// An address that others can reach is refused with [ErrExposed], unless callers
// have to say who they are, or somebody insists. A host name is resolved once,
// so that what was judged is what is listened at.
//
// Where callers need not say who they are, an address of this machine answers
// only requests for this machine: pages of other sites can make a browser come
// here under a name of their own ([Listener.Local]).
//
// A request has to come in time, head and body, and its head is bounded. The
// number of connections is bounded, all of them and those of one address. A
// connection that takes nothing for 30 seconds ends, one that takes little does
// not, and files reach it by sendfile ([Listener]).
//
// Callers of the socket ([Socket]) are users of this machine that may do
// everything ([Trusted]).
package listen

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
)

// A Config says where to listen, and what is asked of those who come.
type Config struct {
	Addr       string // HOST:PORT; port 0 takes a free one
	TLS        TLS    // without Cert and Key connections are not encrypted
	Asks       bool   // callers have to say who they are
	Insecure   bool   // an address that others can reach needs no authentication
	BaseURL    string // its host is one that requests may be for, too
	MaxConns   int    // connections at a time, those beyond wait; default 10000
	PerAddress int    // connections of one address at a time, those beyond are refused; default no limit

	Patience time.Duration // with a connection that takes nothing; default that with an answer, 30 s
}

// Limits of connections.
const (
	defaultConns    = 10000
	defaultPatience = answer.Time
	idleTime        = 2 * time.Minute // between the requests of a connection
	maxHeaderBytes  = 64 << 10
	maxStreams      = 64 // requests at a time of a connection, by HTTP/2
)

// ErrExposed is an address that others can reach, of a server that asks nobody who it is.
var ErrExposed = errors.New("others can reach it, and it asks nobody who they are")

// A Listener is where a server can be reached. Its connections keep ReadFrom of
// a TCP connection, which sends files without copying them, and their writes
// fail when the other side took nothing for the Patience of the configuration.
type Listener struct {
	net.Listener
	URL string // as http://127.0.0.1:8080

	hosts []string // that requests may be for; nil for any
}

// Open begins to listen.
func Open(ctx context.Context, c Config) (*Listener, error) {
	config, err := c.TLS.config()
	if err != nil {
		return nil, err
	}
	place, err := resolve(ctx, c.Addr)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", c.Addr, err)
	}
	if c.TLS.ClientCA != "" && !c.Asks {
		return nil, errors.New("client certificates are asked for, and nothing says who has them: open the guard with Certificates")
	}
	if !place.local && !c.Asks && !c.Insecure {
		return nil, fmt.Errorf("listen at %s: %w", c.Addr, ErrExposed)
	}
	var lc net.ListenConfig
	raw, err := lc.Listen(ctx, "tcp", place.addr)
	if err != nil {
		return nil, err
	}
	bounds := bounds{conns: cmp.Or(c.MaxConns, defaultConns), perAddress: c.PerAddress, patience: cmp.Or(c.Patience, defaultPatience)}
	l := &Listener{URL: "http://" + raw.Addr().String(), Listener: bound(raw, bounds)}
	if config != nil {
		l.URL = "https://" + raw.Addr().String()
		l.Listener = tls.NewListener(l.Listener, config)
	}
	if place.local && !c.Asks && !c.Insecure {
		l.hosts = append([]string{place.name}, hostOf(c.BaseURL)...)
	}
	return l, nil
}

// hostOf returns the host of a URL, if it has one.
func hostOf(text string) []string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return nil
	}
	return []string{u.Hostname()}
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
