package transport_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

func TestNetworkGuard(t *testing.T) {
	f := transport.NewNetworkGuard(&url.URL{Scheme: "https", Host: "Charts.example:8443"}, nil)
	if zone, known := f.Zone(); known || zone != transport.Public || !f.Is("charts.example.") || f.Is("other.example") {
		t.Error(zone, known)
	}
	for _, row := range []struct{ found, zone transport.Zone }{{transport.Link, transport.Link}, {transport.Site, transport.Site}, {transport.Link, transport.Site}, {transport.Public, transport.Public}} {
		f.Found(row.found)
		if zone, known := f.Zone(); !known || zone != row.zone {
			t.Errorf("%v: %v, want %v", row.found, zone, row.zone)
		}
	}
}

// urlWithHost returns the URL of h with another host name.
func urlWithHost(h *recordingServer, name string) string {
	return "http://" + name + ":" + h.url().Port()
}

// configFor is a config for the server at a URL.
func configFor(text string) transport.Config {
	u, _ := url.Parse(text)
	return transport.Config{Origin: u}
}

// TestNarrowerIsRefused: a server at a public address can lead to none of these hosts.
func TestNarrowerIsRefused(t *testing.T) {
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	narrow := testenv.PrivateHosts(t)
	target := newRecordingServer(t, nil, ok)
	for _, n := range narrow {
		from := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, urlWithHost(target, n.Host), http.StatusFound)
		})
		c := configFor(urlWithHost(from, "wide.example"))
		_, err := get(t, c, c.Origin.String())
		var refused *transport.ZoneError
		if !errors.As(err, &refused) || refused.Metadata != n.Metadata || !strings.Contains(err.Error(), "to which wide.example may not send us") && !strings.Contains(err.Error(), "to which wide.example:") {
			t.Errorf("%s: %v", n.Host, err)
		}
		if hasHint := strings.Contains(err.Error(), "--allow-network "); hasHint == n.Metadata {
			t.Errorf("%s: %v", n.Host, err)
		}
		if seen := target.seen(); seen != "" || len(target.shown) > 0 {
			t.Fatalf("%s was asked", n.Host)
		}
	}
	for _, n := range narrow { // unless the user allowed the host
		from := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, urlWithHost(target, n.Host), http.StatusFound)
		})
		for _, text := range []string{n.Host, "0.0.0.0/0,::/0"} {
			networks, err := source.ParseNetworks(strings.Split(text, ",")...)
			if n.Metadata && err != nil {
				continue
			}
			must(t, err)
			c := configFor(urlWithHost(from, "wide.example"))
			c.Networks = networks
			if _, err := get(t, c, c.Origin.String()); err == nil == n.Metadata {
				t.Errorf("%s with %s: %v", n.Host, text, err)
			}
		}
	}
}

// TestNetworkGuardOfChains checks chains of redirects.
func TestNetworkGuardOfChains(t *testing.T) {
	for name, address := range map[string]string{"wide.example": "203.0.113.7", "other.example": "203.0.113.8", "site.example": "10.0.0.7", "near.example": "10.0.0.8", "here.example": "127.0.0.1"} {
		testenv.Resolve(t, name, address)
	}
	testenv.Resolve(t, "both.example", "10.0.0.9 203.0.113.9")
	testenv.Resolve(t, "first.example", "203.0.113.9", "10.0.0.9", "169.254.169.254")
	testenv.Resolve(t, "again.example", "203.0.113.9", "10.0.0.9")
	for _, row := range []struct {
		chain string // hosts; the last one answers
		by    string // server that named the first host, "" for the user
		want  string // server that may not lead there, "" for success
	}{
		{"wide.example other.example", "", ""},
		{"site.example near.example", "", ""},
		{"site.example wide.example", "", ""},
		{"here.example site.example", "", ""},
		{"localhost 127.0.0.1", "", ""},
		{"site.example here.example", "", "site.example"},
		{"wide.example site.example", "", "wide.example"},
		{"wide.example other.example site.example", "", "wide.example"},
		{"site.example wide.example near.example", "", "wide.example"}, // the chain leaves the network and returns
		{"here.example site.example wide.example site.example", "", "wide.example"},
		{"both.example site.example", "", ""},                             // it answered at its private address
		{"first.example first.example", "", ""},                           // the open connection is used again
		{"again.example wide.example again.example", "", "again.example"}, // its address has changed by then
		{"site.example", "wide.example", "wide.example"},
		{"wide.example", "site.example", ""},
		{"near.example", "site.example", ""},
		{"near.example here.example", "site.example", "near.example"},
		{"here.example", "site.example", "site.example"},
		{"169.254.169.254", "here.example", "here.example"}, // in the same zone
		{"169.254.169.254", "", ""},
		{"169.254.169.254 169.254.169.254", "", ""},
	} {
		hosts := strings.Fields(row.chain)
		step := 0
		var server *recordingServer
		server = newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
			if step++; step < len(hosts) {
				http.Redirect(w, r, urlWithHost(server, hosts[step]), http.StatusFound)
			}
		})
		c := configFor(urlWithHost(server, hosts[0]))
		if row.by != "" {
			by, _ := url.Parse("http://" + row.by)
			c.Guard = transport.NewNetworkGuard(c.Origin, transport.NewNetworkGuard(by, nil))
		}
		_, err := get(t, c, c.Origin.String())
		var refused *transport.ZoneError
		switch {
		case row.want == "" && err != nil:
			t.Errorf("%s, named by %q: %v", row.chain, row.by, err)
		case row.want != "" && (!errors.As(err, &refused) || !strings.HasPrefix(refused.From, row.want)):
			t.Errorf("%s, named by %q: %v, want %s", row.chain, row.by, err, row.want)
		}
	}
}

