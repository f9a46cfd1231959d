package traffic_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A stopping target closes a server and its connections at once when it is scaled down.
type stopping struct {
	traffic.Adapter
	server *httptest.Server
	called chan struct{}
}

func (s *stopping) ScaleDown(context.Context) error {
	close(s.called)
	s.server.CloseClientConnections()
	s.server.Listener.Close()
	return nil
}

// The share of a side becomes 0 while requests run there. New requests go to the other side, running
// requests are answered, and a canary is stopped after the last of them.
func TestRunningRequestsAreAnswered(t *testing.T) {
	for name, share := range map[string]int{"primary": 0, "canary": 100} { // initial share of the canary
		t.Run(name, func(t *testing.T) {
			const clients = 100
			release, arrived := make(chan struct{}), make(chan struct{}, clients)
			slow := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				arrived <- struct{}{}
				<-release
				io.WriteString(w, name)
			})
			p, other := &traffic.Proxy{Start: rollout.Routes{Primary: 100 - share, Canary: share}}, "primary"
			if p.Canary = slow.URL; name == "primary" {
				p.Primary, p.Canary, other = slow.URL, "", "canary"
			}
			url := serveProxy(t, p).URL
			answer := sync.OnceFunc(func() { close(release) })
			t.Cleanup(answer)
			var load sync.WaitGroup
			for range clients {
				load.Go(func() { testenv.Equal(t, get(t, url), name, "a request that ran") })
			}
			for range clients {
				<-arrived
			}
			set(t, p, rollout.Routes{Primary: share, Canary: 100 - share})
			target := &stopping{server: slow, called: make(chan struct{})}
			scaled := make(chan error, 1)
			if scaled <- nil; name == "canary" {
				<-scaled
				go func() { scaled <- p.Target(target).ScaleDown(t.Context()) }()
			}
			for range 200 {
				if got := get(t, url); got != other {
					t.Fatalf("a request after the change got %q", got)
				}
			}
			select {
			case <-target.called:
				t.Fatal("stopped while requests run")
			default:
			}
			answer()
			must(t, <-scaled)
			load.Wait()
		})
	}
}

func TestDrainEndsWithItsContext(t *testing.T) {
	arrived := make(chan struct{})
	release := make(chan struct{})
	canary := serve(t, func(http.ResponseWriter, *http.Request) { arrived <- struct{}{}; <-release })
	p := &traffic.Proxy{Canary: canary.URL, Start: rollout.Routes{Canary: 100}, DrainTimeout: time.Nanosecond}
	url := serveProxy(t, p).URL
	var load sync.WaitGroup
	load.Go(func() { get(t, url) })
	<-arrived
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("because")
	cancel(cause)
	if err := p.Drain(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	target := p.Target(new(traffic.Adapter))
	if err := target.ScaleDown(ctx); !errors.Is(err, cause) {
		t.Error(err)
	}
	if err := target.ScaleDown(t.Context()); err != nil { // cuts off running requests after DrainTimeout
		t.Error(err)
	}
	load.Wait()
	close(release)
}

// upgrade switches a connection to a protocol that echoes lines.
func upgrade(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Upgrade") != "lines" {
		http.Error(w, "upgrade", http.StatusUpgradeRequired)
		return
	}
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
	for {
		line, err := buf.ReadString('\n')
		if err != nil {
			return
		}
		io.WriteString(conn, line)
	}
}

func dialUpgrade(t *testing.T, server *httptest.Server) (net.Conn, *bufio.Reader) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n")
	r := bufio.NewReader(conn)
	resp, err := http.ReadResponse(r, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(resp, err)
	}
	return conn, r
}

// An upgraded connection works and survives a change of the routes. It is closed only
// when the canary is scaled down.
func TestUpgrade(t *testing.T) {
	canary := serve(t, upgrade)
	p := &traffic.Proxy{Canary: canary.URL, Start: rollout.Routes{Canary: 100}, DrainTimeout: time.Millisecond}
	conn, lines := dialUpgrade(t, serveProxy(t, p))
	echo := func() {
		t.Helper()
		io.WriteString(conn, "hello\n")
		if line, err := lines.ReadString('\n'); err != nil || line != "hello\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	echo()
	set(t, p, rollout.Routes{Primary: 100})
	echo()
	must(t, p.Target(new(traffic.Adapter)).ScaleDown(t.Context()))
	if _, err := lines.ReadByte(); err == nil {
		t.Error("it is still open")
	}
	if s := p.Measured(); s.Requests != 1 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

// flood upgrades a connection, or begins a stream, and writes forever.
func flood(w http.ResponseWriter, req *http.Request) {
	var out io.Writer = w
	switch req.URL.Path {
	case "/upgrade":
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		out = conn
	case "/events":
		w.Header().Set("Content-Type", "text/event-stream")
	}
	io.Copy(out, zeros{})
}

// A stalled client or server does not delay ScaleDown beyond DrainTimeout.
func TestScaleDownStalledRequests(t *testing.T) {
	tests := map[string]struct {
		canary  http.HandlerFunc
		request string
	}{
		"the answer": {func(w http.ResponseWriter, req *http.Request) {
			io.WriteString(w, "half")
			http.NewResponseController(w).Flush()
			<-req.Context().Done()
		}, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"the body":                  {func(_ http.ResponseWriter, req *http.Request) { io.Copy(io.Discard, req.Body) }, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf"},
		"the body of one that died": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 10\r\n\r\nhalf"},
		"who does not read":         {flood, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"},
		"who reads no events":       {flood, "GET /events HTTP/1.1\r\nHost: h\r\n\r\n"},
		"who reads no protocol":     {flood, "GET /upgrade HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: lines\r\n\r\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			arrived := make(chan struct{})
			canary := serve(t, func(w http.ResponseWriter, req *http.Request) { close(arrived); test.canary(w, req) })
			p := &traffic.Proxy{Canary: canary.URL, Start: rollout.Routes{Canary: 100}, DrainTimeout: 20 * time.Millisecond}
			conn, err := net.Dial("tcp", serveProxy(t, p).Listener.Addr().String())
			must(t, err)
			defer conn.Close()
			io.WriteString(conn, test.request)
			<-arrived
			set(t, p, rollout.Routes{Primary: 100})
			target := p.Target(new(traffic.Adapter))
			must(t, target.ScaleDown(t.Context()))
			if s := p.Measured(); s.Running != 0 || s.Requests != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}
