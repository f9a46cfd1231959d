package transport_test

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate/internal/transport"
)

func TestZone(t *testing.T) {
	for address, want := range map[string]transport.Zone{
		"127.0.0.1": transport.Link, "127.9.9.9": transport.Link, "::1": transport.Link, "::ffff:127.0.0.1": transport.Link,
		"169.254.169.254": transport.Link, "fe80::1": transport.Link, "0.0.0.0": transport.Link, "::": transport.Link, "224.0.0.1": transport.Link,
		"100.100.100.200": transport.Link, "168.63.129.16": transport.Link, "fd00:ec2::254": transport.Link, "fd20:ce::254": transport.Link,
		"192.0.0.192": transport.Link, "64:ff9b::a9fe:a9fe": transport.Link, "64:ff9b::7f00:1": transport.Link, "::ffff:168.63.129.16": transport.Link,
		"10.1.2.3": transport.Site, "172.16.0.1": transport.Site, "192.168.1.1": transport.Site, "fd00::1": transport.Site,
		"100.64.0.1": transport.Site, "64:ff9b::a00:1": transport.Site, "::ffff:10.0.0.1": transport.Site,
		"8.8.8.8": transport.Public, "64:ff9b::808:808": transport.Public, "100.128.0.1": transport.Public, "172.32.0.1": transport.Public, "2001:4860::1": transport.Public,
	} {
		ip := netip.MustParseAddr(address)
		if got := transport.ZoneOf(ip); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
		u := &url.URL{Scheme: "https", Host: netip.AddrPortFrom(ip, 443).String()}
		if got := transport.ZoneOfHost(u); got != want {
			t.Errorf("%s: %s, want %s", u, got, want)
		}
	}
	for host, want := range map[string]transport.Zone{
		"localhost": transport.Link, "LOCALHOST.": transport.Link, "a.localhost:80": transport.Link, "localhost.example.org": transport.Public,
	} {
		if got := transport.ZoneOfHost(&url.URL{Host: host}); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}
