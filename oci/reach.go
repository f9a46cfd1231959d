package oci

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/headgate-io/headgate/internal/transport"
)

// A registry can send us anywhere: by a redirect, to its token service, to the
// next page. What is in a narrower network than the registry it cannot reach
// itself, and must not reach through us.

// notFoundYet is no zone: before the registry was found nobody sends us anywhere.
const notFoundYet = -1

// reach returns c with whom it may connect to: the registry, wherever it is, and
// others not in a narrower zone than the registry or limit. A proxy looks up
// names itself; with one, what the host is called has to do.
func (g *gate) reach(c transport.Config, limit transport.Zone) transport.Config {
	own := c.MayDial
	c.MayDial = func(host string, ip netip.Addr) error {
		if own != nil && strings.EqualFold(host, g.registry.Hostname()) {
			if err := own(host, ip); err != nil {
				return err
			}
		}
		if err := g.judge(host, transport.ZoneOf(ip), limit); err != nil {
			return fmt.Errorf("address %s: %w", ip, err)
		}
		return nil
	}
	if proxy := c.Proxy; proxy != nil {
		c.Proxy = func(req *http.Request) (*url.URL, error) {
			if err := g.judge(req.URL.Hostname(), transport.ZoneOfHost(req.URL), limit); err != nil {
				return nil, err
			}
			return proxy(req)
		}
	}
	return c
}

// judge returns an error when host, which is in the zone, is not to be asked.
func (g *gate) judge(host string, zone, limit transport.Zone) error {
	if strings.EqualFold(host, g.registry.Hostname()) {
		g.found(zone)
		return nil
	}
	if zone <= max(limit, transport.Zone(g.zone.Load())) || g.keys.chain.names(host) {
		return nil
	}
	return fmt.Errorf("%s has %s, to which registry %s may not send us: if that is right, add an entry for %s to the dockerconfigjson of the Secret",
		host, zone, g.registry.Host, host)
}

// found notes the zone of an address of the registry. The widest counts: what
// sends us elsewhere may come from any of its addresses, and a name can have
// one on this machine for nothing but to let the others pass.
func (g *gate) found(zone transport.Zone) {
	for {
		now := g.zone.Load()
		if now != notFoundYet && now <= int64(zone) || g.zone.CompareAndSwap(now, int64(zone)) {
			return
		}
	}
}
