package transport_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A countingServer is a server that counts connections.
type countingServer struct {
	*httptest.Server
	mu          sync.Mutex
	opened, now int
	changed     chan struct{}
}

func newCrowd(t *testing.T, answer http.HandlerFunc) *countingServer {
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

func (c *countingServer) at() *url.URL { u, _ := url.Parse(c.URL); return u }

func (c *countingServer) connections() (opened, now int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.opened, c.now
}

// none waits until the server has no connection.
func (c *countingServer) none() {
	for {
		if _, now := c.connections(); now == 0 {
			return
		}
		<-c.changed
	}
}

// fetch asks for a URL with a client that is given up then.
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
		"another server named it": {transport.Config{}, transport.Config{Fence: transport.NewFence(loopback, transport.NewFence(loopback, nil))}, 2},
		"the user named it":       {transport.Config{}, transport.Config{Fence: transport.NewFence(loopback, nil)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			server := newCrowd(t, ok)
			var reuse source.Connections
			for _, c := range []transport.Config{test.first, test.second} {
				c.Origin, c.Reuse = server.at(), &reuse
				must(t, fetch(t, c, server.URL))
				if zone, known := transport.Public, false; c.Fence != nil {
					if zone, known = c.Fence.Zone(); zone != transport.Link || !known {
						t.Errorf("the zone of the server is %v, known: %v", zone, known)
					}
				}
			}
			if opened, _ := server.connections(); opened != test.want {
				t.Errorf("%d connections, want %d", opened, test.want)
			}
			reuse.Close()
			server.none()
		})
	}
}

// What leads elsewhere leaves nothing behind, is judged, and is shown nothing.
func TestReuseOfOriginOnly(t *testing.T) {
	other := newCrowd(t, ok)
	server := newCrowd(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) })
	var reuse source.Connections
	defer reuse.Close()
	c := transport.Config{Origin: server.at(), Reuse: &reuse}
	must(t, fetch(t, c, server.URL))
	other.none()
	if err := fetch(t, transport.Config{Origin: other.at(), Reuse: &reuse}, other.URL); err != nil { // whose connection stays
		t.Fatal(err)
	}
	testenv.Resolve(t, "wide.example", "203.0.113.7")
	c.Origin = server.at()
	c.Origin.Host = "wide.example:" + c.Origin.Port()
	if err := fetch(t, c, c.Origin.String()); !errors.As(err, new(*transport.ZoneError)) {
		t.Errorf("an address that is refused is reached by the connection of another: %v", err)
	}
}

// A client certificate is for the connections to its origin.
func TestReuseOfCertificates(t *testing.T) {
	var reuse source.Connections
	c := transport.Config{TLS: &tls.Config{Certificates: []tls.Certificate{{}}, MinVersion: tls.VersionTLS12}, Reuse: &reuse, Settings: "certificate"}
	a, b := newCrowd(t, ok), newCrowd(t, ok)
	for _, to := range []*countingServer{a, b, a} {
		c.Origin = to.at()
		must(t, fetch(t, c, to.URL))
	}
	if opened, _ := a.connections(); opened != 1 {
		t.Errorf("%d connections", opened)
	}
	reuse.Close()
	a.none()
	b.none()
}

// Settings differ where what they are made of does.
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
