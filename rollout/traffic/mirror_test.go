package traffic_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/traffic"
)

var mirrored = rollout.Routes{Primary: 100, Mirrored: true}

// post sends body and returns the answer.
func post(t *testing.T, url, body string) string {
	t.Helper()
	resp, err := http.Post(url+"/x?q=1", "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status, err)
	}
	return string(text)
}

func TestMirror(t *testing.T) {
	got := make(chan string, 10)
	canary := serve(t, func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		got <- strings.Join([]string{req.Method, req.RequestURI, req.Host, req.Header.Get("X-Forwarded-Host"), string(body)}, " ")
		if err != nil {
			t.Error(err)
		}
		http.Error(w, "canary", http.StatusTeapot)
	})
	p := &traffic.Proxy{Canary: canary.URL, Start: mirrored}
	server := front(t, p)
	host := server.Listener.Addr().String()
	if text := post(t, server.URL, "hello"); text != "primary" {
		t.Errorf("got %q", text)
	}
	if copied, want := <-got, "POST /x?q=1 "+host+" "+host+" hello"; copied != want {
		t.Errorf("got %q, want %q", copied, want)
	}
	if text := ask(t, server.URL+"/y"); text != "primary" {
		t.Errorf("got %q", text)
	}
	if copied, want := <-got, "GET /y "+host+" "+host+" "; copied != want {
		t.Errorf("got %q, want %q", copied, want)
	}
	set(t, p, rollout.Routes{Primary: 100})
	if text := post(t, server.URL, "hello"); text != "primary" {
		t.Errorf("got %q", text)
	}
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.Canary.Requests != 2 || s.Primary.Requests != 3 || len(got) != 0 {
		t.Errorf("%+v", s)
	}
}

func TestMirrorWeight(t *testing.T) {
	p := &traffic.Proxy{Start: mirrored, MirrorWeight: 30}
	url := front(t, p).URL
	for range 100 {
		ask(t, url)
		if err := p.Drain(t.Context()); err != nil { // so that none is left out
			t.Fatal(err)
		}
	}
	if s := p.Stats(); s.Canary.Requests != 30 || s.Primary.Requests != 100 || s.MirrorsLeftOut != 0 {
		t.Errorf("%+v", s)
	}
}

// Whatever the canary does with copies, clients do not notice.
func TestMirrorIsolation(t *testing.T) {
	dead := httptest.NewServer(nil)
	dead.Close()
	release := make(chan struct{})
	tests := map[string]string{
		"hangs": serve(t, func(http.ResponseWriter, *http.Request) { <-release }).URL,
		"hangs with the body": serve(t, func(_ http.ResponseWriter, req *http.Request) {
			io.ReadAll(req.Body)
			<-req.Context().Done()
		}).URL,
		"dead":    dead.URL,
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
			url := front(t, p).URL
			for range 20 {
				if got := post(t, url, "hello"); got != "primary" {
					t.Fatalf("got %q", got)
				}
			}
			p.Close()
			if err := p.Drain(t.Context()); err != nil {
				t.Fatal(err)
			}
			if stacks := make([]byte, 1<<20); strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "sendCopy") {
				t.Error("a copy outlives the proxy")
			}
			s := p.Stats()
			if s.Primary.Requests != 20 || s.Primary.Failed != 0 || s.Canary.Requests+s.MirrorsLeftOut != 20 {
				t.Errorf("%+v", s)
			}
			if strings.HasPrefix(name, "hangs") && s.MirrorsLeftOut != 17 {
				t.Errorf("%d copies were left out", s.MirrorsLeftOut)
			}
		})
	}
}

func TestMirrorTimeout(t *testing.T) {
	left := make(chan struct{}, 1)
	canary := serve(t, func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		left <- struct{}{}
	})
	p := &traffic.Proxy{Canary: canary.URL, Start: mirrored, MirrorTimeout: 20 * time.Millisecond}
	ask(t, front(t, p).URL)
	<-left
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
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
	server := front(t, p)
	post(t, server.URL, "hello!")                                                            // too long, as it says
	resp, err := http.Post(server.URL, "", struct{ io.Reader }{strings.NewReader("hello!")}) // too long, as it turns out
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	raw(t, server, "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n") // does not arrive
	conn, _ := dialUpgrade(t, server)
	conn.Close()
	p.Close()
	ask(t, server.URL) // the proxy is closed
	if err := p.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if s := p.Stats(); s.MirrorsLeftOut != 5 || copies.Load() != 0 {
		t.Errorf("%+v, %d copies", s, copies.Load())
	}
}

