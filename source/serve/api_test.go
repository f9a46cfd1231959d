package serve_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/api"
)

// TestChange suspends, resumes and reconciles, and checks that the answer, the events and the log name the caller.
func TestChange(t *testing.T) {
	r := newHTTPFixture(t, true)
	shop := r.client("token-of-shop-001")
	one, err := shop.Suspend(t.Context(), app, api.Change{By: "mallory", Reason: "release freeze\x1b[1m"})
	if err != nil || one.Suspension == nil || one.Suspension.By != "shop" || !strings.HasPrefix(one.Suspension.Reason, "release freeze") || one.Phase != "suspended" || !one.Suspended {
		t.Fatalf("%+v, %v", one, err)
	}
	_, _, err = shop.Reconcile(t.Context(), app, api.Change{}, 0)
	if p := (*api.Problem)(nil); !errors.As(err, &p) || p.Status != 409 || !strings.Contains(err.Error(), "shop") {
		t.Errorf("reconcile what is suspended: %v", err)
	}
	for range 2 { // resuming an object that is not suspended only requests a run
		if one, err = shop.Resume(t.Context(), app, api.Change{}); err != nil || one.Suspension != nil {
			t.Errorf("%+v, %v", one, err)
		}
	}
	r.git("app").push()
	one, ticket, err := shop.Reconcile(t.Context(), app, api.Change{}, time.Minute)
	if err != nil || one.Last == nil || one.Last.Trigger != "request" || !strings.HasSuffix(one.Revision, "1") {
		t.Errorf("%+v, %v, %v", one, ticket, err)
	}
	events, err := shop.Events(t.Context(), api.EventQuery{Filter: api.Filter{Name: "app"}})
	messages := map[string]int{}
	for _, e := range events {
		messages[e.Reason+": "+e.Message]++
	}
	if err != nil || messages["Suspended: suspended by shop: release freeze"] != 1 || messages["Resumed: resumed by shop"] != 1 || messages["ReconcileRequested: a run was requested by shop"] != 2 {
		t.Errorf("events: %v, %v", messages, err)
	}
	if text := r.log.String(); !strings.Contains(text, "change=Suspended by=shop") {
		t.Errorf("log:\n%s", text)
	}
	site, nothing := source.Reference{Kind: "GitRepository", Namespace: "docs", Name: "site"}, source.Reference{Kind: "GitRepository", Namespace: "shop", Name: "nothing"}
	_, elsewhere := shop.Suspend(t.Context(), site, api.Change{})
	_, stranger := r.client("").Source(t.Context(), app)
	_, missing := shop.Source(t.Context(), nothing)
	for _, tt := range []struct {
		err, is error
		text    string
	}{{elsewhere, fs.ErrPermission, "HEADGATE_TOKEN"}, {stranger, fs.ErrPermission, "--token-file"}, {missing, fs.ErrNotExist, nothing.String()}, {missing, fs.ErrNotExist, r.url}} {
		if !errors.Is(tt.err, tt.is) || !strings.Contains(tt.err.Error(), tt.text) {
			t.Errorf("%v, want %v and %s", tt.err, tt.is, tt.text)
		}
	}
}

// TestChangeAuthor shows which user a change is attributed to on a server without authentication.
func TestChangeAuthor(t *testing.T) {
	r := newHTTPFixture(t, false)
	one, err := r.client("").Suspend(t.Context(), app, api.Change{By: "alice", Reason: "holidays"})
	if err != nil || one.Suspension == nil || one.Suspension.By != "alice" || one.Suspension.Reason != "holidays" || one.Suspension.Since.IsZero() {
		t.Errorf("%+v, %v", one.Suspension, err)
	}
}

