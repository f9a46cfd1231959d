package zone_test

import (
	"net/netip"
	"net/url"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/zone"
)

func TestZone(t *testing.T) {
	for address, want := range map[string]zone.Zone{
		"127.0.0.1": zone.Link, "127.9.9.9": zone.Link, "::1": zone.Link, "::ffff:127.0.0.1": zone.Link,
		"169.254.169.254": zone.Link, "fe80::1": zone.Link, "0.0.0.0": zone.Link, "::": zone.Link, "224.0.0.1": zone.Link,
		"100.100.100.200": zone.Link, "168.63.129.16": zone.Link, "fd00:ec2::254": zone.Link, "fd20:ce::254": zone.Link,
		"192.0.0.192": zone.Link, "64:ff9b::a9fe:a9fe": zone.Link, "64:ff9b::7f00:1": zone.Link, "::ffff:168.63.129.16": zone.Link,
		"10.1.2.3": zone.Site, "172.16.0.1": zone.Site, "192.168.1.1": zone.Site, "fd00::1": zone.Site,
		"100.64.0.1": zone.Site, "64:ff9b::a00:1": zone.Site, "::ffff:10.0.0.1": zone.Site,
		"8.8.8.8": zone.Public, "64:ff9b::808:808": zone.Public, "100.128.0.1": zone.Public, "172.32.0.1": zone.Public, "2001:4860::1": zone.Public,
	} {
		ip := netip.MustParseAddr(address)
		testenv.Equal(t, zone.Of(ip), want, address)
		u := &url.URL{Scheme: "https", Host: netip.AddrPortFrom(ip, 443).String()}
		testenv.Equal(t, zone.OfHost(u), want, u)
	}
	for host, want := range map[string]zone.Zone{
		"localhost": zone.Link, "LOCALHOST.": zone.Link, "a.localhost:80": zone.Link, "localhost.example.org": zone.Public,
	} {
		testenv.Equal(t, zone.OfHost(&url.URL{Host: host}), want, host)
	}
}

// TestSpelling checks further spellings of addresses that resolvers accept.
func TestSpelling(t *testing.T) {
	for host, want := range map[string]zone.Zone{
		"2130706433": zone.Link, "0x7f.1": zone.Link, "017700000001": zone.Link, "127.1": zone.Link, "10.1": zone.Site, "0xa9fea9fe": zone.Link, "010.0.0.1": zone.Public,
		"1.2.3.4.5": zone.Public, "4294967296": zone.Public, "256.0.0.1": zone.Public, "metadata.google.internal.": zone.Link, "METADATA": zone.Link,
	} {
		testenv.Equal(t, zone.OfHost(&url.URL{Host: host}), want, host)
	}
	for host, want := range map[string]bool{
		"169.254.169.254": true, "::ffff:169.254.169.254": true, "64:ff9b::a9fe:a9fe": true, "0xa9fea9fe": true, "fd00:ec2::254": true, "fd00:ec2::254%eth0": true,
		"metadata.goog": true, "169.254.9.9": false, "10.0.0.1": false, "fe80::1": false, "example.org": false,
	} {
		testenv.Equal(t, zone.IsMetadataHost(host), want, host)
	}
}
