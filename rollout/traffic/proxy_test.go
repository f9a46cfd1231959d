package traffic_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// serve starts a server that is closed at the end of the test.
func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// respond returns a handler that answers with name.
func respond(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, name) }
}

// serveProxy starts p, by default with servers that answer "primary" and "canary".
func serveProxy(t *testing.T, p *traffic.Proxy) *httptest.Server {
	t.Helper()
	if p.Primary == "" {
		p.Primary = serve(t, respond("primary")).URL
	}
	if p.Canary == "" {
		p.Canary = serve(t, respond("canary")).URL
	}
	t.Cleanup(p.Close)
	return serve(t, p.ServeHTTP)
}

func get(t *testing.T, url string, header ...string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	must(t, err)
	return do(t, req, header...)
}

// do sends req and returns the body of the answer, preceded by the status if it is not 200.
func do(t *testing.T, req *http.Request, header ...string) string {
	t.Helper()
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body)))
	}
	return string(body)
}

func set(t *testing.T, p *traffic.Proxy, r rollout.Routes) {
	t.Helper()
	must(t, p.SetRoutes(t.Context(), r))
}

// Of any 100 consecutive requests, the canary gets exactly its weight.
func TestWeights(t *testing.T) {
	for _, weight := range []int{0, 1, 3, 10, 33, 50, 67, 99, 100} {
		p := &traffic.Proxy{Start: rollout.Routes{Primary: 100 - weight, Canary: weight}}
		url := serveProxy(t, p).URL
		var got []int
		for range 250 {
			n := 0
			if get(t, url) == "canary" {
				n = 1
			}
			got = append(got, n)
		}
		for from := range len(got) - 100 {
			sum := 0
			for _, n := range got[from : from+100] {
				sum += n
			}
			if sum != weight {
				t.Fatalf("weight %d: %d of 100 requests from %d on", weight, sum, from)
			}
		}
	}
}

// The canary gets exactly its weight of concurrent requests as well.
func TestWeightsAtATime(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Primary: 63, Canary: 37}}
	var got atomic.Int64
	p.Canary = serve(t, func(http.ResponseWriter, *http.Request) { got.Add(1) }).URL
	url := serveProxy(t, p).URL
	var clients sync.WaitGroup
	for range 16 {
		clients.Go(func() {
			for range 25 {
				resp, err := http.Get(url)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
			}
		})
	}
	if clients.Wait(); got.Load() != 4*37 {
		t.Errorf("%d of 400 requests", got.Load())
	}
}

func TestInvalidProxy(t *testing.T) {
	const ok = "http://127.0.0.1:1"
	match := func(h map[string]rollout.StringMatch) []rollout.Match { return []rollout.Match{{Headers: h}} }
	tests := map[string]struct {
		proxy *traffic.Proxy
		want  string
	}{
		"no URLs":        {&traffic.Proxy{}, "primary of the proxy"},
		"no canary":      {&traffic.Proxy{Primary: ok}, "canary of the proxy"},
		"no URL":         {&traffic.Proxy{Primary: "http://user:s3cr3t@%zz", Canary: ok}, "is no URL"},
		"scheme":         {&traffic.Proxy{Primary: "ftp://h", Canary: ok}, "http"},
		"credentials":    {&traffic.Proxy{Primary: "http://user:s3cr3t@h", Canary: ok}, "no user"},
		"routes":         {&traffic.Proxy{Primary: ok, Canary: ok, Start: rollout.Routes{Primary: 1}}, "100"},
		"no condition":   {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {}})}, `match[0].headers["a"]`},
		"two conditions": {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Exact: "a", Prefix: "a"}})}, "one of"},
		"expression":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Regex: "("}})}, "regex"},
		"half of it":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Regex: "a)|(b"}})}, "regex"},
		"no headers":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(nil)}, "no headers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.proxy.Routes(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Error(err)
			}
			for _, err := range []error{test.proxy.SetRoutes(t.Context(), mirrored), test.proxy.Target(new(traffic.Adapter)).ScaleDown(t.Context())} {
				if err == nil {
					t.Error("no error")
				}
			}
			if _, err := test.proxy.Query(t.Context(), nil, rollout.Metric{Name: "request-duration"}); err == nil || errors.Is(err, rollout.ErrNoValues) {
				t.Error(err)
			}
			testenv.Equal(t, get(t, serve(t, test.proxy.ServeHTTP).URL), "500 the proxy is not set up")
			test.proxy.Close()
		})
	}
}

