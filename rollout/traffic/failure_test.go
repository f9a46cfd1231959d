package traffic_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

func TestNoUpstream(t *testing.T) {
	hang := make(chan struct{})
	slow := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	gone := httptest.NewServer(nil)
	gone.Close()
	tests := map[string]struct {
		upstream string
		want     string
	}{
		"refused": {gone.URL, "502 no answer"},
		"slow":    {slow.URL, "504 no answer in time"},
		"no HTTP": {notHTTP(t), "502 no answer"},
		"huge":    {serve(t, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("A", strings.Repeat("a", 2<<20)) }).URL, "502 no answer"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Canary: test.upstream, Start: rollout.Routes{Canary: 100}, HeaderTimeout: 10 * time.Millisecond}
			if name != "slow" {
				p.HeaderTimeout = 0
			}
			if got := ask(t, front(t, p).URL); got != test.want {
				t.Errorf("got %q", got)
			}
			if s := p.Stats(); s.Canary.Failed != 1 || s.Primary.Requests != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// notHTTP is a server that answers in no protocol.
func notHTTP(t *testing.T) string {
	return "http://" + testenv.Listen(t, func(c net.Conn) { io.WriteString(c, "\x16\x03\x01 go away\n\n") })
}

// What is not safe to send twice is sent once.
func TestPostIsSentOnce(t *testing.T) {
	got := make(chan string, 10)
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		got <- req.Method
		io.ReadAll(req.Body)
		if req.Method == http.MethodPost {
			panic(http.ErrAbortHandler)
		}
	})
	p := &traffic.Proxy{Canary: canary.URL, Start: rollout.Routes{Canary: 100}}
	url := front(t, p).URL
	ask(t, url) // the connection is open now
	resp, err := http.Post(url, "text/plain", strings.NewReader("pay"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := len(got); resp.StatusCode != http.StatusBadGateway || n != 2 {
		t.Errorf("status %d, the canary got %d requests", resp.StatusCode, n)
	}
}

// A deadConn is a connection whose other end is gone, which nobody has noticed.
type deadConn struct {
	net.Conn
	dead *atomic.Bool
}

func (c deadConn) Write(b []byte) (int, error) {
	if c.dead.Load() {
		return 0, syscall.EPIPE
	}
	return c.Conn.Write(b)
}

// A request of which nothing was sent goes out on another connection, once.
func TestConnectionThatWasClosed(t *testing.T) {
	got := make(chan string, 10)
	primary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got <- fmt.Sprintf("%s %d", req.Method, len(body))
	})
	var dead *atomic.Bool
	transport := &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, addr)
		dead = new(atomic.Bool)
		return deadConn{conn, dead}, err
	}}
	defer transport.CloseIdleConnections()
	p := &traffic.Proxy{Primary: primary.URL, Transport: transport}
	url := front(t, p).URL
	for _, length := range []int{5, 40 << 10} {
		ask(t, url)
		dead.Store(true)
		resp, err := http.Post(url, "", strings.NewReader(strings.Repeat("a", length)))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
		if first, second := <-got, <-got; first != "GET 0" || second != fmt.Sprint("POST ", length) || len(got) > 0 {
			t.Errorf("%s, %s, and %d more", first, second, len(got))
		}
	}
	if s := p.Stats(); s.Primary.Requests != 4 || s.Primary.Failed != 0 {
		t.Errorf("%+v", s)
	}
}

func TestUpstreamDiesInItsAnswer(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Canary: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}).URL}
	if resp, err := http.Get(front(t, p).URL); err == nil {
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q looks complete", body)
		}
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Canary.Requests != 1 || s.Canary.Failed != 1 || s.Running[1] != 0 {
		t.Errorf("%+v", s)
	}
}

// A client that leaves is no failure of the canary, which learns of it.
func TestClientLeaves(t *testing.T) {
	arrived, left := make(chan struct{}), make(chan struct{})
	p := &traffic.Proxy{Canary: serve(t, func(_ http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-req.Context().Done()
		close(left)
	}).URL}
	url := front(t, p).URL
	set(t, p, rollout.Routes{Canary: 100})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-arrived; leave() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-left
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Canary.Requests != 1 || s.Canary.Failed != 0 || s.Canary.Gone != 1 {
		t.Errorf("%+v", s)
	}
	rate := rollout.Metric{Name: "request-success-rate"}
	if _, err := p.Query(t.Context(), nil, rate); !errors.Is(err, rollout.ErrNoValues) {
		t.Error(err)
	}
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Canary: serve(t, func(_ http.ResponseWriter, req *http.Request) { io.ReadAll(req.Body) }).URL}
	server := front(t, p)
	if resp, _ := raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
	small := serve(t, func(w http.ResponseWriter, req *http.Request) {
		req.Body = http.MaxBytesReader(w, req.Body, 3)
		p.ServeHTTP(w, req)
	})
	resp, err := http.Post(small.URL, "text/plain", strings.NewReader("four"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusRequestEntityTooLarge {
		t.Error(resp.Status)
	}
	if s := p.Stats(); s.Canary.Failed != 0 || s.Canary.Gone != 2 {
		t.Errorf("%+v", s)
	}
}
