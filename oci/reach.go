package oci

import (
	"fmt"
	"net/netip"
	"net/url"

	"github.com/headgate-io/headgate/internal/transport"
)

// A registry can send us anywhere: by a redirect, to its token service, to the
// next page. What is in a narrower network than the registry it cannot reach
// itself, and must not reach through us.

// reach returns c with whom it may connect to: the registry, wherever it is, and
// others not in a narrower zone than the registry or limit; what c.MayDial refuses
// stays refused. A proxy looks up names itself; with one, what the host is called
// has to do.
func (g *gate) reach(c transport.Config, limit transport.Zone) transport.Config {
	own := c.MayDial
	c.MayDial = func(host string, ip netip.Addr) error {
		if own != nil {
			if err := own(host, ip); err != nil {
				return err
			}
		}
		if err := g.judge(host, transport.ZoneOf(ip), limit); err != nil {
			return fmt.Errorf("address %s: %w", ip, err)
		}
		return nil
	}
	c.MayAsk = func(u *url.URL) error { return g.judge(u.Hostname(), transport.ZoneOfHost(u), limit) }
	return c
}

// judge returns an error when host, which is in the zone, is not to be asked.
func (g *gate) judge(host string, zone, limit transport.Zone) error {
	if g.fence.Is(host) {
		g.fence.Found(zone)
		return nil
	}
	if own, _ := g.fence.Zone(); zone <= max(limit, own) || g.keys.chain.names(host) {
		return nil
	}
	return fmt.Errorf("%s has %s, to which registry %s may not send us: if that is right, add an entry for %s to the dockerconfigjson of the Secret",
		host, zone, g.registry.Host, host)
}
