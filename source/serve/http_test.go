package serve_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/httpserve"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/journal"
)

// Secrets that no answer may contain.
const (
	password = "c4n4ry-password"
	sasToken = "c4n4ry-signature"
)

// An httpFixture is a fixture that serves HTTP.
type httpFixture struct {
	*fixture
	url    string
	socket string
	path   string // of the artifact of app
	log    *logBuffer
}

// logBuffer collects a log. It is safe for concurrent use.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// documents are the objects of an httpFixture, in two namespaces.
const documents = `
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app, namespace: shop}
spec: {url: "https://ci:` + password + `@git.example.org/app.git", interval: 1h}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: site, namespace: docs}
spec: {url: "https://git.example.org/site.git", interval: 1h}
---
apiVersion: source.headgate.dev/v1
kind: Bucket
metadata: {name: assets, namespace: shop}
spec: {provider: azure, endpoint: "https://a.example.org/?sig=` + sasToken + `", bucketName: assets, interval: 1h}
`

const callers = `
tokens:
- {name: all, token: token-of-all-0001, may: [fetch, read, change, debug]}
- {name: shop, token: token-of-shop-001, namespaces: [shop]}
- {name: reader, token: token-of-reader-1, may: [read]}
- {name: fetcher, token: token-of-fetcher1, may: [fetch]}
`

func objects(t *testing.T, text string) []source.Object {
	t.Helper()
	set := new(source.Set)
	must(t, set.Decode("test", strings.NewReader(text)))
	return set.Objects
}

// callersOf returns the callers of a file with a text.
func callersOf(t *testing.T, text string) *serve.Callers {
	t.Helper()
	name := filepath.Join(t.TempDir(), "callers.yaml")
	must(t, os.WriteFile(name, []byte(text), 0o600))
	c, err := serve.OpenCallers(serve.CallersConfig{File: name})
	must(t, err)
	return c
}

// newHTTPFixture returns an httpFixture whose objects have run. If guarded is true, callers must authenticate.
func newHTTPFixture(t *testing.T, guarded bool, adjust ...func(*httpFixture)) *httpFixture {
	t.Helper()
	r := &httpFixture{fixture: newFixture(t), log: new(logBuffer)}
	dir := t.TempDir()
	events, err := journal.Open(journal.Config{Dir: filepath.Join(dir, "events")})
	r.must(err)
	r.Journal = events
	r.Config.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r.Origin = func(obj source.Object, env source.Env) (source.Origin, error) {
		from, err := r.origin(obj, env)
		return archiveOrigin{from, threeFiles}, err
	}
	if guarded {
		r.Callers = callersOf(t, callers)
	}
	for _, f := range adjust {
		f(r)
	}
	r.Server = newServer(t, r.Config)
	if runtime.GOOS != "windows" {
		r.socket = filepath.Join(dir, "s")
	}
	l, err := httpserve.Listen(httpserve.Endpoint{Addr: "127.0.0.1:0", Socket: r.socket}, r.Callers.Required(), "", nil)
	r.must(err)
	r.url = l.URL
	serving, end := context.WithCancel(context.Background())
	served := make(chan error)
	go func() {
		served <- l.Serve(serving, r.Handler(), r.Config.Log, func(context.Context) error { return nil })
	}()
	r.feed.now.Objects = objects(t, documents)
	ctx, cancel := context.WithCancel(context.Background())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx) }()
	t.Cleanup(func() {
		r.stop()
		end()
		r.must(<-served, events.Close())
	})
	for _, obj := range r.feed.now.Objects {
		r.waitFirstRun(source.ReferenceTo(obj))
	}
	v, _ := r.View(app)
	r.path = "/" + v.Object.Artifact().Path
	return r
}

var app = source.Reference{Kind: "GitRepository", Namespace: "shop", Name: "app"}

// waitFirstRun waits for the first run of an object.
func (r *httpFixture) waitFirstRun(ref source.Reference) {
	r.Helper()
	for err := error(fs.ErrNotExist); err != nil; _, err = r.Wait(r.Context(), ref, 1) {
		if r.Context().Err() != nil {
			r.Fatal(err)
		}
	}
}

