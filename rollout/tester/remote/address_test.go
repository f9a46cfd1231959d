package remote_test

import (
	"strings"
	"testing"
	"testing/synctest"
)

// Which servers metadata may name.
func TestHosts(t *testing.T) {
	for _, c := range []struct {
		hosts  string
		server string
		ok     bool
	}{
		{"", "http://load.example", false},
		{"load.example", "http://load.example", true},
		{"load.example", "https://LOAD.EXAMPLE.:8443/x", true},
		{"Load.Example.", "http://load.example", true},
		{"load.example", "http://xload.example", false},
		{"load.example", "http://load.example.evil.example", false},
		{"load.example", "http://a.load.example", false},
		{"load.example:8080", "http://load.example:8080", true},
		{"load.example:8080", "http://load.example", false},
		{"load.example:80", "http://load.example", true},
		{"load.example:443", "https://load.example", true},
		{"load.example:80", "https://load.example", false},
		{"*.example", "http://load.example", true},
		{"*.example", "http://a.load.example", true},
		{"*.example", "http://example", false},
		{"*.example", "http://badexample", false},
		{"*.example:8080", "http://load.example:8080", true},
		{"*.example:8080", "http://load.example:8081", false},
		{"*.0.0.1", "http://127.0.0.1", false},
		{"10.0.0.1", "http://10.0.0.1:9000", true},
		{"10.0.0.1", "http://10.0.0.2", false},
		{"::1", "http://[::1]:80", true},
		{"[::1]:80", "http://[0:0::1]:80", true},
		{"[::1]:80", "http://[::1]:81", false},
		{"127.0.0.1", "http://[::ffff:127.0.0.1]", false},
		{"127.0.0.1", "http://2130706433", false},
		{"a,load.example,b", "http://load.example", true},
		{"load.example", "http://load.example@other.example", false},
		{"load.example", "http://other.example\\@load.example", false},
		{"load.example", "//load.example", false},
		{"load.example", "file://load.example/x", false},
		{"load.example", "http:load.example", false},
		{"load.example", "http://:80", false},
	} {
		_, s := world(t)
		if s.Hosts = nil; c.hosts != "" {
			s.Hosts = strings.Split(c.hosts, ",")
		}
		_, _, err := s.NGrinder(with(load, "server", c.server))
		if (err == nil) != c.ok {
			t.Errorf("%q for %q: %v", c.server, c.hosts, err)
		}
	}
}

// The origin of a configured base URL may be asked, for its own type.
func TestConfiguredOrigins(t *testing.T) {
	_, s := world(t)
	s.Hosts, s.LoadURL, s.ProcessURL = nil, "https://load.example/ngrinder", "http://concord.example:8001"
	for server, ok := range map[string]bool{
		"": true, "https://load.example/other": true, "https://load.example:443": true,
		"http://load.example": false, "https://load.example:444": false, "http://concord.example:8001": false,
	} {
		if _, _, err := s.NGrinder(with(load, "server", server)); (err == nil) != ok {
			t.Errorf("ngrinder, %q: %v", server, err)
		}
	}
	for server, ok := range map[string]bool{"": true, "http://concord.example:8001/x": true, "https://load.example": false} {
		if _, _, err := s.Concord(with(workflow, "server", server)); (err == nil) != ok {
			t.Errorf("concord, %q: %v", server, err)
		}
	}
}

// What a name leads to counts when a connection is made.
func TestAddresses(t *testing.T) {
	for _, c := range []struct {
		hosts, host string
		dialled     string // "" when no connection may be tried
	}{
		{"load.example", "load.example", publicIP + ":80"},
		{"metadata.example", "metadata.example", ""},
		{"mapped.example", "mapped.example", ""},
		{"six.example", "six.example", ""},
		{"both.example", "both.example", publicIP + ":80"},
		{"metadata.example,169.254.169.254", "metadata.example", ""},
		{"169.254.169.254", "169.254.169.254", "169.254.169.254:80"},
		{"[fe80::1]:80", "[fe80::1]", "[fe80::1]:80"},
		{"inside.example", "inside.example", "127.0.0.1:80"},
		{"127.0.0.1", "127.0.0.1", "127.0.0.1:80"},
		{"*.wild.example", "b.wild.example", publicIP + ":80"},
		{"*.wild.example", "a.wild.example", ""},
		{"*.wild.example,a.wild.example", "a.wild.example", "127.0.0.1:80"},
		{"nowhere.example", "nowhere.example", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			n, s := world(t)
			s.Hosts = strings.Split(c.hosts, ",")
			if c.dialled != "" {
				n.serve(t, c.dialled, newGrinder("FINISHED"))
			}
			_, err := runLoad(t, t.Context(), s, with(load, "server", "http://"+c.host+"/ngrinder"))
			if got := strings.Join(n.dialled, " "); got != c.dialled || (err == nil) != (c.dialled != "") {
				t.Errorf("%s for %s: %v, connected to %q", c.host, c.hosts, err, got)
			}
		})
	}
}
