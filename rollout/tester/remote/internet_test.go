package remote_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/remote"
)

// A memoryNetwork has servers at addresses, and names for addresses. Its connections are in
// memory, so that time can pass in a synctest bubble.
type memoryNetwork struct {
	names map[string][]string // of addresses

	mu      sync.Mutex
	servers map[string]*listener // by address and port
	dialled []string
	open    int
}

func newMemoryNetwork(names map[string][]string) *memoryNetwork {
	return &memoryNetwork{names: names, servers: map[string]*listener{}}
}

// serve starts a server at an address until the test ends.
func (n *memoryNetwork) serve(t *testing.T, address string, h http.Handler) {
	t.Helper()
	l := &listener{conns: make(chan net.Conn), done: make(chan struct{})}
	n.mu.Lock()
	n.servers[address] = l
	n.mu.Unlock()
	s := httptest.Server{Listener: l, Config: &http.Server{Handler: h}}
	s.Start()
	t.Cleanup(s.Close)
}

func (n *memoryNetwork) lookup(_ context.Context, _, host string) ([]netip.Addr, error) {
	var all []netip.Addr
	for _, text := range n.names[strings.ToLower(host)] {
		all = append(all, netip.MustParseAddr(text))
	}
	if all == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return all, nil
}

func (n *memoryNetwork) dial(ctx context.Context, _, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dialled = append(n.dialled, address)
	l := n.servers[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("dial %s: connection refused", address)
	}
	clientEnd, serverEnd := net.Pipe()
	select {
	case l.conns <- serverEnd:
		n.mu.Lock()
		n.open++
		n.mu.Unlock()
		return &countedConn{Conn: clientEnd, n: n}, nil
	case <-l.done:
		return nil, fmt.Errorf("dial %s: connection refused", address)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// A countedConn counts as open until it is closed.
type countedConn struct {
	net.Conn
	n    *memoryNetwork
	once sync.Once
}

func (c *countedConn) Close() error {
	c.once.Do(func() {
		c.n.mu.Lock()
		c.n.open--
		c.n.mu.Unlock()
	})
	return c.Conn.Close()
}

type listener struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *listener) Addr() net.Addr { return address("memory") }

type address string

func (a address) Network() string { return "memory" }
func (a address) String() string  { return string(a) }

// Names and addresses of the tests.
const (
	loadHost    = "load.example"
	processHost = "concord.example"
	publicIP    = "203.0.113.7"
	otherIP     = "203.0.113.8"
	password    = "s3cret-Pässword"
	apiKey      = "k3y-of-the-API"
)

// testServers returns a memoryNetwork, and Servers that allow load.example and concord.example and
// have a directory of keys.
func testServers(t *testing.T) (*memoryNetwork, *remote.Servers) {
	t.Helper()
	n := newMemoryNetwork(map[string][]string{
		loadHost: {publicIP}, processHost: {publicIP}, "other.example": {otherIP},
		"metadata.example": {"169.254.169.254"}, "inside.example": {"127.0.0.1"}, "a.wild.example": {"127.0.0.1"}, "b.wild.example": {publicIP},
		"both.example": {"169.254.169.254", publicIP}, "mapped.example": {"::ffff:169.254.169.254"}, "six.example": {"fd00:ec2::254", "fe80::1"},
	})
	keys := t.TempDir()
	write(t, filepath.Join(keys, "concord"), " "+apiKey+"\n")
	write(t, filepath.Join(keys, "ngrinder"), password+"\n")
	return n, &remote.Servers{Hosts: []string{loadHost, processHost}, Keys: keys, Lookup: n.lookup, Dial: n.dial}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	must(t, os.WriteFile(file, []byte(text), 0o600))
}

// with returns metadata with other values, where "-" removes a key.
func with(metadata map[string]string, pairs ...string) map[string]string {
	m := map[string]string{}
	for k, v := range metadata {
		m[k] = v
	}
	for i := 0; i < len(pairs); i += 2 {
		if m[pairs[i]] = pairs[i+1]; pairs[i+1] == "-" {
			delete(m, pairs[i])
		}
	}
	return m
}

// checkNoSecrets fails the test if a text contains a secret or control characters.
func checkNoSecrets(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, secret := range []string{password, apiKey, passwd} {
			if strings.Contains(text, secret) {
				t.Errorf("%q has a secret in it", text)
			}
		}
		if strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool { return r < ' ' || r == 0x7f }) {
			t.Errorf("%q has control characters", text)
		}
	}
}
