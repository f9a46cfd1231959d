package tester_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester"
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
