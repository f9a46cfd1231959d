package traffic_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// flood upgrades a connection, or begins a stream, and writes for ever.
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

// Whatever stalls, on either side, does not hold the end of a canary up.
func TestScaleDownOfWhatStalls(t *testing.T) {
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
			conn, err := net.Dial("tcp", front(t, p).Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			io.WriteString(conn, test.request)
			<-arrived
			set(t, p, rollout.Routes{Primary: 100})
			target := p.Target(new(traffic.Adapter))
			for err = target.ScaleDown(t.Context()); err != nil; err = target.ScaleDown(t.Context()) {
				if !strings.Contains(err.Error(), "1 of its requests") { // what still moved has stopped by now
					t.Fatal(err)
				}
			}
			if s := p.Stats(); s.Running[1] != 0 || s.Canary.Requests != 1 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A request that waits for its answer is not cut off but for the tenth time.
func TestScaleDownIsPatient(t *testing.T) {
	arrived := make(chan struct{})
	canary := serve(t, func(_ http.ResponseWriter, req *http.Request) { close(arrived); <-req.Context().Done() })
	p := &traffic.Proxy{Canary: canary.URL, Start: rollout.Routes{Canary: 100}, DrainTimeout: time.Nanosecond}
	conn, err := net.Dial("tcp", front(t, p).Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET / HTTP/1.1\r\nHost: h\r\n\r\n")
	<-arrived
	set(t, p, rollout.Routes{Primary: 100})
	target := p.Target(new(traffic.Adapter))
	for i := range 9 {
		if err := target.ScaleDown(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of its requests") {
			t.Fatal(i, err)
		}
	}
	if err := target.ScaleDown(t.Context()); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != http.StatusGatewayTimeout {
		t.Error(resp, err)
	}
}

// pipes is a listener of connections that a test makes.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	if c, open := <-p; open {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// A request whose answer goes on is not cut off.
func TestScaleDownWaitsForWhatMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stop, conns := make(chan struct{}), make(pipes)
		canary := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for {
				io.WriteString(w, "piece")
				http.NewResponseController(w).Flush()
				select {
				case <-time.After(time.Second):
				case <-stop:
					return
				}
			}
		})}
		go canary.Serve(conns)
		defer canary.Close()
		defer close(conns)
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			conns <- theirs
			return ours, nil
		}}
		defer transport.CloseIdleConnections()
		p := &traffic.Proxy{Primary: "http://primary.test", Canary: "http://canary.test", Start: rollout.Routes{Canary: 100}, DrainTimeout: time.Minute, Transport: transport}
		defer p.Close()
		got, answered := httptest.NewRecorder(), make(chan struct{})
		go func() {
			defer close(answered)
			p.ServeHTTP(got, httptest.NewRequest(http.MethodGet, "http://app.test/", nil))
		}()
		synctest.Wait()
		set(t, p, rollout.Routes{Primary: 100})
		if err := p.Target(new(traffic.Adapter)).ScaleDown(t.Context()); err == nil || !strings.Contains(err.Error(), "1 of its requests") {
			t.Error(err)
		}
		close(stop)
		<-answered
		if pieces := strings.Count(got.Body.String(), "piece"); pieces < 60 || len(got.Body.String()) != pieces*len("piece") {
			t.Errorf("%d pieces, %d bytes", pieces, len(got.Body.String()))
		}
		if err := p.Drain(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