// git returns the upstream of a Git repository of an httpFixture.
func (r *httpFixture) git(name string) *upstream {
	return r.upstream("https://git.example.org/" + name + ".git")
}

func threeFiles(id string) fstest.MapFS {
	return fstest.MapFS{
		"README.md":              {Data: []byte(id)},
		"bin/run":                {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"bin/<b>\"name\"&é.html": {Data: []byte("x")},
	}
}

// ask sends a request and returns status, header and body of the answer.
func (r *httpFixture) ask(method, path, token, body string, header ...string) (int, http.Header, string) {
	r.Helper()
	req, err := http.NewRequestWithContext(r.Context(), method, r.url+path, strings.NewReader(body))
	r.must(err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	c := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := c.Do(req)
	r.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	r.must(err)
	return resp.StatusCode, resp.Header, string(text)
}

// client returns a client of the API.
func (r *httpFixture) client(token string) *api.Client { return &api.Client{Base: r.url, Token: token} }

// callerTokens are the tokens of the callers, in the order of the columns of TestRoutes.
var callerTokens = []string{"", "token-of-all-0001", "token-of-shop-001", "token-of-reader-1", "token-of-fetcher1"}

// TestRoutes requests every path as each of the callers.
func TestRoutes(t *testing.T) {
	r := newHTTPFixture(t, true, func(r *httpFixture) { r.Profiles = true })
	file := r.path
	for _, tt := range []struct {
		method, path string
		status       [5]int // without a token, and for all, shop, reader, fetcher
	}{
		{"GET", "/", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/healthz", [5]int{200, 200, 200, 200, 200}},
		{"HEAD", "/healthz", [5]int{200, 200, 200, 200, 200}},
		{"POST", "/healthz", [5]int{405, 405, 405, 405, 405}},
		{"GET", "//healthz", [5]int{200, 200, 200, 200, 200}},
		{"GET", "/healthz/", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/readyz", [5]int{200, 200, 200, 200, 200}},
		{"GET", "/metrics", [5]int{401, 200, 403, 200, 403}},
		{"POST", "/metrics", [5]int{405, 405, 405, 405, 405}},
		{"GET", "/debug/pprof/", [5]int{401, 200, 403, 403, 403}},
		{"GET", "/debug/pprof/goroutine", [5]int{401, 200, 403, 403, 403}},
		{"GET", "/debug/pprof/cmdline", [5]int{401, 404, 403, 403, 403}},
		{"GET", "/debug/pprof/nothing", [5]int{401, 404, 403, 403, 403}},
		{"GET", "/debug/vars", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/ui/", [5]int{200, 200, 200, 200, 200}},
		{"GET", file, [5]int{401, 200, 200, 403, 200}},
		{"HEAD", file, [5]int{401, 200, 200, 403, 200}},
		{"PUT", file, [5]int{405, 405, 405, 405, 405}},
		{"GET", strings.Replace(file, "/", "//", 3), [5]int{401, 200, 200, 403, 200}},
		{"GET", "/gitrepository/shop/app/latest.tar.gz", [5]int{401, 404, 404, 403, 404}},
		{"GET", "/bucket/shop/assets/latest.tar.gz", [5]int{401, 200, 200, 403, 200}},
		{"GET", "/gitrepository/docs/site/latest.tar.gz", [5]int{401, 404, 403, 403, 404}},
		{"GET", "/gitrepository/shop/app", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/gitrepository/shop/app/.x/y", [5]int{401, 404, 404, 403, 404}},
		{"GET", "/nothing/shop/app/x/y", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/.status/gitrepository/shop/app.yaml", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/.locks/shop/app/x", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/api", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/api/v1/", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/api/v2/sources", [5]int{404, 404, 404, 404, 404}},
		{"GET", "/api/v1/sources", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/sources?kind=helmrepo&ready=true", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/sources?kind=nothing", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/sources?ready=perhaps", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/sources?order=up", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/sources?name=app&name=site", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/sources?name=%zz", [5]int{401, 400, 400, 400, 400}},
		{"POST", "/api/v1/sources", [5]int{405, 405, 405, 405, 405}},
		{"GET", "/api/v1/sources/gitrepository/shop/app", [5]int{401, 200, 200, 200, 403}},
		{"GET", "/api/v1/sources/GitRepository/docs/site", [5]int{401, 200, 403, 200, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/nothing", [5]int{401, 404, 404, 404, 403}},
		{"GET", "/api/v1/sources/nothing/shop/app", [5]int{401, 404, 404, 404, 404}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/files", [5]int{401, 200, 200, 403, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/files?limit=0", [5]int{401, 400, 400, 403, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/runs", [5]int{401, 200, 200, 200, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/reconcile", [5]int{405, 405, 405, 405, 405}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/reconcile", [5]int{401, 202, 202, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/reconcile?wait=1m", [5]int{401, 200, 200, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/reconcile?wait=forever", [5]int{401, 400, 400, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/docs/site/reconcile", [5]int{401, 202, 403, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/suspend", [5]int{401, 200, 200, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/reconcile", [5]int{401, 409, 409, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/app/resume", [5]int{401, 200, 200, 403, 403}},
		{"POST", "/api/v1/sources/gitrepository/shop/nothing/suspend", [5]int{401, 404, 404, 403, 403}},
		{"HEAD", "/api/v1/watch", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/events", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/events?severity=loud", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/events?since=yesterday", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/events?after=-1", [5]int{401, 400, 400, 400, 400}},
		{"GET", "/api/v1/events?follow=perhaps", [5]int{401, 400, 400, 400, 400}},
		{"HEAD", "/api/v1/events?follow=true", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/stats", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/session", [5]int{401, 200, 200, 200, 200}},
		{"DELETE", "/api/v1/session", [5]int{204, 204, 204, 204, 204}},
		{"PUT", "/api/v1/session", [5]int{405, 405, 405, 405, 405}},
	} {
		for i, token := range callerTokens {
			status, header, body := r.ask(tt.method, tt.path, token, "")
			if status != tt.status[i] {
				t.Errorf("%s %s as %d: %d, want %d: %s", tt.method, tt.path, i, status, tt.status[i], body)
			}
			testenv.Equal(t, status == 405, header.Get("Allow") != "", "%s %s: %d with Allow %q", tt.method, tt.path, status, header.Get("Allow"))
			if status == 401 && header.Get("WWW-Authenticate") == "" {
				t.Errorf("%s %s: 401 without WWW-Authenticate", tt.method, tt.path)
			}
			var p api.Problem
			if strings.HasPrefix(tt.path, "/api/") && status >= 400 && tt.method != "HEAD" && (json.Unmarshal([]byte(body), &p) != nil || p.Status != status || p.Reason == "") {
				t.Errorf("%s %s: the problem is %s", tt.method, tt.path, body)
			}
			if strings.Contains(body, password) || strings.Contains(body, sasToken) {
				t.Errorf("%s %s: a credential is answered: %s", tt.method, tt.path, body)
			}
		}
	}
	if text := r.log.String(); strings.Contains(text, password) || strings.Contains(text, sasToken) || strings.Contains(text, "token-of-") {
		t.Errorf("a credential is in the log:\n%s", text)
	}
}

// TestScopes checks what the scopes of callers allow, also for objects that do not exist, and that the log contains
// the kind of each refusal.
func TestScopes(t *testing.T) {
	r := newHTTPFixture(t, false, func(r *httpFixture) {
		r.Profiles = true
		r.Callers = callersOf(t, `
tokens:
- {name: all, token: 0000000000000000-all}
- {name: debugs, token: 0000000000000000-debugs, may: [debug]}
- {name: fetches, token: 0000000000000000-fetches, may: [fetch]}
- {name: shop, token: 0000000000000000-shop, namespaces: [shop, "team-*"], may: [read, change, debug]}
- {name: charts, token: 0000000000000000-charts, kinds: [HelmChart], may: [read, debug]}
- {name: helm, token: 0000000000000000-helm, kinds: ["Helm*"]}
- {name: pkg, token: 0000000000000000-pkg, kinds: [PkgChart, git*]}
- {name: none, token: 0000000000000000-none, namespaces: []}
- {name: old, token: 0000000000000000-old, expires: 2001-01-01T00:00:00Z}
`)
	})
	paths := map[string]string{ // by permission, with %s for the object
		"fetch": "GET /%s/x.tar.gz", "read": "GET /api/v1/sources/%s", "change": "POST /api/v1/sources/%s/suspend", "debug": "GET /debug/pprof/goroutine%.0s",
	}
	for _, tt := range []struct{ token, what, object, kind string }{ // kind is that of the denial, "" for none
		{"all", "fetch", "gitrepository/x/app", ""},
		{"all", "change", "bucket/x/app", ""},
		{"all", "debug", "", "may"}, // debug must be listed explicitly
		{"debugs", "debug", "", ""},
		{"debugs", "read", "bucket/x/app", "may"},
		{"fetches", "fetch", "bucket/x/app", ""},
		{"fetches", "read", "bucket/x/app", "may"},
		{"fetches", "change", "bucket/x/app", "may"},
		{"shop", "read", "bucket/shop/app", ""},
		{"shop", "change", "bucket/team-a/app", ""},
		{"shop", "read", "bucket/shop2/app", "namespace"},
		{"shop", "read", "bucket/my-team-a/app", "namespace"},
		{"shop", "fetch", "bucket/shop/app", "may"},
		{"shop", "debug", "", "namespace"}, // profiles concern all namespaces
		{"charts", "read", "pkgchart/x/app", ""},
		{"charts", "read", "helmchart/x/app", ""},
		{"charts", "read", "pkgrepository/x/app", "kind"},
		{"charts", "debug", "", "kind"},
		{"helm", "read", "pkgchart/x/app", ""},
		{"helm", "fetch", "pkgrepository/x/app", ""},
		{"helm", "fetch", "gitrepository/x/app", "kind"},
		{"pkg", "fetch", "pkgchart/x/app", ""},
		{"pkg", "fetch", "gitrepository/x/app", "kind"}, // patterns are case-sensitive
		{"none", "read", "bucket/x/app", "namespace"},
		{"old", "read", "bucket/x/app", "expired"},
	} {
		before := len(r.log.String())
		method, path, _ := strings.Cut(fmt.Sprintf(paths[tt.what], tt.object), " ")
		status, _, body := r.ask(method, path, "0000000000000000-"+tt.token, "")
		want := http.StatusNotFound
		switch {
		case tt.kind == "expired":
			want = http.StatusUnauthorized
		case tt.kind != "":
			want = http.StatusForbidden
		case tt.what == "debug":
			want = http.StatusOK
		}
		log := r.log.String()[before:]
		if attrs := "reason=" + tt.kind + " actor=" + tt.token; status != want || strings.Contains(log, "msg=refused") != (tt.kind != "") || tt.kind != "" && !strings.Contains(log, attrs) {
			t.Errorf("%s: %s %s: %d %.80s, want %d: %s", tt.token, tt.what, tt.object, status, body, want, log)
		}
	}
}

// TestCallersFile checks that the error of a file of callers names the invalid field, and contains no token.
func TestCallersFile(t *testing.T) {
	const token = "token: 0123456789abcdef-secret"
	for text, want := range map[string]string{
		"tokens: [{name: a, " + token + ", may: [write]}]":         `tokens[0].may[0]: "write" is nothing that callers may do`,
		"tokens: [{name: a, " + token + ", may: ['*']}]":           "want one of fetch, read, change, debug",
		"tokens:\n- name: a\n  " + token + "\n  may:\n":            "leave it out for all but debug, write [] for none",
		"tokens: [{name: a, " + token + ", kinds: [Deployment]}]":  `"Deployment" is no kind`,
		"tokens: [{name: a, " + token + ", namespaces: ['a.*b']}]": "is no namespace",
		"tokens: [{name: a, " + token + ", gates: [x]}]":           "tokens[0].gates: unknown field",
	} {
		name := filepath.Join(t.TempDir(), "callers.yaml")
		must(t, os.WriteFile(name, []byte(text), 0o600))
		if _, err := serve.OpenCallers(serve.CallersConfig{File: name}); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestBrowser checks that a browser is redirected to the page, and that requests from a page of another site are
// refused.
func TestBrowser(t *testing.T) {
	r := newHTTPFixture(t, false)
	status, header, _ := r.ask("GET", "/", "", "", "Accept", "text/html,*/*")
	if status != 303 || header.Get("Location") != "ui/" {
		t.Errorf("/: %d %s", status, header.Get("Location"))
	}
	if _, header, _ = r.ask("GET", "/token/some-token", "", "", "Accept", "text/html"); header.Get("Location") != "./some-token/ui/" {
		t.Errorf("with a token in the path: %s", header.Get("Location"))
	}
	status, _, body := r.ask("POST", "/api/v1/sources/gitrepository/shop/app/suspend", "", "", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if status != 403 {
		t.Errorf("a page of another site: %d %s", status, body)
	}
	if status, _, body = r.ask("POST", "/api/v1/sources/gitrepository/shop/app/suspend", "", `{"reason": "x", "extra": 1}`); status != 400 {
		t.Errorf("an unknown field: %d %s", status, body)
	}
	if status, _, body = r.ask("POST", "/api/v1/sources/gitrepository/shop/app/suspend", "", `{"reason": "`+strings.Repeat("x", 2000)+`"}`); status != 400 {
		t.Errorf("a long reason: %d %s", status, body)
	}
}

// TestOpenPaths checks which paths need no credential on a server whose callers must authenticate.
func TestOpenPaths(t *testing.T) {
	r := newHTTPFixture(t, true, func(r *httpFixture) { r.OpenArtifacts, r.OpenMetrics = true, true })
	for path, want := range map[string]int{"/bucket/shop/assets/latest.tar.gz": 200, "/metrics": 200, "/api/v1/sources": 401, "/debug/pprof/": 404} {
		if status, _, body := r.ask("GET", path, "", ""); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
}

// TestCaching checks that shared caches may store an artifact only if all callers may fetch it.
func TestCaching(t *testing.T) {
	for guarded, want := range map[bool]string{false: "public", true: "private"} {
		r := newHTTPFixture(t, guarded)
		_, header, _ := r.ask("GET", r.path, "token-of-all-0001", "")
		if got := header.Get("Cache-Control"); !strings.HasPrefix(got, want) {
			t.Errorf("Cache-Control: %s, want %s", got, want)
		}
		etag := header.Get("ETag")
		if status, _, _ := r.ask("GET", r.path, "token-of-all-0001", "", "If-None-Match", etag); status != 304 {
			t.Errorf("a conditional request: %d", status)
		}
		if status, _, body := r.ask("GET", r.path, "token-of-all-0001", "", "Range", "bytes=0-9"); status != 206 || len(body) != 10 {
			t.Errorf("a range: %d, %d bytes", status, len(body))
		}
	}
}

// TestReadyz checks when a server is ready.
func TestReadyz(t *testing.T) {
	r := newHTTPFixture(t, false)
	if status, _, body := r.ask("GET", "/readyz", "", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	r.cancel()
	status, body := 200, ""
	for status == 200 { // until the server begins to shut down
		status, _, body = r.ask("GET", "/readyz", "", "")
	}
	if status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("%d %s", status, body)
	}
	if status, _, _ := r.ask("GET", "/healthz", "", ""); status != 200 {
		t.Error("it does not serve any more")
	}
}

// A request before the first Desired of the feed is answered when that arrives, or when the server ends.
func TestRequestBeforeFirstDesired(t *testing.T) {
	for _, want := range []int{http.StatusOK, http.StatusServiceUnavailable} {
		requested, answered := make(chan struct{}), make(chan *httptest.ResponseRecorder, 1)
		r := newHTTPFixture(t, false)
		c := r.Config
		c.Feed = feedFunc(func(ctx context.Context, set func(serve.Desired)) error {
			if <-requested; want == http.StatusOK {
				set(serve.Desired{Objects: objects(t, documents)})
			}
			<-ctx.Done()
			return nil
		})
		s := newServer(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		go func() {
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://localhost/api/v1/sources/gitrepository/shop/app", nil))
			answered <- w
		}()
		if close(requested); want != http.StatusOK {
			cancel()
		}
		if w := <-answered; w.Code != want {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		cancel()
		testenv.Equal(t, <-ended, nil)
	}
}

// sendRaw sends the text of a request unchanged and returns the answer. Its status is 0 if the connection ends without an
// answer.
func (r *httpFixture) sendRaw(text string) (*http.Response, string) {
	r.Helper()
	c, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	r.must(err)
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
	validToken, scopedToken, expiredToken = "0123456789abcdef-good", "0123456789abcdef-poor", "0123456789abcdef-stale"
	knownCallers                          = `
tokens:
- {name: good, token: ` + validToken + `}
- {name: poor, token: ` + scopedToken + `, namespaces: [other]}
- {name: stale, token: ` + expiredToken + `, expires: 2001-01-01T00:00:00Z}
`
)

// TestHostileRequests checks that requests that are not authenticated, not allowed or sent by another site are refused,
// and that the log contains no token.
func TestHostileRequests(t *testing.T) {
	f := newHTTPFixture(t, false, func(r *httpFixture) { r.Callers = callersOf(t, knownCallers) })
	open := newHTTPFixture(t, false)
	bearer := func(token string) string { return "Authorization: Bearer " + token + "\r\n" }
	for name, tt := range map[string]struct {
		at      *httpFixture
		request string // method and target
		header  string
		want    int
	}{
		"bearer":                           {f, "GET " + f.path, bearer(validToken), 200},
		"in the query":                     {f, "GET " + f.path + "?token=" + validToken, "", 200},
		"in the path":                      {f, "GET /token/" + validToken + f.path, "", 200},
		"no token":                         {f, "GET " + f.path, "", 401},
		"a wrong token":                    {f, "GET " + f.path, bearer(validToken + "x"), 401},
		"a wrong token in the query":       {f, "GET " + f.path + "?token=" + validToken + "x", "", 401},
		"a wrong token in the path":        {f, "GET /token/" + validToken + "x" + f.path, "", 401},
		"an expired token":                 {f, "GET /token/" + expiredToken + f.path, "", 401},
		"a scope that has it not":          {f, "GET /token/" + scopedToken + f.path, "", 403},
		"a session that is none":           {f, "GET " + f.path, "Cookie: headgate_serve=" + validToken + "\r\n", 401},
		"trust in a header":                {f, "GET " + f.path, "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: ::1\r\n", 401},
		"profiles":                         {f, "GET /debug/pprof/heap", bearer(validToken), 404},
		"a change by a page of another":    {f, "POST /token/" + validToken + "/api/v1/sources/GitRepository/shop/app/reconcile", "Sec-Fetch-Site: cross-site\r\n", 403},
		"the same, of an old browser":      {f, "POST /token/" + validToken + "/api/v1/sources/GitRepository/shop/app/suspend", "Origin: https://evil.example\r\n", 403},
		"a login by a page of another":     {f, "POST /api/v1/session", "Sec-Fetch-Site: same-site\r\n", 403},
		"a change where nobody is known":   {open, "POST /api/v1/sources/GitRepository/shop/app/suspend", "Origin: https://evil.example\r\n", 403},
		"another host":                     {open, "GET /token/" + validToken + open.path, "Host: evil.example\r\n", 403},
		"the socket":                       {open, "GET /.serve.sock", "", 404},
		"a connection to somebody else":    {open, "CONNECT evil.example:443", "", 403},
		"a body that is too long":          {open, "POST /api/v1/session", "Content-Length: 999999999\r\nContent-Type: application/json\r\n", 413},
		"two lengths":                      {open, "POST /api/v1/session", "Content-Length: 1\r\nContent-Length: 2\r\n", 400},
		"an encoding of another world":     {open, "POST /api/v1/session", "Transfer-Encoding: gzip\r\n", 501},
		"a line break in a header":         {open, "GET " + open.path, "X: a\x00b\r\n", 400},
		"a path that is escaped otherwise": {open, "GET /%zz/" + validToken, "", 400},
	} {
		host := "Host: 127.0.0.1\r\n"
		if strings.HasPrefix(tt.header, "Host:") {
			host = ""
		}
		resp, body := tt.at.sendRaw(tt.request + " HTTP/1.1\r\n" + host + tt.header + "\r\n")
		if resp.StatusCode != tt.want || (resp.Header.Get("Repr-Digest") != "") != (tt.want == 200) {
			t.Errorf("%s: %d %q, want %d", name, resp.StatusCode, body, tt.want)
		}
		if tt.want >= 401 && tt.want <= 404 && resp.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: caches may keep the answer: %q", name, resp.Header.Get("Cache-Control"))
		}
		if strings.Contains(body, "0123456789abcdef") {
			t.Errorf("%s: the answer has a token: %q", name, body)
		}
	}
	for _, log := range []*logBuffer{f.log, open.log} {
		if text := log.String(); strings.Contains(text, "0123456789abcdef") || !strings.Contains(text, "refused") {
			t.Errorf("the log has a token, or nothing:\n%s", text)
		}
	}
}

// TestLargeRequests checks the limits for the header and path of a request without a credential.
func TestLargeRequests(t *testing.T) {
	f := newHTTPFixture(t, false)
	for name, head := range map[string]string{
		"a header": "X: " + strings.Repeat("a", 80<<10), "headers": strings.Repeat("X: a\r\n", 20_000), "a cookie": "Cookie: " + strings.Repeat("a=b; ", 20_000),
	} {
		if resp, _ := f.sendRaw("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + head + "\r\n\r\n"); resp.StatusCode != 431 && resp.StatusCode != 0 {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
	if resp, _ := f.sendRaw("GET /" + strings.Repeat("a/", 50<<10) + " HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); resp.StatusCode/100 == 2 {
		t.Errorf("a path: %d", resp.StatusCode)
	}
}

// Callers that use the socket may do everything, whatever credential they send.
func TestSocket(t *testing.T) {
	f := newHTTPFixture(t, false, func(r *httpFixture) { r.Callers, r.Profiles = callersOf(t, knownCallers), true })
	if f.socket == "" {
		t.Skip("there are no sockets here")
	}
	unix := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return httpserve.DialSocket(ctx, f.socket)
	}}}
	for _, path := range []string{f.path, "/debug/pprof/goroutine", "/metrics"} {
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://evil.example"+path+"?token=0123456789abcdef-wrong", nil)
		req.Header.Set("Authorization", "Bearer "+scopedToken)
		resp, err := unix.Do(req)
		must(t, err)
		if resp.Body.Close(); resp.StatusCode != 200 {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// A fileRecorder is a ResponseWriter that, like that of net/http, is an [io.ReaderFrom] for files.
type fileRecorder struct {
	*httptest.ResponseRecorder
	fileBytes int64 // bytes that were copied directly from files
}

func (c *fileRecorder) ReadFrom(r io.Reader) (int64, error) {
	n, err := io.Copy(c.ResponseRecorder, r)
	if l, ok := r.(*io.LimitedReader); ok {
		if _, ok := l.R.(*os.File); ok {
			c.fileBytes += n
		}
	}
	return n, err
}

// TestArtifactsAreSentAsFiles checks that the file of an artifact is passed directly to the connection, which can then
// use sendfile.
func TestArtifactsAreSentAsFiles(t *testing.T) {
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	defer store.Close()
	const size = 3 << 20
	a, err := store.Put(t.Context(), "gitrepository/default/app", "app.tar.gz", func(w io.Writer) error {
		_, err := w.Write(make([]byte, size))
		return err
	})
	must(t, err)
	s := newServer(t, serve.Config{Store: store, Callers: callersOf(t, "tokens: [{name: ci, token: 0123456789abcdef-ci}]")})
	for name, tt := range map[string]struct {
		ranges string
		want   int64
	}{"all": {"", size}, "a range": {"bytes=1000-2000999", 2_000_000}} {
		r := httptest.NewRequest(http.MethodGet, "/token/0123456789abcdef-ci/"+a.Path, nil)
		if tt.ranges != "" {
			r.Header.Set("Range", tt.ranges)
		}
		w := &fileRecorder{ResponseRecorder: httptest.NewRecorder()}
		s.Handler().ServeHTTP(w, r)
		if w.Code/100 != 2 || w.fileBytes != tt.want || int64(w.Body.Len()) != tt.want {
			t.Errorf("%s: %d, %d bytes of %d as files", name, w.Code, w.fileBytes, w.Body.Len())
		}
	}
}