// raw sends text over a connection and returns the answer to it.
func raw(t *testing.T, server *httptest.Server, text string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	must(t, err)
	defer conn.Close()
	io.WriteString(conn, text)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp, string(body)
}

// echoRequest answers with the request line and the header of the request.
func echoRequest(w http.ResponseWriter, req *http.Request) {
	fmt.Fprintf(w, "%s %s %s\n", req.Method, req.RequestURI, req.Host)
	req.Header.Write(w)
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	tests := map[string]struct {
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
		"port is not told":      {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-Port: 666\r\n\r\n", lack: "666"},
		"real address":          {request: "GET / HTTP/1.1\r\nHost: h\r\nX-Real-IP: 6.6.6.6\r\n\r\n", lack: "6.6.6.6"},
		"proxy authorization":   {request: "GET / HTTP/1.1\r\nHost: h\r\nProxy-Authorization: Basic c2VjcmV0\r\n\r\n", lack: "c2VjcmV0"},
		"authorization arrives": {request: "GET / HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer t\r\n\r\n", want: "Authorization: Bearer t\r\n"},
		"upgrade to h2c":        {request: "GET / HTTP/1.1\r\nHost: h\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n\r\n", lack: "Upgrade"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Primary: serve(t, echoRequest).URL}
			_, body := raw(t, serveProxy(t, p), test.request)
			if !strings.Contains(body, test.want) || test.lack != "" && strings.Contains(body, test.lack) {
				t.Errorf("got %q", body)
			}
		})
	}
}

func TestBasePath(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, echoRequest).URL + "/base/"}
	if _, body := raw(t, serveProxy(t, p), "GET /x%2Fy?q HTTP/1.1\r\nHost: h\r\n\r\n"); !strings.HasPrefix(body, "GET /base/x%2Fy?q h\n") {
		t.Errorf("got %q", body)
	}
}

func TestConnect(t *testing.T) {
	p := &traffic.Proxy{}
	if resp, _ := raw(t, serveProxy(t, p), "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n"); resp.StatusCode != http.StatusMethodNotAllowed {
		t.Error(resp.Status)
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
	resp, err := http.Get(serveProxy(t, p).URL)
	must(t, err)
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	for i := range 3 {
		if line, err := lines.ReadString('\n'); err != nil || line != fmt.Sprintln(i) {
			t.Fatal(line, err) // each line arrives before the next is written
		}
		next <- struct{}{}
	}
	if _, err := lines.ReadByte(); err != io.EOF || resp.Trailer.Get("X-Sum") != "3" {
		t.Error(err, resp.Trailer)
	}
}

func TestTrailersOfRequests(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, req *http.Request) {
		io.Copy(io.Discard, req.Body)
		io.WriteString(w, req.Trailer.Get("X-Sum"))
	}).URL}
	_, body := raw(t, serveProxy(t, p), "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 3\r\n\r\n")
	testenv.Equal(t, body, "3")
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

func TestEarlyHintsAndExpectation(t *testing.T) {
	p := &traffic.Proxy{Primary: serve(t, func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.Copy(w, req.Body)
	}).URL}
	var codes []int
	trace := &httptrace.ClientTrace{Got1xxResponse: func(code int, header textproto.MIMEHeader) error {
		codes = append(codes, code)
		return nil
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodPost, serveProxy(t, p).URL, strings.NewReader("hello"))
	must(t, err)
	req.Header.Set("Expect", "100-continue")
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "hello" || !slices.Contains(codes, http.StatusEarlyHints) {
		t.Errorf("%q, %v, %v", body, codes, err)
	}
}

// serveEarlyAnswer starts a server that answers before it has the body of the request.
func serveEarlyAnswer(t *testing.T) string {
	return "http://" + testenv.Listen(t, func(c net.Conn) {
		if req, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
			io.WriteString(c, "HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
			io.Copy(io.Discard, req.Body)
		}
	})
}

