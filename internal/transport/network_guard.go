package transport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"sync/atomic"

	"github.com/headgate-io/headgate/internal/zone"
)

// A NetworkGuard prevents a server, and those that it leads to, from leading into a network
// narrower than its own: the services there trust every client that reaches them, and the
// server may not be able to reach them itself. It is safe for concurrent use.
type NetworkGuard struct {
	// Opens reports whether the user allowed a host that is not in [Config.Networks], and
	// Hint says in errors how to allow it; %s stands for the host. Both may be zero.
	Opens func(host string) bool
	Hint  string

	url          *url.URL
	namedBy      *NetworkGuard // guard of the server that named this one; nil if the user named it
	answeredZone atomic.Int64
	resolvedZone atomic.Int64
}

// unknownZone is the value before a zone is known. It is wider than every zone.
const unknownZone = -1

// NewNetworkGuard returns the guard of the server at u. If from is nil, the user named the
// server, and it may be anywhere; otherwise the server of from named it.
func NewNetworkGuard(u *url.URL, from *NetworkGuard) *NetworkGuard {
	f := &NetworkGuard{url: u, namedBy: from}
	f.answeredZone.Store(unknownZone)
	f.resolvedZone.Store(unknownZone)
	return f
}

// Is reports whether host is that of the server.
func (f *NetworkGuard) Is(host string) bool {
	return zone.NormalizeHost(host) == zone.NormalizeHost(f.url.Hostname())
}

// Found records the zone of an address at which the server answered. The widest zone
// counts, because a redirect may come from any of the addresses.
func (f *NetworkGuard) Found(at Zone) {
	for {
		now := f.answeredZone.Load()
		if now != unknownZone && now <= int64(at) || f.answeredZone.CompareAndSwap(now, int64(at)) {
			return
		}
	}
}

// Zone returns the zone of the server; known is false before it answered.
func (f *NetworkGuard) Zone() (zone Zone, known bool) {
	zone = Zone(f.answeredZone.Load())
	return max(zone, Public), zone != unknownZone
}

// locate returns the zone of the server, or that of its name if it has not answered yet. A
// name that does not exist is in the widest zone.
func (f *NetworkGuard) locate(ctx context.Context, c *Config) (Zone, error) {
	if found, known := f.Zone(); known {
		return found, nil
	}
	if looked := f.resolvedZone.Load(); looked != unknownZone {
		return Zone(looked), nil
	}
	at := zone.OfHost(f.url)
	if _, literal := zone.Literal(f.url.Hostname()); !literal && at == Public && !c.Proxied(f.url) {
		all, err := LookupNetIP(ctx, "ip", f.url.Hostname())
		if missing, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !missing.IsNotFound) {
			return 0, fmt.Errorf("look up %s, to tell in which network it is: %w", f.url.Hostname(), err)
		}
		for i, ip := range all {
			if z := zone.Of(ip); i == 0 || z < at {
				at = z
			}
		}
	}
	f.resolvedZone.Store(int64(at))
	return at, nil
}

// blockingGuard returns the guard whose server must not lead into the zone to, or nil if there is
// none.
func (f *NetworkGuard) blockingGuard(ctx context.Context, c *Config, to Zone) (*NetworkGuard, error) {
	for ; f != nil && to > Public; f = f.namedBy {
		if ownZone, err := f.locate(ctx, c); err != nil || to > ownZone {
			return f, err
		}
	}
	return nil, nil
}

// A ZoneError says that a server leads into a network narrower than its own.
type ZoneError struct {
	Host     string // that gets no request
	From     string // the server that may not lead there
	Zone     Zone   // of Host
	Metadata bool   // Host is a metadata service
	hint     string
}

func (e *ZoneError) Error() string {
	if e.Metadata {
		return fmt.Sprintf("%s is a metadata service, to which %s may not send us", e.Host, e.From)
	}
	return fmt.Sprintf("%s has %s, to which %s may not send us: if that is right, allow it with --allow-network %s%s", e.Host, e.Zone, e.From, e.Host, e.hint)
}

// checkZone returns an error if the request of s must not be sent to an address in the zone to.
// ip is zero if the address is not known.
func (s *hop) checkZone(ctx context.Context, to Zone, ip netip.Addr) error {
	f, c := s.config.Guard, s.config
	from, refused := s.redirectedBy.host, to > s.redirectedBy.zone
	ownHost := f != nil && f.Is(s.host)
	if f != nil {
		by := f
		if found, known := f.Zone(); ownHost && (!known || to <= found) { // otherwise it leads to itself at another address
			by = f.namedBy
		}
		if from == "" && by != nil {
			from = by.url.Host
		}
		by, err := by.blockingGuard(ctx, c, to)
		if err != nil {
			return err
		}
		if by != nil {
			from, refused = by.url.Host, true
		}
	}
	named := s.redirectedBy.host == "" && (f == nil || ownHost && f.namedBy == nil) || s.redirectedBy.host == s.host
	if named && !refused {
		return nil
	}
	metadata := zone.IsMetadataHost(s.host) || ip.IsValid() && zone.IsMetadata(ip)
	switch {
	case metadata && !named:
		return &ZoneError{Host: s.host, From: from, Zone: to, Metadata: true}
	case !refused, c.Networks.Allow(s.host, ip), f != nil && f.Opens != nil && f.Opens(s.host):
		return nil
	}
	e := &ZoneError{Host: s.host, From: from, Zone: to, Metadata: metadata}
	if f != nil && f.Hint != "" {
		e.hint = fmt.Sprintf(f.Hint, s.host)
	}
	return e
}

// A Zone says from where an address can be reached.
type Zone = zone.Zone

// The zones, from the widest to the narrowest.
const (
	Public = zone.Public
	Site   = zone.Site
	Link   = zone.Link
)

// ZoneOfHost returns the zone of the host of u, as far as its spelling shows it.
func ZoneOfHost(u *url.URL) Zone { return zone.OfHost(u) }
