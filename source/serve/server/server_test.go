package server_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/source/serve/api"
	"github.com/headgate-io/headgate/source/serve/server"
)

// Callers, in the order of the columns of TestRoutes.
var tokens4 = []string{"", "token-of-all-0001", "token-of-shop-001", "token-of-reader-1", "token-of-fetcher1"}

// TestRoutes asks for every path as each of the callers.
func TestRoutes(t *testing.T) {
	r := newRig(t, true, func(r *rig) { r.server.Profiles = true })
	one, err := r.client("token-of-all-0001").Source(t.Context(), app)
	if err != nil {
		t.Fatal(err)
	}
	file := "/" + one.Artifact.Path
	for _, tt := range []struct {
		method, path string
		status       [5]int // of nobody, all, shop, reader, fetcher
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
		{"POST", "/api/v1/sources", [5]int{405, 405, 405, 405, 405}},
		{"GET", "/api/v1/sources/gitrepository/shop/app", [5]int{401, 200, 200, 200, 403}},
		{"GET", "/api/v1/sources/GitRepository/docs/site", [5]int{401, 200, 403, 200, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/nothing", [5]int{401, 404, 404, 404, 403}},
		{"GET", "/api/v1/sources/nothing/shop/app", [5]int{401, 404, 404, 404, 404}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/files", [5]int{401, 200, 200, 403, 403}},
		{"GET", "/api/v1/sources/gitrepository/shop/app/files?limit=0", [5]int{401, 400, 400, 400, 400}},
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
		{"HEAD", "/api/v1/events?follow=true", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/stats", [5]int{401, 200, 200, 200, 200}},
		{"GET", "/api/v1/session", [5]int{401, 200, 200, 200, 200}},
		{"DELETE", "/api/v1/session", [5]int{204, 204, 204, 204, 204}},
		{"PUT", "/api/v1/session", [5]int{405, 405, 405, 405, 405}},
	} {
		for i, token := range tokens4 {
			status, header, body := r.ask(tt.method, tt.path, token, "")
			if status != tt.status[i] {
				t.Errorf("%s %s as %d: %d, want %d: %s", tt.method, tt.path, i, status, tt.status[i], body)
			}
			if (status == 405) != (header.Get("Allow") != "") {
				t.Errorf("%s %s: %d with Allow %q", tt.method, tt.path, status, header.Get("Allow"))
			}
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

// TestDoc holds the list of routes in the comment of package api against those there are.
func TestDoc(t *testing.T) {
	text, err := os.ReadFile("../api/doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var listed []string
	for _, m := range regexp.MustCompile(`(?m)^//\t(GET|POST|DELETE) +/api/(\S+)`).FindAllStringSubmatch(string(text), -1) {
		path := "/api/" + strings.NewReplacer("KIND/NAMESPACE/NAME", "{kind}/{namespace}/{name}").Replace(m[2])
		listed = append(listed, m[1]+" "+path)
	}
	there := slices.DeleteFunc(server.APIRoutes(), func(route string) bool { return !strings.Contains(route, " /api/") })
	slices.Sort(listed)
	slices.Sort(there)
	if !slices.Equal(listed, there) {
		t.Errorf("package api lists\n%s\nthere are\n%s", strings.Join(listed, "\n"), strings.Join(there, "\n"))
	}
}

// TestBrowser shows what a browser gets: the page, and no answer to what a page
// of another site asks for.
func TestBrowser(t *testing.T) {
	r := newRig(t, false)
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

// TestOpen shows what needs no credential where callers have to say who they are.
func TestOpen(t *testing.T) {
	r := newRig(t, true, func(r *rig) { r.server.OpenArtifacts, r.server.OpenMetrics = true, true })
	for path, want := range map[string]int{"/bucket/shop/assets/latest.tar.gz": 200, "/metrics": 200, "/api/v1/sources": 401, "/debug/pprof/": 404} {
		if status, _, body := r.ask("GET", path, "", ""); status != want {
			t.Errorf("%s: %d, want %d: %s", path, status, want, body)
		}
	}
}

// TestCaching shows who may keep an artifact: everybody what everybody may fetch.
func TestCaching(t *testing.T) {
	for guarded, want := range map[bool]string{false: "public", true: "private"} {
		r := newRig(t, guarded)
		one, err := r.client("token-of-all-0001").Source(t.Context(), app)
		if err != nil {
			t.Fatal(err)
		}
		_, header, _ := r.ask("GET", "/"+one.Artifact.Path, "token-of-all-0001", "")
		if got := header.Get("Cache-Control"); !strings.HasPrefix(got, want) {
			t.Errorf("Cache-Control: %s, want %s", got, want)
		}
		etag := header.Get("ETag")
		if status, _, _ := r.ask("GET", "/"+one.Artifact.Path, "token-of-all-0001", "", "If-None-Match", etag); status != 304 {
			t.Errorf("a conditional request: %d", status)
		}
		if status, _, body := r.ask("GET", "/"+one.Artifact.Path, "token-of-all-0001", "", "Range", "bytes=0-9"); status != 206 || len(body) != 10 {
			t.Errorf("a range: %d, %d bytes", status, len(body))
		}
	}
}

// TestReady shows when a server is ready.
func TestReady(t *testing.T) {
	r := newRig(t, false)
	if status, _, body := r.ask("GET", "/readyz", "", ""); status != 200 {
		t.Errorf("%d %s", status, body)
	}
	r.server.Shutdown(t.Context())
	if status, header, body := r.ask("GET", "/readyz", "", ""); status != 503 || !strings.Contains(body, "shutting down") {
		t.Errorf("%d %v %s", status, header, body)
	}
	if status, _, _ := r.ask("GET", "/healthz", "", ""); status != 200 {
		t.Error("it does not serve any more")
	}
}