// An answer before the end of the request body reaches the client and closes the
// connection, so that the rest of the body is not read as another request.
func TestEarlyAnswer(t *testing.T) {
	for name, test := range map[string]struct{ begin, rest string }{
		"known length": {"Content-Length: 10\r\n\r\nhello", "world"},
		"chunks":       {"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "0\r\n\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &traffic.Proxy{Primary: serveEarlyAnswer(t), Canary: "http://127.0.0.1:1"}
			t.Cleanup(p.Close)
			var errorLog bytes.Buffer
			server := httptest.NewUnstartedServer(p)
			server.Config.ErrorLog = log.New(&errorLog, "", 0)
			server.Start()
			conn, err := net.Dial("tcp", server.Listener.Addr().String())
			must(t, err)
			defer conn.Close()
			io.WriteString(conn, "POST / HTTP/1.1\r\nHost: h\r\n"+test.begin)
			answers := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answers, nil)
			must(t, err)
			if body, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(body) != "no" || err != nil || !resp.Close {
				t.Errorf("%s, %q, %v, %v", resp.Status, body, resp.Header, err)
			}
			io.WriteString(conn, test.rest+"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
			if n, _ := io.Copy(io.Discard, answers); n > 0 {
				t.Errorf("%d bytes more", n)
			}
			conn.Close()
			server.Close()
			if strings.Contains(errorLog.String(), "panic") {
				t.Error(errorLog.String())
			}
		})
	}
}

// A connection is closed if an upstream upgrades it without a request of the client.
func TestUnrequestedUpgrade(t *testing.T) {
	closed := make(chan error)
	server := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer conn.Close()
		io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: lines\r\n\r\n")
		_, err = conn.Read(make([]byte, 1))
		closed <- err
	})
	for name, start := range map[string]rollout.Routes{"502 no answer": {Canary: 100}, "primary": mirrored} {
		p := &traffic.Proxy{Canary: server.URL, Start: start}
		testenv.Equal(t, get(t, serveProxy(t, p).URL), name)
		if err := <-closed; err == nil {
			t.Error("something was sent")
		}
	}
}

func TestNoUpstream(t *testing.T) {
	hang := make(chan struct{})
	slow := serve(t, func(http.ResponseWriter, *http.Request) { <-hang })
	t.Cleanup(func() { close(hang) })
	tests := map[string]struct {
		upstream string
		want     string
	}{
		"refused": {"http://127.0.0.1:1", "502 no answer"},
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
			testenv.Equal(t, get(t, serveProxy(t, p).URL), test.want)
			testenv.Equal(t, p.Measured().Failed, 1)
		})
	}
}

// notHTTP starts a server whose answer is not HTTP.
func notHTTP(t *testing.T) string {
	return "http://" + testenv.Listen(t, func(c net.Conn) { io.WriteString(c, "\x16\x03\x01 go away\n\n") })
}

// A request that is not safe to repeat is sent once.
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
	url := serveProxy(t, p).URL
	get(t, url) // opens the connection to the canary
	resp, err := http.Post(url, "text/plain", strings.NewReader("pay"))
	must(t, err)
	resp.Body.Close()
	if n := len(got); resp.StatusCode != http.StatusBadGateway || n != 2 {
		t.Errorf("status %d, the canary got %d requests", resp.StatusCode, n)
	}
}

func TestUpstreamDiesInItsAnswer(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Canary: serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "100")
		io.WriteString(w, "half")
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}).URL}
	if resp, err := http.Get(serveProxy(t, p).URL); err == nil {
		defer resp.Body.Close()
		if body, err := io.ReadAll(resp.Body); err == nil {
			t.Errorf("%q looks complete", body)
		}
	}
	must(t, p.Drain(t.Context()))
	if s := p.Measured(); s.Requests != 1 || s.Failed != 1 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// A client that disconnects does not count as a failure of the canary. The request to the canary is canceled.
func TestClientLeaves(t *testing.T) {
	arrived, left := make(chan struct{}), make(chan struct{})
	p := &traffic.Proxy{Canary: serve(t, func(_ http.ResponseWriter, req *http.Request) {
		close(arrived)
		<-req.Context().Done()
		close(left)
	}).URL}
	url := serveProxy(t, p).URL
	set(t, p, rollout.Routes{Canary: 100})
	ctx, leave := context.WithCancel(t.Context())
	go func() { <-arrived; leave() }()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	if _, err := http.DefaultClient.Do(req); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	<-left
	must(t, p.Drain(t.Context()))
	if s := p.Measured(); s.Requests != 1 || s.Failed != 0 || s.Gone != 1 {
		t.Errorf("%+v", s)
	}
	rate := rollout.Metric{Name: "request-success-rate"}
	if _, err := p.Query(t.Context(), nil, rate); !errors.Is(err, rollout.ErrNoValues) {
		t.Error(err)
	}
}

