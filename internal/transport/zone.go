package transport

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// A Zone says from where an address can be reached. Services in a narrow zone
// often trust everybody who is in it, so that a server in a wider one must not
// be able to send us to them.
type Zone int

const (
	Public Zone = iota // from everywhere
	Site               // from one network: private and shared addresses (RFC 1918, 4193, 6598)
	Link               // from this machine or link: loopback, link-local, unspecified
)

// shared is the space behind carriers' address translation; clouds have their metadata services there.
var shared = netip.MustParsePrefix("100.64.0.0/10")

// ZoneOf returns the zone of ip.
func ZoneOf(ip netip.Addr) Zone {
	ip = ip.Unmap()
	switch {
	case ip.IsLoopback(), ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip.IsUnspecified():
		return Link
	case ip.IsPrivate(), shared.Contains(ip):
		return Site
	}
	return Public
}

// ZoneOfHost returns the zone of the host of u as far as its spelling tells.
func ZoneOfHost(u *url.URL) Zone {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return ZoneOf(ip)
	}
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return Link
	}
	return Public
}

// String describes an address of the zone.
func (z Zone) String() string {
	switch z {
	case Public:
		return "a public address"
	case Site:
		return "an address of a private network"
	case Link:
		return "an address of this machine or link"
	}
	return fmt.Sprintf("Zone(%d)", int(z))
}
