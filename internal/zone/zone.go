// Package zone tells from where an address can be reached, so that who is outside
// of a network cannot send us to what is inside.
package zone

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
	Link               // from this machine or link: loopback, link-local, unspecified, what clouds tell each machine at
)

var (
	// shared is the space behind carriers' address translation.
	shared = netip.MustParsePrefix("100.64.0.0/10")
	// translated is the space of IPv4 addresses behind NAT64 (RFC 6052 section 2.1).
	translated = netip.MustParsePrefix("64:ff9b::/96")
)

// metadata are the addresses, link-local ones aside, at which clouds tell a
// machine about itself: its credentials as well.
var metadata = map[netip.Addr]bool{
	netip.MustParseAddr("fd00:ec2::254"):   true, // AWS
	netip.MustParseAddr("168.63.129.16"):   true, // Azure
	netip.MustParseAddr("fd20:ce::254"):    true, // Google
	netip.MustParseAddr("192.0.0.192"):     true, // Oracle
	netip.MustParseAddr("100.100.100.200"): true, // Alibaba
}

// Of returns the zone of ip.
func Of(ip netip.Addr) Zone {
	if ip = ip.Unmap(); translated.Contains(ip) {
		whole := ip.As16()
		ip = netip.AddrFrom4([4]byte(whole[12:]))
	}
	switch {
	case ip.IsLoopback(), ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip.IsUnspecified(), metadata[ip]:
		return Link
	case ip.IsPrivate(), shared.Contains(ip):
		return Site
	}
	return Public
}

// OfHost returns the zone of the host of u as far as its spelling tells.
func OfHost(u *url.URL) Zone {
	host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
	if ip, err := netip.ParseAddr(host); err == nil {
		return Of(ip)
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
