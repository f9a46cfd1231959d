package traffic_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// raw sends text over a connection and returns the answer to it.
func raw(t *testing.T, server *httptest.Server, text string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, text)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(body)
}

// tell is a server that answers with what it was asked.
func tell(w http.ResponseWriter, req *http.Request) {
	fmt.Fprintf(w, "%s %s %s\n", req.Method, req.RequestURI, req.Host)
	req.Header.Write(w)
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	tests := map[string]struct {
		trust               bool
		request, want, lack string
	}{
		"host":                  {request: "GET / HTTP/1.1\r\nHost: app.example\r\n\r\n", want: "GET / app.example\n"},
		"query":                 {request: "GET /?a=1;b=%zz&&c HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /?a=1;b=%zz&&c h\n"},
		"escaped path":          {request: "GET /a%2Fb/../c//d HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /a%2Fb/../c//d h\n"},
		"two slashes":           {request: "GET //evil.example/x HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET //evil.example/x h\n"},
		"another origin":        {request: "GET http://evil.example:1/x HTTP/1.1\r\nHost: h\r\n\r\n", want: "GET /x evil.example:1\n"},
		"method":                {request: "BREW /pot HTTP/1.1\r\nHost: h\r\n\r\n", want: "BREW /pot h\n"},
		"no user agent":         {request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", lack: "User-Agent"},
		"no encoding":           {request: "GET / HTTP/1.1\r\nHost: h\r\n\r\n", lack: "Accept-Encoding"},
		"named by connection":   {request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\n\r\n", lack: "X-Hop"},
		"forwarded dropped":     {request: "GET / HTTP/1.1\r\nHost: h\r\nConnection: X-Forwarded-For\r\nX-Forwarded-For: 6.6.6.6\r\n\r\n", want: "X-Forwarded-For: 127.0.0.1\r\n", lack: "6.6.6.6"},
		"proto is what it was":  {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Proto: https\r\n\r\n", want: "X-Forwarded-Proto: http\r\n"},
		"forwarded trusted":     {trust: true, request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n\r\n", want: "X-Forwarded-For: 6.6.6.6, 127.0.0.1\r\nX-Forwarded-Host: h\r\nX-Forwarded-Proto: https\r\n"},
		"proxy authorization":   {request: "GET / HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n", lack: "c2VjcmV0"},
		"authorization arrives": {request: "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n", want: "Authorization: Bearer t\r\n"},
		"upgrade to h2c":        {request: "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", lack: "Upgrade"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Primary: serve(t, tell).URL, TrustForwarded: test.trust}
			_, body := raw(t, front(t, p), test.request)
			if !strings.Contains(body, test.want) || test.lack != "" && strings.Contains(body, test.lack) {
				t.Errorf("got %q", body)
			}
		})
	}
}

func TestBasePath(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, tell).URL + "/base/"}
	if _, body := raw(t, front(t, p), "GET /x%2Fy?q HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(body, "GET /base/x%2Fy?q h\n") {
		t.Errorf("got %q", body)
	}
}

func TestConnect(t *testing.T) {
	p := &traffic.Proxy{}
	if resp, _ := raw(t, front(t, p), "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
	}
}

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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			io.WriteString(c, "\x16\x03\x01 go away\n\n")
			c.Close()
		}
	}()
	return "http://" + l.Addr().String()
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

func TestStreaming(t *testing.T) {
	next := make(chan struct{})
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Trailer", "X-Sum")
		for i := range 3 {
			fmt.Fprintln(w, i)
			http.NewResponseController(w).Flush()
			<-next
		}
		w.Header().Set("X-Sum", "3")
	}).URL}
	resp, err := http.Get(front(t, p).URL)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(i) {
			t.Fatal(line, err) // each line is here before the next is written
		}
		next <- struct{}{}
	}
	if _, err := lines.ReadByte(); err != io.EOF || resp.Trailer.Get("X-Sum") != "3" {
		t.Error(err, resp.Trailer)
	}
}

func TestHugeBodies(t *testing.T) {
	const size = 128 << 20
	echo := serve(t, func(w http.ResponseWriter, req *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, req.Body)
	})
	p := &traffic.Proxy{Primary: echo.URL, Canary: echo.URL, Start: rollout.Routes{Primary: 100, Mirrored: true}}
	url := front(t, p).URL
	sent, got := sha256.New(), sha256.New()
	// One of a length that is not known, and one of a known.
	for _, length := range []int64{-1, size} {
		sent.Reset()
		got.Reset()
		req, err := http.NewRequest(http.MethodPost, url, io.TeeReader(io.LimitReader(zeros{}, size), sent))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = length
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(got, resp.Body)
		resp.Body.Close()
		if err != nil || n != size || string(got.Sum(nil)) != string(sent.Sum(nil)) {
			t.Errorf("%d bytes, %v", n, err)
		}
	}
	if s := p.Stats(); s.MirrorsLeftOut != 2 || s.Canary.Requests != 0 {
		t.Errorf("%+v", s)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

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
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Canary: serve(t, func(_ http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-req.Context().Done()
		close(left)
	}).URL}
	url := front(t, p).URL
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
