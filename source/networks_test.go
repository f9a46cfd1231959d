package source_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestNetworks(t *testing.T) {
	n, err := source.ParseNetworks(" Git.Corp.example. ", "10.0.0.0/8", "[fd00::1]", "::ffff:192.168.1.1", "0.0.0.0/0")
	must(t, err)
	narrow, err := source.ParseNetworks("git.corp.example", "10.0.0.0/8")
	must(t, err)
	for _, row := range []struct {
		in       *source.Networks
		host, ip string
		want     bool
	}{
		{n, "git.corp.example", "127.0.0.1", true}, {n, "GIT.corp.example.", "", true}, {n, "x", "fd00::1", true}, {n, "x", "192.168.1.1", true}, {n, "x", "fd00::2", false},
		{narrow, "x", "10.9.9.9", true}, {narrow, "x", "::ffff:10.9.9.9", true}, {narrow, "x", "64:ff9b::a09:909", true}, {narrow, "x", "11.0.0.1", false}, {narrow, "x", "", false},
		{n, "git.corp.example", "169.254.169.254", false}, {n, "x", "169.254.169.254", false}, {n, "metadata.google.internal", "10.0.0.1", false}, {n, "x", "::ffff:168.63.129.16", false},
		{nil, "git.corp.example", "10.0.0.1", false},
	} {
		var ip netip.Addr
		if row.ip != "" {
			ip = netip.MustParseAddr(row.ip)
		}
		testenv.Equal(t, row.in.Allow(row.host, ip), row.want)
	}
	for text, want := range map[string]string{
		"": "want the name", "http://x": "want the name", "10.0.0.0/99": "want the name", "x:80": "want the name", "*.example": "want the name",
		"::ffff:10.0.0.0/104": "as 10.0.0.0/8", "169.254.169.254": "metadata", "169.254.169.254/32": "metadata", "metadata.google.internal": "metadata", "fd00:ec2::254": "metadata",
	} {
		if _, err := source.ParseNetworks(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