// TestRuns checks which runs are recorded.
func TestRuns(t *testing.T) {
	r := newHTTPFixture(t, false)
	c := r.client("")
	again := func() {
		t.Helper()
		if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	again()
	again()
	r.git("app").fail(errRefused)
	again()
	r.git("app").fail(nil)
	r.git("app").push()
	again()
	again()
	var answer struct{ Runs []api.Run }
	must(t, c.Get(t.Context(), api.Path(app, "runs"), nil, &answer))
	runs := answer.Runs
	var got []string
	for _, run := range runs {
		got = append(got, run.Outcome)
	}
	testenv.Equal(t, got, []string{"unchanged", "stored", "failed", "unchanged", "stored"}, "the runs")
	if runs[2].Error == "" || !strings.HasSuffix(runs[1].Revision, "1") || !strings.HasSuffix(runs[2].Revision, "0") || !strings.HasSuffix(runs[4].Revision, "0") || runs[1].Why == "" || runs[0].Started.Before(runs[1].Started) {
		t.Errorf("%+v", runs)
	}
	if log := r.log.String(); strings.Contains(log, `outcome=stored took`) {
		t.Errorf("the log lacks a revision: %s", log)
	}
	for range 16 {
		r.git("app").push()
		again()
	}
	if err := c.Get(t.Context(), api.Path(app, "runs"), nil, &answer); err != nil || len(answer.Runs) != 20 {
		t.Errorf("%d runs, %v", len(answer.Runs), err)
	}
	if text := r.log.String(); !strings.Contains(text, "msg=recovered object=GitRepository/shop/app") {
		t.Errorf("no line of the recovery:\n%s", text)
	}
}

// TestFiles pages through the files of an artifact.
func TestFiles(t *testing.T) {
	c := newHTTPFixture(t, false).client("")
	want := []api.File{{Path: "README.md", Size: 50}, {Path: "bin", Dir: true}, {Path: "bin/<b>\"name\"&é.html", Size: 1}, {Path: "bin/run", Size: 10, Executable: true}}
	for name, tt := range map[string]struct {
		query string
		want  []api.File
		next  string
	}{
		"all":        {"", want, ""},
		"first":      {"limit=1", want[:1], "README.md"},
		"next":       {"limit=2&after=README.md", want[1:3], want[2].Path},
		"last":       {"limit=2&after=bin/run", nil, ""},
		"in between": {"limit=1&after=a", want[1:2], "bin"},
	} {
		query, _ := url.ParseQuery(tt.query)
		var answer struct {
			Files []api.File
			Next  string
		}
		err := c.Get(t.Context(), api.Path(app, "files"), query, &answer)
		if err != nil || answer.Next != tt.next || !slices.Equal(answer.Files, tt.want) {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
	}
}

// TestSources fills every field of a source at least once.
func TestSources(t *testing.T) {
	r := newHTTPFixture(t, false)
	c := r.client("")
	r.git("app").fail(errRefused)
	if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Suspend(t.Context(), source.Reference{Kind: "Bucket", Namespace: "shop", Name: "assets"}, api.Change{By: "alice"}); err != nil {
		t.Fatal(err)
	}
	// An object that waits for another one, and objects that are missing while a document is defective.
	added := objects(t, `
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: whole, namespace: shop}
spec: {url: "https://git.example.org/whole.git", interval: 1h, include: [{repository: {name: part}}]}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: part, namespace: shop}
spec: {url: "https://git.example.org/part.git", interval: 1h}
`)
	r.git("part").set(delayResolve(time.Hour))
	r.feed.set(serve.Desired{Objects: added, Defects: []error{errors.New("objects.yaml:3: spec.url: \x1b[1mis required https://ci:" + password + "@git.example.org")}})
	filled := map[string]bool{}
	seen := errors.New("seen")
	err := c.Watch(t.Context(), api.Filter{}, func(n api.Notice) error {
		if n.Source == nil {
			return nil
		}
		one, err := c.Source(t.Context(), source.Reference{Kind: n.Source.Kind, Namespace: n.Source.Namespace, Name: n.Source.Name})
		if err != nil {
			return err
		}
		v := reflect.ValueOf(one)
		for i := range v.NumField() {
			if !v.Field(i).IsZero() {
				filled[v.Type().Field(i).Name] = true
			}
		}
		if len(filled) == v.NumField() {
			return seen
		}
		return nil
	})
	if !errors.Is(err, seen) {
		var missing []string
		for f := range reflect.TypeFor[api.Source]().Fields() {
			if !filled[f.Name] {
				missing = append(missing, f.Name)
			}
		}
		t.Fatalf("never filled: %v; %v", missing, err)
	}
	list, defects, err := c.Sources(t.Context(), api.Filter{Kind: "gitrepos", Namespace: "shop", Ready: "false"})
	if err != nil || len(list) != 1 || list[0].Name != "app" || list[0].Origin != "https://git.example.org/app.git" {
		t.Errorf("%+v, %v", list, err)
	}
	if len(defects) != 1 || strings.Contains(defects[0], password) || strings.ContainsRune(defects[0], '\x1b') {
		t.Errorf("defects: %q", defects)
	}
	if status, _, text := r.ask("GET", "/api/v1/sources/gitrepository/shop/whole/files", "", ""); status != 404 || !strings.Contains(text, "has no artifact") {
		t.Errorf("files of nothing: %d %s", status, text)
	}
	_, _, text := r.ask("GET", "/api/v1/sources/gitrepository/shop/app", "", "", "Accept", "application/yaml")
	if !strings.Contains(text, "https://ci:xxxxx@git.example.org/app.git") || !strings.Contains(text, "status:") {
		t.Errorf("%s", text)
	}
	var stats api.Stats
	if err := c.Get(t.Context(), "stats", nil, &stats); err != nil || stats.Objects != 5 || stats.Phases["suspended"] != 1 || stats.Ready["False"] != 1 || len(stats.Defects) != 1 || stats.Started.IsZero() {
		text, _ := json.Marshal(stats)
		t.Errorf("%s, %v", text, err)
	}
}

var errStop = errors.New("enough")

// TestWatchStream checks that a watch reports all sources that the caller may read, a change and a removal.
func TestWatchStream(t *testing.T) {
	r := newHTTPFixture(t, true, func(r *httpFixture) { r.Retention = time.Millisecond })
	c := r.client("token-of-shop-001")
	names := map[string]bool{}
	err := c.Watch(t.Context(), api.Filter{}, func(n api.Notice) error {
		switch {
		case n.Source != nil && n.Source.Namespace != "shop":
			t.Errorf("the caller is told of %s/%s", n.Source.Namespace, n.Source.Name)
		case n.Source != nil && strings.HasSuffix(n.Source.Revision, "1"):
			r.feed.set(serve.Desired{Objects: objects(t, documents)[1:]})
		case n.Source != nil:
			names[n.Source.Name] = true
		case n.Synced:
			testenv.Equal(t, len(names), 2, "there are %v", names)
			r.git("app").push()
			if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0); err != nil {
				return err
			}
		case n.Gone != nil:
			testenv.Equal(t, *n.Gone, (api.Gone{Kind: "GitRepository", Namespace: "shop", Name: "app"}), "gone is %v", n.Gone)
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Error(err)
	}
}

// TestWatchFilter checks that a source that the filter no longer selects is reported as gone.
func TestWatchFilter(t *testing.T) {
	r := newHTTPFixture(t, false)
	c := r.client("")
	err := c.Watch(t.Context(), api.Filter{Kind: "git", Ready: "true", Name: "app"}, func(n api.Notice) error {
		switch {
		case n.Source != nil && n.Source.Name != "app":
			t.Errorf("told of %s", n.Source.Name)
		case n.Synced:
			r.git("app").fail(errRefused)
			_, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0)
			return err
		case n.Gone != nil:
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Error(err)
	}
}

// openStream opens a stream and returns the raw answer.
func (r *httpFixture) openStream(ctx context.Context, path, token string, header ...string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	r.must(err)
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	r.must(err)
	return resp
}

// TestStream checks the header of a stream, its comments, and that it ends with the server.
func TestStream(t *testing.T) {
	r := newHTTPFixture(t, false, func(r *httpFixture) { r.Keepalive = 20 * time.Millisecond })
	for _, path := range []string{"/api/v1/watch", "/api/v1/events?follow=true"} {
		resp := r.openStream(t.Context(), path, "")
		defer resp.Body.Close()
		if h := resp.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
		comments := 0
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() == ":" {
				if comments++; comments == 2 && path != "/api/v1/watch" {
					r.cancel()
				} else if comments == 2 {
					break
				}
			}
		}
	}
}

// TestDroppedStreams checks that no goroutine is left of streams whose clients disconnected.
func TestDroppedStreams(t *testing.T) {
	r := newHTTPFixture(t, false)
	before := runtime.NumGoroutine()
	ctx, cancel := context.WithCancel(t.Context())
	for i := range 500 {
		resp := r.openStream(ctx, []string{"/api/v1/watch", "/api/v1/events?follow=true"}[i%2], "")
		defer resp.Body.Close()
	}
	cancel()
	for runtime.NumGoroutine() > before { // until the streams have ended
		time.Sleep(time.Millisecond)
	}
}

// TestStreamEnds checks that a stream ends when the token of its caller expires.
func TestStreamEnds(t *testing.T) {
	name, began := filepath.Join(t.TempDir(), "callers.yaml"), time.Now()
	text := "tokens: [{name: a, token: token-of-a-000001, expires: " + began.Add(time.Hour).UTC().Format(time.RFC3339) + "}]"
	must(t, os.WriteFile(name, []byte(text), 0o600))
	var clockOffset atomic.Int64
	r := newHTTPFixture(t, false, func(r *httpFixture) {
		r.Keepalive = 20 * time.Millisecond
		r.Callers, _ = serve.OpenCallers(serve.CallersConfig{File: name, Now: func() time.Time { return began.Add(time.Duration(clockOffset.Load())) }})
	})
	resp := r.openStream(t.Context(), "/api/v1/watch", "token-of-a-000001")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	clockOffset.Store(int64(2 * time.Hour))
	for lines.Scan() { // until the stream ends
	}
	if status, _, _ := r.ask("GET", "/api/v1/sources", "token-of-a-000001", ""); status != 401 {
		t.Errorf("the token is good still: %d", status)
	}
}

// TestFollow follows the events that the caller may read, or only the newest of them, and resumes after an event.
func TestFollow(t *testing.T) {
	r := newHTTPFixture(t, true)
	c := r.client("token-of-shop-001")
	var last int64
	seen := 0
	err := c.FollowEvents(t.Context(), api.EventQuery{}, func(e api.Event) error {
		if e.ID <= last || e.InvolvedObject.Namespace != "shop" {
			t.Errorf("%+v after %d", e, last)
		}
		last = e.ID
		if seen++; seen == 2 { // the events of app and assets
			r.git("app").push()
			_, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0)
			return err
		}
		if seen == 4 { // the request and the new artifact, in either order
			return errStop
		}
		return nil
	})
	if !errors.Is(err, errStop) {
		t.Error(err)
	}
	for _, q := range []api.EventQuery{{After: last - 1}, {Limit: 1}} {
		if all, err := c.Events(t.Context(), q); err != nil || len(all) != 1 || all[0].ID != last {
			t.Errorf("%+v: %+v, %v", q, all, err)
		}
	}
	resp := r.openStream(t.Context(), "/api/v1/events?follow=true", "token-of-all-0001", "Last-Event-ID", "0")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "id: ") {
	}
	if first := lines.Text(); len(first) < 5 || !lines.Scan() || !strings.HasPrefix(lines.Text(), `data: {"id":`) {
		t.Errorf("%q, %q", first, lines.Text())
	}
	all, site := r.client("token-of-all-0001"), source.Reference{Kind: "GitRepository", Namespace: "docs", Name: "site"}
	r.git("site").push()
	if _, _, err := all.Reconcile(t.Context(), site, api.Change{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	for c, namespace := range map[*api.Client]string{all: "docs", c: "shop"} {
		err := c.FollowEvents(t.Context(), api.EventQuery{Limit: 1}, func(e api.Event) error {
			testenv.Equal(t, e.InvolvedObject.Namespace, namespace, "the newest is %+v", e)
			return errStop
		})
		if !errors.Is(err, errStop) {
			t.Errorf("nothing is told: %v", err)
		}
	}
}

// TestStatsScope checks that the stats for a caller of one namespace do not reveal the waiting time of others.
func TestStatsScope(t *testing.T) {
	r := newHTTPFixture(t, true, func(r *httpFixture) { r.Runs = 1 })
	r.git("app").set(delayResolve(time.Hour))
	site := source.Reference{Kind: "GitRepository", Namespace: "docs", Name: "site"}
	for _, ref := range []source.Reference{app, site} {
		if _, err := r.Request(ref, serve.Request); err != nil {
			t.Fatal(err)
		}
	}
	for token, knows := range map[string]bool{"token-of-all-0001": true, "token-of-shop-001": false, "token-of-fetcher1": false} {
		var s api.Stats
		if err := r.client(token).Get(t.Context(), "stats", nil, &s); err != nil || knows != (s.Oldest > 0) {
			t.Errorf("%s: %+v, %v", token, s, err)
		}
	}
}

// TestWaitEndsWithServer checks that a request that waits for a run is answered 503 when the server ends.
func TestWaitEndsWithServer(t *testing.T) {
	r := newHTTPFixture(t, false)
	r.git("app").set(delayResolve(time.Hour))
	if _, err := r.Request(app, serve.Request); err != nil {
		t.Fatal(err)
	}
	status := make(chan int)
	go func() { // waits for the next run
		s, _, _ := r.ask("POST", "/api/v1/sources/gitrepository/shop/app/reconcile?wait=1m", "", "")
		status <- s
	}()
	r.cancel()
	testenv.Equal(t, <-status, 503)
	if strings.Contains(r.log.String(), "could not be answered") {
		t.Errorf("it is told as a defect:\n%s", r.log)
	}
}

// TestSession checks the session of a caller, and its login and logout.
func TestSession(t *testing.T) {
	r := newHTTPFixture(t, true)
	status, header, body := r.ask("POST", "/api/v1/session", "", `{"token": "token-of-reader-1"}`)
	if status != 200 || body != `{"actor":"reader","required":true,"may":["read"]}`+"\n" {
		t.Errorf("%d %s", status, body)
	}
	cookie, _, _ := strings.Cut(header.Get("Set-Cookie"), ";")
	if status, _, body = r.ask("GET", "/api/v1/session", "", "", "Cookie", cookie); status != 200 || !strings.Contains(body, "reader") {
		t.Errorf("with the cookie: %d %s", status, body)
	}
	if status, _, _ = r.ask("DELETE", "/api/v1/session", "", "", "Cookie", cookie); status != 204 {
		t.Errorf("logout: %d", status)
	}
	if status, _, _ = r.ask("GET", "/api/v1/session", "", "", "Cookie", cookie); status != 401 {
		t.Errorf("after logout: %d", status)
	}
	if status, _, _ = r.ask("POST", "/api/v1/session", "", `{"token": "wrong"}`); status != 401 {
		t.Errorf("a wrong token: %d", status)
	}
}

// TestMetrics checks the metrics after some runs and requests.
func TestMetrics(t *testing.T) {
	r := newHTTPFixture(t, false)
	c := r.client("")
	r.git("app").fail(errRefused)
	if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, time.Minute); err != nil {
		t.Fatal(err)
	}
	_, _, content := r.ask("GET", "/bucket/shop/assets/latest.tar.gz", "", "")
	r.ask("GET", "/gitrepository/shop/app/no/such", "", "")
	r.ask("POST", "/hook/gitrepository/shop/nothing", "", "{}", "X-GitHub-Event", "push")
	_, _, body := r.ask("GET", "/metrics", "", "")
	for _, want := range []string{
		`headgate_reconcile_total{kind="GitRepository",outcome="failed",trigger="request"} 1`,
		`headgate_reconcile_total{kind="GitRepository",outcome="stored",trigger="start"} 2`,
		`headgate_reconcile_duration_seconds_count{kind="Bucket"} 1`,
		`headgate_source_ready{kind="GitRepository",name="app",namespace="shop"} 0`,
		`headgate_source_ready{kind="Bucket",name="assets",namespace="shop"} 1`,
		`headgate_sources{phase="idle"} 3`,
		`headgate_hook_requests_total{code="404",provider=""} 1`,
		`headgate_http_requests_total{code="404",route="artifact"} 1`,
		fmt.Sprintf(`headgate_artifact_served_bytes_total %d`, len(content)),
		`headgate_upstream_answers_total{by="asked"} 0`,
	} {
		if !strings.Contains(body, want+"\n") {
			t.Errorf("there is no line %s", want)
		}
	}
	if !regexp.MustCompile(`(?m)^headgate_store_free_bytes [1-9]`).MatchString(body) || !regexp.MustCompile(`(?m)^headgate_store_size_bytes [1-9]`).MatchString(body) {
		t.Error("the volume of the store is not told")
	}
	if t.Failed() {
		t.Log(body)
	}
}

const helmDocuments = `
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts, namespace: shop}
spec: {url: "https://charts.example.org", interval: 1h}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: web, namespace: shop}
spec: {chart: web, interval: 1h, sourceRef: {kind: HelmRepository, name: charts}}
`

// TestKindSpelling uses objects of the reference's API group: the API spells their kinds as the documents do,
// and the pointer of an artifact works with the kind of either group.
func TestKindSpelling(t *testing.T) {
	r := newHTTPFixture(t, false, func(r *httpFixture) { r.Retention = time.Millisecond })
	r.feed.set(serve.Desired{Objects: objects(t, documents+helmDocuments)})
	for _, ref := range []source.Reference{{Kind: "PkgRepository", Namespace: "shop", Name: "charts"}, {Kind: "PkgChart", Namespace: "shop", Name: "web"}} {
		r.waitFirstRun(ref)
	}
	if _, _, text := r.ask("GET", "/api/v1/sources/pkgrepository/shop/charts/files", "", ""); strings.Count(text, `"path"`) != 1 || !strings.Contains(text, `.yaml"`) {
		t.Errorf("files of an index: %s", text)
	}
	for path, kind := range map[string]string{
		"/api/v1/sources/helmchart/shop/web":         `"kind":"HelmChart"`,
		"/api/v1/sources/pkgchart/shop/web":          `"kind":"HelmChart"`,
		"/api/v1/sources/helmrepository/shop/charts": `"kind":"HelmRepository"`,
	} {
		if status, _, body := r.ask("GET", path, "", ""); status != 200 || !strings.Contains(body, kind) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	for _, pointer := range []string{"repository/shop/charts/index.yaml", "chart/shop/web/latest.tar.gz"} {
		status, header, want := r.ask("GET", "/pkg"+pointer, "", "")
		if status != 200 || want == "" {
			t.Fatalf("pkg%s: %d", pointer, status)
		}
		status, other, got := r.ask("GET", "/helm"+pointer, "", "")
		if status != 200 || got != want || other.Get("Etag") != header.Get("Etag") {
			t.Errorf("helm%s: %d, %v instead of %v", pointer, status, other, header)
		}
	}
	if status, _, _ := r.ask("GET", "/HelmChart/shop/web/latest.tar.gz", "", ""); status != 404 {
		t.Errorf("a kind in capitals: %d", status)
	}
	goneKinds := []string{}
	err := r.client("").Watch(t.Context(), api.Filter{Namespace: "shop"}, func(n api.Notice) error {
		switch {
		case n.Synced:
			r.feed.set(serve.Desired{Objects: objects(t, documents)})
		case n.Gone != nil:
			if goneKinds = append(goneKinds, n.Gone.Kind); len(goneKinds) == 2 {
				return errStop
			}
		}
		return nil
	})
	if slices.Sort(goneKinds); err != errStop || !slices.Equal(goneKinds, []string{"HelmChart", "HelmRepository"}) {
		t.Errorf("kinds of deleted sources: %v, %v", goneKinds, err)
	}
}
