package chart

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/headgate-io/headgate/internal/transport"
)

// A repository can send us anywhere, by a redirect or by the URL of a chart, and
// so can whom it names. What is in a narrower network than the repository it
// cannot reach itself, and must not reach through us.

// locate finds the zone of the repository, if it is not known: it may not have
// been asked for anything yet. A name that leads nowhere is in the widest.
func (w *web) locate(ctx context.Context) error {
	if _, known := w.fence.Zone(); known || w.free {
		return nil
	}
	host := w.at.Hostname()
	zone := transport.ZoneOfHost(w.at)
	if _, err := netip.ParseAddr(host); err == nil || zone != transport.Public {
		w.fence.Found(zone)
		return nil
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if missing, ok := errors.AsType[*net.DNSError](err); err != nil && (!ok || !missing.IsNotFound) {
		return fmt.Errorf("look up %s, to tell in which network the repository is: %w", host, err)
	}
	if len(all) == 0 {
		w.fence.Found(transport.Public)
	}
	for _, ip := range all {
		w.fence.Found(transport.ZoneOf(ip))
	}
	return nil
}

// mayDial judges the addresses that are asked on behalf of the repository: those
// of other, a server that it names, and of whom the two redirect to; other is
// nil for the repository itself.
func (w *web) mayDial(other *transport.Fence) func(host string, ip netip.Addr) error {
	return func(host string, ip netip.Addr) error {
		zone := transport.ZoneOf(ip)
		if w.fence.Is(host) {
			w.fence.Found(zone)
			return nil
		}
		limit, _ := w.fence.Zone()
		if other != nil {
			if own, known := other.Zone(); known {
				limit = min(limit, own)
			}
		}
		if zone > limit && !w.free {
			return fmt.Errorf("address %s: %s has %s, to which repository %s may not send us", ip, host, zone, w.at.Host)
		}
		if other != nil && other.Is(host) {
			other.Found(zone)
		}
		return nil
	}
}
