package source

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/zone"
)

// Networks are the hosts and networks that any server may lead to, by a redirect
// or in what it serves, though they are in a narrower network than the server
// itself. Metadata services of clouds are in none of them. A nil one is empty.
type Networks struct {
	names    []string
	networks []netip.Prefix
}

// ParseNetworks reads names of hosts (without a port; a name stands for all its
// addresses), addresses, and networks as 10.0.0.0/8. Errors name the text that
// is none, or that stands for nothing but a metadata service.
func ParseNetworks(texts ...string) (*Networks, error) {
	n := new(Networks)
	for _, text := range texts {
		text = strings.TrimSpace(text)
		network, err := netip.ParsePrefix(text)
		if ip, literal := zone.Literal(strings.Trim(text, "[]")); literal {
			ip = zone.Plain(ip)
			network, err = netip.PrefixFrom(ip, ip.BitLen()), nil
		}
		switch {
		case err == nil && zone.Metadata(network.Addr()) && network.IsSingleIP(), err != nil && zone.MetadataHost(text):
			return nil, fmt.Errorf("%q is a metadata service, which nothing opens", text)
		case err == nil && network.Addr().Is4In6():
			return nil, fmt.Errorf("%q: write networks of IPv4 as 10.0.0.0/8", text)
		case err == nil:
			n.networks = append(n.networks, network.Masked())
		case text == "" || strings.ContainsAny(text, "/:@*? ,"):
			return nil, fmt.Errorf("%q: want the name of a host without scheme and port, an address, or a network as 10.0.0.0/8", text)
		default:
			n.names = append(n.names, zone.Name(text))
		}
	}
	return n, nil
}

// Allow reports whether the host, which is reached at ip, is one of n; the zero
// ip is for an address that is not known.
func (n *Networks) Allow(host string, ip netip.Addr) bool {
	if n == nil || zone.MetadataHost(host) || ip.IsValid() && zone.Metadata(ip) {
		return false
	}
	return slices.Contains(n.names, zone.Name(host)) || ip.IsValid() && slices.ContainsFunc(n.networks, func(network netip.Prefix) bool {
		return network.Contains(zone.Plain(ip)) || network.Contains(ip.WithZone(""))
	})
}
