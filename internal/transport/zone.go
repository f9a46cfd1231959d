package transport

import (
	"net/netip"
	"net/url"

	"github.com/headgate-io/headgate/internal/zone"
)

// A Zone says from where an address can be reached.
type Zone = zone.Zone

// The zones, from the widest to the narrowest.
const (
	Public = zone.Public
	Site   = zone.Site
	Link   = zone.Link
)

// ZoneOf returns the zone of ip.
func ZoneOf(ip netip.Addr) Zone { return zone.Of(ip) }

// ZoneOfHost returns the zone of the host of u as far as its spelling tells.
func ZoneOfHost(u *url.URL) Zone { return zone.OfHost(u) }
