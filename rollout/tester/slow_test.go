package tester_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// pipes is a listener of connections that a test makes.
type pipes struct {
	conns chan net.Conn
	ctx   context.Context
}

func (p pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.ctx.Done():
		return nil, net.ErrClosed
	}
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestSlowBodies has connections of bodies that do not arrive end, whatever the
// path and whether the caller said who it is.
func TestSlowBodies(t *testing.T) {
	g := guard(t, wireCallers)
	for _, head := range []string{
		"POST /healthz", "POST /health", "GET /ui/", "GET /metrics", "POST /gate/approve", "POST /gate/check", "POST /",
		"POST /launch-test", "POST /api/v1/session", "POST /link/none", "POST /?token=wrong",
	} {
		synctest.Test(t, func(t *testing.T) {
			gates, err := gate.Open(gate.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer gates.Close()
			runs, err := run.Open(run.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer runs.Shutdown(t.Context())
			s := &tester.Server{Gates: gates, Runs: runs, Guard: g}
			ctx, cancel := context.WithCancel(t.Context())
			server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: time.Second}
			listener := pipes{make(chan net.Conn), ctx}
			ended := make(chan struct{})
			go func() { defer close(ended); server.Serve(listener) }()
			ours, theirs := net.Pipe()
			listener.conns <- theirs
			began := time.Now()
			go io.WriteString(ours, head+" HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{")
			ours.SetReadDeadline(began.Add(time.Hour))
			if _, err := io.Copy(io.Discard, bufio.NewReader(ours)); err != nil {
				t.Errorf("%s: %v", head, err)
			}
			if took := time.Since(began); took > 31*time.Second {
				t.Errorf("%s: the connection was kept for %s", head, took)
			}
			ours.Close()
			cancel()
			<-ended
			server.Close()
		})
	}
}

// TestLongerThanItsRequest has what waits and what streams outlive the time in
// which a request has to come, and a request that does not come end with it.
func TestLongerThanItsRequest(t *testing.T) {
	t.Parallel()
	d := openDoor(t, func(w *doorway) {
		w.request = 2 * time.Second
		w.server.Keepalive = 1200 * time.Millisecond
	})
	test := func() reply {
		return d.post("/", canary("shop", `{"type": "bash", "cmd": "sleep 2.2; echo done", "returnCmdOutput": "true"}`))
	}
	got := test()
	for len(d.Runs.Runs(api.Filter{})) == 0 { // the machine stood still, and it did not come in time
		got = test()
	}
	if got.status != 200 || got.body != "done\n" {
		t.Errorf("a test of 2.2 s: %d %q", got.status, got.body)
	}
	answer, err := http.Get(d.url + "/api/v1/watch")
	for err != nil { // as above: the head of an answer comes at once
		answer, err = http.Get(d.url + "/api/v1/watch")
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for comments := 0; comments < 2; {
		if !lines.Scan() {
			t.Fatalf("the stream ended after %d comments: %v", comments, lines.Err())
		}
		if strings.HasPrefix(lines.Text(), ":") {
			comments++
		}
	}
	for _, text := range []string{"POST /gate/check HTTP/1.1\r\n", "POST /gate/check HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 10\r\n\r\n{"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(d.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, text)
		conn.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) { // a reset is an end, too
			t.Errorf("%q: %v", text, err)
		}
		conn.Close()
	}
}