// TestNetworkGuardWithoutName: a server whose name cannot be looked up can name nothing
// narrower.
func TestNetworkGuardWithoutName(t *testing.T) {
	testenv.Resolve(t, "broken.example", "")
	for name, want := range map[string]string{"gone.invalid": "may not send us", "broken.example": "look up broken.example, to tell in which network it is"} {
		target := newRecordingServer(t, nil, ok)
		c := configFor(target.URL)
		c.Guard = transport.NewNetworkGuard(c.Origin, transport.NewNetworkGuard(&url.URL{Scheme: "https", Host: name}, nil))
		if _, err := get(t, c, target.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNetworkGuardBehindProxy judges the spelling of hosts, in all forms, because a proxy
// looks names up itself.
func TestNetworkGuardBehindProxy(t *testing.T) {
	for _, row := range []struct {
		to   string
		want bool
	}{
		{"other.example", true}, {"192.0.2.1", true}, {"10.0.0.7", false}, {"127.0.0.1", false}, {"localhost.", false}, {"x.localhost", false},
		{"2130706433", false}, {"0x7f.1", false}, {"０1２7.0.0.1", false}, {"bücher.example", false}, {"１２７.0.0.1", false}, {"169.254.169.254", false}, {"metadata.google.internal", false}, {"METADATA.goog", false},
	} {
		target := newRecordingServer(t, nil, ok)
		var requests int
		proxy := newRecordingServer(t, nil, func(w http.ResponseWriter, r *http.Request) {
			if requests++; r.Host == "wide.example" {
				http.Redirect(w, r, "http://"+row.to, http.StatusFound)
			}
		})
		c := configFor("http://wide.example")
		c.Proxy = func(*http.Request) (*url.URL, error) { return proxy.url(), nil }
		_, err := get(t, c, c.Origin.String())
		if (err == nil) != row.want || err != nil && (!errors.As(err, new(*transport.ZoneError)) || requests != 1) || len(target.shown) > 0 {
			t.Errorf("%s: %v, %d requests", row.to, err, requests)
		}
	}
}

// A countingServer is a server that counts connections.
type countingServer struct {
	*httptest.Server
	mu          sync.Mutex
	opened, now int
	changed     chan struct{}
}

func newCountingServer(t *testing.T, answer http.HandlerFunc) *countingServer {
	c := &countingServer{changed: make(chan struct{}, 100)}
	c.Server = httptest.NewUnstartedServer(answer)
	c.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		c.mu.Lock()
		defer c.mu.Unlock()
		switch s {
		case http.StateNew:
			c.opened++
			c.now++
		case http.StateClosed, http.StateHijacked:
			c.now--
		}
		c.changed <- struct{}{}
	}
	c.Start()
	t.Cleanup(c.Close)
	return c
}

func (c *countingServer) url() *url.URL { u, _ := url.Parse(c.URL); return u }

func (c *countingServer) connections() (opened, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.now
}

// waitNone waits until the server has no connections.
func (c *countingServer) waitNone() {
	for {
		if _, now := c.connections(); now == 0 {
			return
		}
		<-c.changed
	}
}

// fetch requests a URL with a client that it closes then.
func fetch(t *testing.T, c transport.Config, url string) error {
	t.Helper()
	client := transport.Client(c)
	defer client.CloseIdleConnections()
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}

func TestReuse(t *testing.T) {
	loopback := &url.URL{Host: "127.0.0.1"}
	for name, test := range map[string]struct {
		first, second transport.Config
		want          int // connections
	}{
		"the same settings":       {transport.Config{}, transport.Config{}, 1},
		"other credentials":       {transport.Config{Auth: transport.Auth{Bearer: "a"}}, transport.Config{Auth: transport.Auth{Bearer: "b"}}, 1},
		"other trust or proxy":    {transport.Config{Settings: "a"}, transport.Config{Settings: "b"}, 2},
		"TLS of its own":          {transport.Config{}, transport.Config{TLS: &tls.Config{MinVersion: tls.VersionTLS12}}, 2},
		"another patience":        {transport.Config{}, transport.Config{HeaderTimeout: 1e11}, 2},
		"another server named it": {transport.Config{}, transport.Config{Guard: transport.NewNetworkGuard(loopback, transport.NewNetworkGuard(loopback, nil))}, 2},
		"the user named it":       {transport.Config{}, transport.Config{Guard: transport.NewNetworkGuard(loopback, nil)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := newCountingServer(t, ok)
			var reuse source.Connections
			for _, c := range []transport.Config{test.first, test.second} {
				c.Origin, c.Reuse = server.url(), &reuse
				must(t, fetch(t, c, server.URL))
				if zone, known := transport.Public, false; c.Guard != nil {
					if zone, known = c.Guard.Zone(); zone != transport.Link || !known {
						t.Errorf("the zone of the server is %v, known: %v", zone, known)
					}
				}
			}
			if opened, _ := server.connections(); opened != test.want {
				t.Errorf("%d connections, want %d", opened, test.want)
			}
			reuse.Close()
			server.waitNone()
		})
	}
}

// TestReuseOfOriginOnly: a redirect to another server shares no connection, is judged, and
// sends no credentials.
func TestReuseOfOriginOnly(t *testing.T) {
	other := newCountingServer(t, ok)
	server := newCountingServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var reuse source.Connections
	defer reuse.Close()
	c := transport.Config{Origin: server.url(), Reuse: &reuse}
	must(t, fetch(t, c, server.URL))
	other.waitNone()
	if err := fetch(t, transport.Config{Origin: other.url(), Reuse: &reuse}, other.URL); err != nil { // its connection stays open
		t.Fatal(err)
	}
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	c.Origin = server.url()
	c.Origin.Host = "wide.example:" + c.Origin.Port()
	if err := fetch(t, c, c.Origin.String()); !errors.As(err, new(*transport.ZoneError)) {
		t.Errorf("an address that is refused is reached by the connection of another: %v", err)
	}
}

// TestReuseOfCertificates uses a client certificate only for connections to its origin.
func TestReuseOfCertificates(t *testing.T) {
	var reuse source.Connections
	c := transport.Config{TLS: &tls.Config{Certificates: []tls.Certificate{{}}, MinVersion: tls.VersionTLS12}, Reuse: &reuse, Settings: "certificate"}
	a, b := newCountingServer(t, ok), newCountingServer(t, ok)
	for _, to := range []*countingServer{a, b, a} {
		c.Origin = to.url()
		must(t, fetch(t, c, to.URL))
	}
	if opened, _ := a.connections(); opened != 1 {
		t.Errorf("%d connections", opened)
	}
	reuse.Close()
	a.waitNone()
	b.waitNone()
}

// TestSettings checks that Settings differ if their inputs differ.
func TestSettings(t *testing.T) {
	named := func(kv ...string) transport.Secret { return transport.Secret{Name: "default/x", Secret: secret(kv...)} }
	seen := map[string]int{}
	for i, s := range []string{
		transport.Settings("git", named(), named()),
		transport.Settings("cert", named(), named()),
		transport.Settings("git", named("ca.crt", "a"), named()),
		transport.Settings("git", named("caFile", "a"), named()),
		transport.Settings("git", named("tls.crt", "a", "tls.key", "b"), named()),
		transport.Settings("git", named("tls.crt", "ab"), named()),
		transport.Settings("git", named(), named("address", "http://proxy")),
		transport.Settings("git", named(), named("address", "http://proxy", "password", "x")),
	} {
		if j, found := seen[s]; found {
			t.Errorf("settings %d are those of %d", i, j)
		}
		seen[s] = i
	}
	if transport.Settings("git", named("username", "a", "password", "b"), named()) != transport.Settings("git", named(), named()) {
		t.Error("credentials of requests take part")
	}
}
