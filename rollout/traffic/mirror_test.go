package traffic_test

import (
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

var mirrored = rollout.Routes{Primary: 100, Mirrored: true}

// post sends body and returns the answer.
func post(t *testing.T, url, body string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/x?q=1", strings.NewReader(body))
	must(t, err)
	return do(t, req, header...)
}

func TestMirror(t *testing.T) {
	got := make(chan string, 10)
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		got <- strings.Join([]string{req.Method, req.RequestURI, req.Host, req.Header.Get("X-Forwarded-Host"), string(body)}, " ") + req.Header.Get("Expect")
		if err != nil {
			t.Error(err)
		}
		http.Error(w, "canary", http.StatusTeapot)
	})
	primary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, "primary")
	})
	p := &traffic.Proxy{Primary: primary.URL, Canary: canary.URL, Start: mirrored}
	server := serveProxy(t, p)
	host := server.Listener.Addr().String()
	testenv.Equal(t, post(t, server.URL, "hello", "Expect", "100-continue"), "primary")
	testenv.Equal(t, <-got, "POST /x?q=1 "+host+" "+host+" hello")
	testenv.Equal(t, get(t, server.URL+"/y"), "primary")
	testenv.Equal(t, <-got, "GET /y "+host+" "+host+" ")
	set(t, p, rollout.Routes{Primary: 100})
	testenv.Equal(t, post(t, server.URL, "hello"), "primary")
	must(t, p.Drain(t.Context()))
	server.Close() // waits until all requests are counted
	if s := p.Measured(); s.Requests != 2 || len(got) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestMirrorWeight(t *testing.T) {
	p := &traffic.Proxy{Start: mirrored, MirrorWeight: 30}
	server := serveProxy(t, p)
	for range 100 {
		get(t, server.URL)
		if err := p.Drain(t.Context()); err != nil { // so that the limit of copies drops none
			t.Fatal(err)
		}
	}
	server.Close()
	testenv.Equal(t, p.Measured().Requests, 30)
}

// The handling of copies by the canary does not affect clients.
func TestMirrorIsolation(t *testing.T) {
	release := make(chan struct{})
	tests := map[string]string{
		"hangs": serve(t, func(http.ResponseWriter, *http.Request) { <-release }).URL,
		"hangs with the body": serve(t, func(_ http.ResponseWriter, req *http.Request) {
			io.ReadAll(req.Body)
			<-req.Context().Done()
		}).URL,
		"dead":    "http://127.0.0.1:1",
		"no HTTP": notHTTP(t),
		"aborts":  serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }).URL,
		"endless": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			for {
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}).URL,
		"switches protocols": serve(t, func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
			conn.Close()
		}).URL,
	}
	t.Cleanup(func() { close(release) })
	for name, canary := range tests {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Canary: canary, Start: mirrored, Mirrors: 3}
			server := serveProxy(t, p)
			for range 20 {
				if got := post(t, server.URL, "hello"); got != "primary" {
					t.Fatalf("got %q", got)
				}
			}
			server.Close()
			p.Close()
			testenv.Equal(t, p.Measured().Running, 0)
			must(t, p.Drain(t.Context()))
			if stacks := make([]byte, 1<<20); strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "sendCopy") {
				t.Error("a copy outlives the proxy")
			}
			if n := p.Measured().Requests; n > 20 || strings.HasPrefix(name, "hangs") && n != 3 {
				t.Errorf("%d copies were sent", n)
			}
		})
	}
}

func TestMirrorTimeout(t *testing.T) {
	canary := serve(t, func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	p := &traffic.Proxy{Canary: canary.URL, Start: mirrored, MirrorTimeout: 20 * time.Millisecond}
	get(t, serveProxy(t, p).URL)
	must(t, p.Drain(t.Context()))
	rate, err := p.Query(t.Context(), nil, rollout.Metric{Name: "request-success-rate"})
	if err != nil || rate != 0 {
		t.Errorf("a canary that hangs has a success rate of %v, %v", rate, err)
	}
}

func TestNotMirrored(t *testing.T) {
	var copies atomic.Int64
	canary := serve(t, func(_ http.ResponseWriter, req *http.Request) { copies.Add(1) })
	primary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Upgrade") != "" {
			upgrade(w, req)
			return
		}
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, "primary")
	})
	p := &traffic.Proxy{Primary: primary.URL, Canary: canary.URL, Start: mirrored, MirrorBody: 5}
	server := serveProxy(t, p)
	post(t, server.URL, "hello!")                                                            // too long by its Content-Length
	resp, err := http.Post(server.URL, "", struct{ io.Reader }{strings.NewReader("hello!")}) // too long, of unknown length
	must(t, err)
	resp.Body.Close()
	raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") // an incomplete body
	conn, _ := dialUpgrade(t, server)
	conn.Close()
	p.Close()
	get(t, server.URL) // after p.Close
	server.Close()     // waits until all requests are counted
	testenv.Equal(t, copies.Load(), 0)

	p = &traffic.Proxy{Primary: primary.URL, Canary: canary.URL, Start: mirrored, Mirrors: -1}
	get(t, serveProxy(t, p).URL)
	p.Close()
	testenv.Equal(t, copies.Load(), 0, "no copy may be made")
}

// A body that arrives after mirroring has ended is not sent to a canary that
// may be gone.
func TestMirrorThatEndsDuringAnUpload(t *testing.T) {
	arrived := make(chan struct{})
	primary := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		io.ReadFull(req.Body, make([]byte, 5))
		close(arrived)
		io.Copy(io.Discard, req.Body)
	})
	p := &traffic.Proxy{Primary: primary.URL, Start: mirrored}
	url := serveProxy(t, p).URL
	body, w := io.Pipe()
	go func() {
		io.WriteString(w, "first")
		<-arrived
		set(t, p, rollout.Routes{Primary: 100})
		io.WriteString(w, "second")
		w.Close()
	}()
	resp, err := http.Post(url, "", body)
	must(t, err)
	resp.Body.Close()
	p.Close()
	testenv.Equal(t, p.Measured().Requests, 0)
}
