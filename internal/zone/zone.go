// Package zone tells from where an address can be reached, so that a server outside a
// network cannot lead us to services inside.
package zone

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
)

// A Zone says from where an address can be reached. Services in a narrow zone often trust
// every client in it, so a server in a wider one must not be able to lead us to them.
type Zone int

const (
	Public Zone = iota // from everywhere
	Site               // from one network: private and shared addresses (RFC 1918, 4193, 6598)
	Link               // from this machine or link: loopback, link-local, unspecified, metadata services of clouds
)

// shared is the address space of carrier-grade NAT (RFC 6598).
var shared = netip.MustParsePrefix("100.64.0.0/10")

// embedded are the spaces of IPv6 addresses that contain IPv4 addresses, which begin at
// byte at.
var embedded = []struct {
	space netip.Prefix
	at    int
	zone  Zone // the widest zone of such an address
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12, Public}, // NAT64 (RFC 6052 section 2.1)
	{netip.MustParsePrefix("64:ff9b:1::/48"), 12, Site}, // NAT64 of one network (RFC 8215)
	{netip.MustParsePrefix("2002::/16"), 2, Public},     // 6to4 (RFC 3056)
}

// metadataNetworks are the networks of the services that give machines in clouds their metadata,
// including credentials.
var metadataNetworks = []netip.Prefix{
	netip.MustParsePrefix("169.254.169.0/24"),    // most of them
	netip.MustParsePrefix("169.254.170.0/24"),    // AWS, for containers
	netip.MustParsePrefix("169.254.0.23/32"),     // Tencent
	netip.MustParsePrefix("169.254.42.42/32"),    // Scaleway
	netip.MustParsePrefix("fe80::a9fe:a9fe/128"), // OpenStack
	netip.MustParsePrefix("fd00:ec2::/32"),       // AWS
	netip.MustParsePrefix("fd20:ce::254/128"),    // Google
	netip.MustParsePrefix("fd00:42::42/128"),     // Scaleway
	netip.MustParsePrefix("168.63.129.16/32"),    // Azure
	netip.MustParsePrefix("192.0.0.192/32"),      // Oracle
	netip.MustParsePrefix("100.100.100.200/32"),  // Alibaba
}

// metadataNames are the names of such services, for requests through a proxy that looks
// names up.
var metadataNames = map[string]bool{
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true, "metadata.tencentyun.com": true,
	"instance-data": true, "instance-data.ec2.internal": true,
}

// NormalizeAddr returns the IPv4 address that ip contains, or else ip, without the name of a link.
func NormalizeAddr(ip netip.Addr) netip.Addr {
	ip = ip.Unmap().WithZone("")
	for _, e := range embedded {
		if e.space.Contains(ip) {
			addr16 := ip.As16()
			return netip.AddrFrom4([4]byte(addr16[e.at:]))
		}
	}
	return ip
}

// Of returns the zone of ip.
func Of(ip netip.Addr) Zone {
	widest := Public
	for _, e := range embedded {
		if e.space.Contains(ip.WithZone("")) {
			widest = e.zone
		}
	}
	switch ip = NormalizeAddr(ip); {
	case ip.IsLoopback(), ip.IsLinkLocalUnicast(), ip.IsLinkLocalMulticast(), ip.IsUnspecified(), IsMetadata(ip):
		return Link
	case ip.IsPrivate(), shared.Contains(ip):
		return Site
	}
	return widest
}

// IsMetadata reports whether ip is an address of a metadata service.
func IsMetadata(ip netip.Addr) bool {
	ip = NormalizeAddr(ip)
	for _, network := range metadataNetworks {
		if network.Contains(ip) {
			return true
		}
	}
	return false
}

// IsMetadataHost reports the same for a host, as far as its spelling shows it.
func IsMetadataHost(host string) bool {
	if ip, ok := Literal(host); ok {
		return IsMetadata(ip)
	}
	return metadataNames[NormalizeHost(host)]
}

// OfHost returns the zone of the host of u, as far as its spelling shows it.
func OfHost(u *url.URL) Zone {
	if ip, ok := Literal(u.Hostname()); ok {
		return Of(ip)
	}
	host := NormalizeHost(u.Hostname())
	if host == "localhost" || strings.HasSuffix(host, ".localhost") || metadataNames[host] {
		return Link
	}
	return Public
}

// NormalizeHost returns host in a spelling that can be compared.
func NormalizeHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// Literal returns the address that host spells, also in the forms of inet_aton(3), which
// resolvers accept: 2130706433 and 0x7f.1 are 127.0.0.1.
func Literal(host string) (ip netip.Addr, ok bool) {
	host = NormalizeHost(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip, true
	}
	parts := strings.Split(host, ".")
	var sum uint64
	for i, part := range parts {
		bits := 8
		if i == len(parts)-1 {
			bits = 8 * (5 - len(parts))
		}
		n, err := strconv.ParseUint(part, 0, 32)
		if len(parts) > 4 || err != nil || n>>bits != 0 {
			return ip, false
		}
		sum = sum<<bits | n
	}
	return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(sum)))), true
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
