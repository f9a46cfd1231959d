package server_test

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/server"
)

// logLines keep what is logged.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// A front is a server with one artifact that serves until the test ends.
type front struct {
	addr, socket, path string
	log                *logLines
}

func newFront(t *testing.T, s *server.Server, e server.Endpoint) front {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	a, err := store.Put(t.Context(), "gitrepository/shop/app", "app.tar.gz", func(w io.Writer) error { _, err := io.WriteString(w, "content"); return err })
	if err != nil {
		t.Fatal(err)
	}
	log := &logLines{}
	s.Store, s.Controller, s.Log = store, new(serve.Controller), slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e.Addr = "127.0.0.1:0"
	if runtime.GOOS != "windows" {
		e.Socket = filepath.Join(t.TempDir(), "s")
	}
	l, err := s.Listen(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error)
	go func() { ended <- l.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		store.Close()
	})
	return front{strings.TrimPrefix(l.URL, "http://"), e.Socket, "/" + a.Path, log}
}

// send sends a request as it is written and returns the answer; its status is 0
// when the connection ends without one.
func (f front) send(t *testing.T, text string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp", f.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return &http.Response{}, ""
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return resp, string(body)
}

const (
	good, poor, stale = "0123456789abcdef-good", "0123456789abcdef-poor", "0123456789abcdef-stale"
	known             = `
tokens:
- {name: good, token: ` + good + `}
- {name: poor, token: ` + poor + `, namespaces: [other]}
- {name: stale, token: ` + stale + `, expires: 2001-01-01T00:00:00Z}
`
)

// TestHostileRequests has those refused who are not known, may not, or come by
// another site, and no token stand in the log.
func TestHostileRequests(t *testing.T) {
	name := filepath.Join(t.TempDir(), "known.yaml")
	if err := os.WriteFile(name, []byte(known), 0o600); err != nil {
		t.Fatal(err)
	}
	guard, err := access.Open(access.Config{File: name})
	if err != nil {
		t.Fatal(err)
	}
	f := newFront(t, &server.Server{Guard: guard}, server.Endpoint{})
	open := newFront(t, &server.Server{}, server.Endpoint{})
	bearer := func(token string) string { return "Authorization: Bearer " + token + "\r\n" }
	for what, tt := range map[string]struct {
		at      front
		request string // method and target
		header  string
		want    int
	}{
		"bearer":                           {f, "GET " + f.path, bearer(good), 200},
		"in the query":                     {f, "GET " + f.path + "?token=" + good, "", 200},
		"in the path":                      {f, "GET /token/" + good + f.path, "", 200},
		"no token":                         {f, "GET " + f.path, "", 401},
		"a wrong token":                    {f, "GET " + f.path, bearer(good + "x"), 401},
		"a wrong token in the query":       {f, "GET " + f.path + "?token=" + good + "x", "", 401},
		"a wrong token in the path":        {f, "GET /token/" + good + "x" + f.path, "", 401},
		"an expired token":                 {f, "GET /token/" + stale + f.path, "", 401},
		"a scope that has it not":          {f, "GET /token/" + poor + f.path, "", 403},
		"a session that is none":           {f, "GET " + f.path, "Cookie: headgate_serve=" + good + "\r\n", 401},
		"trust in a header":                {f, "GET " + f.path, "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\n", 401},
		"profiles":                         {f, "GET /debug/pprof/heap", bearer(good), 404},
		"a change by a page of another":    {f, "POST /token/" + good + "/api/v1/sources/GitRepository/shop/app/reconcile", "Sec-Fetch-Site: cross-site\r\n", 403},
		"the same, of an old browser":      {f, "POST /token/" + good + "/api/v1/sources/GitRepository/shop/app/suspend", "Origin: https://evil.example\r\n", 403},
		"a login by a page of another":     {f, "POST /api/v1/session", "Sec-Fetch-Site: same-site\r\n", 403},
		"a change where nobody is known":   {open, "POST /api/v1/sources/GitRepository/shop/app/suspend", "Origin: https://evil.example\r\n", 403},
		"another host":                     {open, "GET /token/" + good + open.path, "Host: evil.example\r\n", 403},
		"the socket":                       {open, "GET /.serve.sock", "", 404},
		"a connection to somebody else":    {open, "CONNECT evil.example:443", "", 403},
		"a body that is too long":          {open, "POST /api/v1/session", "Content-Length: 999999999\r\nContent-Type: application/json\r\n", 413},
		"two lengths":                      {open, "POST /api/v1/session", "Content-Length: 1\r\nContent-Length: 2\r\n", 400},
		"an encoding of another world":     {open, "POST /api/v1/session", "Transfer-Encoding: gzip\r\n", 501},
		"a line break in a header":         {open, "GET " + open.path, "X: a\x00b\r\n", 400},
		"a path that is escaped otherwise": {open, "GET /%zz/" + good, "", 400},
	} {
		host := "Host: 127.0.0.1\r\n"
		if strings.HasPrefix(tt.header, "Host:") {
			host = ""
		}
		resp, body := tt.at.send(t, tt.request+" HTTP/1.1\r\n"+host+tt.header+"\r\n")
		if resp.StatusCode != tt.want || (body == "content") != (tt.want == 200) {
			t.Errorf("%s: %d %q, want %d", what, resp.StatusCode, body, tt.want)
		}
		if tt.want >= 401 && tt.want <= 404 && resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: caches may keep the answer: %q", what, resp.Header.Get("Cache-Control"))
		}
		if strings.Contains(body, "0123456789abcdef") {
			t.Errorf("%s: the answer has a token: %q", what, body)
		}
	}
	for _, log := range []*logLines{f.log, open.log} {
		if text := log.String(); strings.Contains(text, "0123456789abcdef") || !strings.Contains(text, "refused") {
			t.Errorf("the log has a token, or nothing:\n%s", text)
		}
	}
}

// TestLargeRequests bounds what has to be kept of a request that nobody is known of.
func TestLargeRequests(t *testing.T) {
	f := newFront(t, &server.Server{}, server.Endpoint{})
	for what, head := range map[string]string{
		"a header": "X: " + strings.Repeat("a", 80<<10), "headers": strings.Repeat("X: a\r\n", 20_000), "a cookie": "Cookie: " + strings.Repeat("a=b; ", 20_000),
	} {
		if resp, _ := f.send(t, "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n"+head+"\r\n\r\n"); resp.StatusCode != 431 && resp.StatusCode != 0 {
			t.Errorf("%s: %d", what, resp.StatusCode)
		}
	}
	if resp, _ := f.send(t, "GET /"+strings.Repeat("a/", 50<<10)+" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); resp.StatusCode/100 == 2 {
		t.Errorf("a path: %d", resp.StatusCode)
	}
}