func TestMatch(t *testing.T) {
	exact := func(s string) rollout.StringMatch { return rollout.StringMatch{Exact: s} }
	p := &traffic.Proxy{Start: rollout.Routes{Canary: 100}, Match: []rollout.Match{
		{Headers: map[string]rollout.StringMatch{"x-canary": exact("yes"), "x-user": {Prefix: "qa-"}}},
		{Headers: map[string]rollout.StringMatch{"cookie": {Regex: `^(.*; ?)?canary=always(;.*)?$`}}},
		{Headers: map[string]rollout.StringMatch{"user-agent": {Suffix: "/Firefox"}}},
		{Headers: map[string]rollout.StringMatch{"X-Team": {Regex: "a|b"}}},
	}}
	url := front(t, p).URL
	tests := []struct{ header, want string }{
		{"", "primary"},
		{"X-Canary: yes", "primary"},
		{"X-Canary: yes|X-User: qa-1", "canary"},
		{"x-canary: yes|x-user: dev", "primary"},
		{"X-Canary: Yes|X-User: qa-1", "primary"},
		{"X-Canary: yes|X-Canary: yes|X-User: qa-1", "primary"}, // it is "yes,yes"
		{"Cookie: a=b; canary=always", "canary"},
		{"Cookie: a=b|Cookie: canary=always", "canary"},
		{"Cookie: notcanary=always", "primary"},
		{"User-Agent: x/Firefox", "canary"},
		{"User-Agent: x/Firefox/2", "primary"},
		{"X-Team: b", "canary"},
		{"X-Team: bad", "primary"}, // a regular expression is for all of the value
		{"X-Team: " + strings.Repeat("a", 100<<10), "primary"},
	}
	for _, test := range tests {
		var header []string
		for line := range strings.SplitSeq(test.header, "|") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				header = append(header, name, value)
			}
		}
		if got := ask(t, url, header...); got != test.want {
			t.Errorf("%.40q: %s", test.header, got)
		}
	}
	set(t, p, rollout.Routes{Primary: 50, Canary: 50})
	canary := 0
	for range 100 {
		ask(t, url) // does not count
		if ask(t, url, "X-Team", "a") == "canary" {
			canary++
		}
	}
	if canary != 50 {
		t.Errorf("the canary got %d of 100 that match", canary)
	}
}

func TestProxyThatIsWrong(t *testing.T) {
	const ok = "http://127.0.0.1:1"
	match := func(h map[string]rollout.StringMatch) []rollout.Match { return []rollout.Match{{Headers: h}} }
	tests := map[string]struct {
		proxy *traffic.Proxy
		want  string
	}{
		"no URLs":        {&traffic.Proxy{}, "primary of the proxy"},
		"no canary":      {&traffic.Proxy{Primary: ok}, "canary of the proxy"},
		"not a URL":      {&traffic.Proxy{Primary: "http://user:s3cr3t@%zz", Canary: ok}, "not a URL"},
		"scheme":         {&traffic.Proxy{Primary: "ftp://h", Canary: ok}, "http"},
		"credentials":    {&traffic.Proxy{Primary: "http://user:s3cr3t@h", Canary: ok}, "no user"},
		"routes":         {&traffic.Proxy{Primary: ok, Canary: ok, Start: rollout.Routes{Primary: 1}}, "100"},
		"no condition":   {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {}})}, `match[0].headers["a"]`},
		"two conditions": {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Exact: "a", Prefix: "a"}})}, "one of"},
		"expression":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(map[string]rollout.StringMatch{"a": {Regex: "("}})}, "regex"},
		"no headers":     {&traffic.Proxy{Primary: ok, Canary: ok, Match: match(nil)}, "no headers"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.proxy.Routes(t.Context())
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "s3cr3t") {
				t.Error(err)
			}
			for _, err := range []error{test.proxy.SetRoutes(t.Context(), mirrored), test.proxy.Target(new(traffic.Static)).ScaleDown(t.Context())} {
				if err == nil {
					t.Error("no error")
				}
			}
			if _, err := test.proxy.Query(t.Context(), nil, rollout.Metric{Name: "request-duration"}); err == nil || errors.Is(err, rollout.ErrNoValues) {
				t.Error(err)
			}
			if got := ask(t, serve(t, test.proxy.ServeHTTP).URL); got != "500 the proxy is not set up" {
				t.Errorf("got %q", got)
			}
			test.proxy.Stats()
			test.proxy.Close()
		})
	}
}