func TestBodyThatDoesNotArrive(t *testing.T) {
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Canary: serve(t, func(_ http.ResponseWriter, req *http.Request) { io.ReadAll(req.Body) }).URL}
	server := serveProxy(t, p)
	if resp, _ := raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"); resp.StatusCode != http.StatusBadRequest {
		t.Error(resp.Status)
	}
	small := serve(t, func(w http.ResponseWriter, req *http.Request) {
		req.Body = http.MaxBytesReader(w, req.Body, 3)
		p.ServeHTTP(w, req)
	})
	resp, err := http.Post(small.URL, "text/plain", strings.NewReader("four"))
	must(t, err)
	resp.Body.Close()
	testenv.Equal(t, resp.StatusCode, http.StatusRequestEntityTooLarge, resp.Status)
	if s := p.Measured(); s.Failed != 0 || s.Gone != 2 {
		t.Errorf("%+v", s)
	}
}

// A promoted canary gets every request, even if no condition of an A/B test matches,
// and is not scaled down.
func TestPromote(t *testing.T) {
	p := &traffic.Proxy{Match: []rollout.Match{{Headers: map[string]rollout.StringMatch{"X-Insider": {Exact: "yes"}}}}}
	url := serveProxy(t, p).URL
	set(t, p, rollout.Routes{Canary: 100})
	answers := func() string { return strings.Join([]string{get(t, url), get(t, url, "X-Insider", "yes")}, " ") }
	if got := answers(); got != "primary canary" {
		t.Fatalf("before: %s", got)
	}
	p.Promote()
	testenv.Equal(t, answers(), "canary canary", "promoted")
	set(t, p, rollout.Routes{Primary: 100})
	testenv.Equal(t, answers(), "canary canary", "with all traffic at the primary")
	target := &stopping{} // its ScaleDown would panic
	testenv.Equal(t, p.Target(target).ScaleDown(t.Context()), nil)
}

func TestMatch(t *testing.T) {
	exact := func(s string) rollout.StringMatch { return rollout.StringMatch{Exact: s} }
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Match: []rollout.Match{
		{Headers: map[string]rollout.StringMatch{"x-canary": exact("yes"), "x-user": {Prefix: "qa-"}}},
		{Headers: map[string]rollout.StringMatch{"cookie": {Regex: `^(.*; ?)?canary=always(;.*)?$`}}},
		{Headers: map[string]rollout.StringMatch{"user-agent": {Suffix: "/Firefox"}}},
		{Headers: map[string]rollout.StringMatch{"X-Team": {Regex: "a|b|bcd"}}},
		{Headers: map[string]rollout.StringMatch{"X-Quoted": {Regex: `\Qa.b`}}},
	}}
	url := serveProxy(t, p).URL
	tests := []struct{ header, want string }{
		{"", "primary"},
		{"X-Canary: yes", "primary"},
		{"X-Canary: yes|X-User: qa-1", "canary"},
		{"x-canary: yes|x-user: dev", "primary"},
		{"X-Canary: Yes|X-User: qa-1", "primary"},
		{"X-Canary: yes|X-Canary: yes|X-User: qa-1", "primary"}, // the joined value is "yes,yes"
		{"Cookie: a=b; canary=always", "canary"},
		{"Cookie: a=b|Cookie: canary=always", "canary"},
		{"Cookie: notcanary=always", "primary"},
		{"User-Agent: x/Firefox", "canary"},
		{"User-Agent: x/Firefox/2", "primary"},
		{"X-Team: b", "canary"},
		{"X-Team: bcd", "canary"}, // even though a shorter alternative comes first
		{"X-Quoted: a.b", "canary"},
		{"X-Quoted: axb", "primary"},
		{"X-Team: bad", "primary"}, // a regular expression must match the whole value
		{"X-Team: " + strings.Repeat("a", 100<<10), "primary"},
	}
	for _, test := range tests {
		var header []string
		for line := range strings.SplitSeq(test.header, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				header = append(header, name, value)
			}
		}
		testenv.Equal(t, get(t, url, header...), test.want, "%.40q", test.header)
	}
	set(t, p, rollout.Routes{Primary: 50, Canary: 50})
	canary := 0
	for range 100 {
		get(t, url) // a request that does not match is not counted
		if get(t, url, "X-Team", "a") == "canary" {
			canary++
		}
	}
	testenv.Equal(t, canary, 50, "requests of 100 that match")
}

var must = testenv.Must
