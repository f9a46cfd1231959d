package server_test

import (
	"bufio"
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
	"github.com/headgate-io/headgate/source/serve/access"
	"github.com/headgate-io/headgate/source/serve/api"
)

var errEnough = errors.New("enough")

// TestWatch sees all sources that the caller may read, a change, and a removal.
func TestWatch(t *testing.T) {
	r := newRig(t, true, func(r *rig) { r.server.Controller.Retention = time.Millisecond })
	c := r.client("token-of-shop-001")
	names := map[string]bool{}
	err := c.Watch(t.Context(), api.Filter{}, func(n api.Notice) error {
		switch {
		case n.Source != nil && n.Source.Namespace != "shop":
			t.Errorf("the caller is told of %s/%s", n.Source.Namespace, n.Source.Name)
		case n.Source != nil && strings.HasSuffix(n.Source.Revision, "1"):
			r.desired <- serve.Desired{Objects: objects(t, documents)[1:]}
		case n.Source != nil:
			names[n.Source.Name] = true
		case n.Synced:
			if len(names) != 2 {
				t.Errorf("there are %v", names)
			}
			r.push("app")
			if _, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0); err != nil {
				return err
			}
		case n.Gone != nil:
			if *n.Gone != (api.Gone{Kind: "GitRepository", Namespace: "shop", Name: "app"}) {
				t.Errorf("gone is %v", n.Gone)
			}
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

// TestWatchFilter tells what the filter selects no more as gone.
func TestWatchFilter(t *testing.T) {
	r := newRig(t, false)
	c := r.client("")
	err := c.Watch(t.Context(), api.Filter{Kind: "git", Ready: "true", Name: "app"}, func(n api.Notice) error {
		switch {
		case n.Source != nil && n.Source.Name != "app":
			t.Errorf("told of %s", n.Source.Name)
		case n.Synced:
			r.fail("app", errDown)
			_, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0)
			return err
		case n.Gone != nil:
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
}

// open opens a stream as a proxy sees it.
func (r *rig) open(ctx context.Context, path, token string, header ...string) *http.Response {
	r.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+path, nil)
	if err != nil {
		r.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		r.Fatal(err)
	}
	return resp
}

// TestStream shows the form of a stream, its comments, and that it ends with the server.
func TestStream(t *testing.T) {
	r := newRig(t, false)
	for _, path := range []string{"/api/v1/watch", "/api/v1/events?follow=true"} {
		resp := r.open(t.Context(), path, "")
		defer resp.Body.Close()
		if h := resp.Header; h.Get("Content-Type") != "text/event-stream" || h.Get("X-Accel-Buffering") != "no" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %v", path, h)
		}
		comments := 0
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if lines.Text() == ":" {
				if comments++; comments == 2 && path != "/api/v1/watch" {
					r.server.Shutdown(t.Context())
				} else if comments == 2 {
					break
				}
			}
		}
	}
}

// TestStreamEnds ends the stream of a caller whose token is taken away.
func TestStreamEnds(t *testing.T) {
	name := filepath.Join(t.TempDir(), "callers.yaml")
	now := time.Now()
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokens: [{name: a, token: token-of-a-000001, expires: " + now.Add(time.Hour).UTC().Format(time.RFC3339) + "}]")
	over := make(chan struct{})
	r := newRig(t, false, func(r *rig) {
		var err error
		r.server.Guard, err = access.Open(access.Config{File: name, Now: func() time.Time {
			select {
			case <-over:
				return now.Add(2 * time.Hour)
			default:
				return now
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
	})
	resp := r.open(t.Context(), "/api/v1/watch", "token-of-a-000001")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Scan()
	close(over)
	for lines.Scan() { // until it ends
	}
	if status, _, _ := r.ask("GET", "/api/v1/sources", "token-of-a-000001", ""); status != 401 {
		t.Errorf("the token is good still: %d", status)
	}
}

// TestFollow follows events, and goes on after one.
func TestFollow(t *testing.T) {
	r := newRig(t, true)
	c := r.client("token-of-shop-001")
	var last int64
	seen := 0
	err := c.FollowEvents(t.Context(), api.EventQuery{}, func(e api.Event) error {
		if e.ID <= last || e.InvolvedObject.Namespace != "shop" {
			t.Errorf("%+v after %d", e, last)
		}
		last = e.ID
		if seen++; seen == 2 { // of app and assets
			r.push("app")
			_, _, err := c.Reconcile(t.Context(), app, api.Change{}, 0)
			return err
		}
		if e.Reason == "NewArtifact" && seen > 2 {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Error(err)
	}
	all, err := c.Events(t.Context(), api.EventQuery{After: last - 1})
	if err != nil || len(all) != 1 || all[0].ID != last {
		t.Errorf("%+v, %v", all, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resp := r.open(ctx, "/api/v1/events?follow=true", "token-of-all-0001", "Last-Event-ID", "0")
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() && !strings.HasPrefix(lines.Text(), "id: ") {
	}
	if first := "id: " + lines.Text()[4:]; first == "id: " || !lines.Scan() || !strings.HasPrefix(lines.Text(), `data: {"id":`) {
		t.Errorf("%q, %q", first, lines.Text())
	}
	if limited, err := c.Events(t.Context(), api.EventQuery{Limit: 1}); err != nil || len(limited) != 1 || limited[0].ID != last {
		t.Errorf("the newest is %+v, %v", limited, err)
	}
}

// TestFollowNewest has a caller follow the newest events of those that it may read.
func TestFollowNewest(t *testing.T) {
	r := newRig(t, true)
	all, site := r.client("token-of-all-0001"), app
	site.Namespace, site.Name = "docs", "site"
	r.push("site")
	if _, _, err := all.Reconcile(t.Context(), site, api.Change{}, 0); err != nil {
		t.Fatal(err)
	}
	err := all.FollowEvents(t.Context(), api.EventQuery{}, func(e api.Event) error {
		if e.InvolvedObject.Name == "site" && strings.Contains(e.Message, "0001") {
			return errEnough
		}
		return nil
	})
	if !errors.Is(err, errEnough) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = r.client("token-of-shop-001").FollowEvents(ctx, api.EventQuery{Limit: 1}, func(e api.Event) error {
		if e.InvolvedObject.Namespace != "shop" {
			t.Errorf("told of %+v", e.InvolvedObject)
		}
		return errEnough
	})
	if !errors.Is(err, errEnough) {
		t.Errorf("nothing is told: %v", err)
	}
}

// TestStatsAreOwn tells a caller of some namespaces nothing of what the others wait for.
func TestStatsAreOwn(t *testing.T) {
	r := newRig(t, true, func(r *rig) { r.server.Controller.Runs = 1 })
	defer r.hold("app")()
	site := source.Reference{Kind: "GitRepository", Namespace: "docs", Name: "site"}
	for _, ref := range []source.Reference{app, site} {
		if _, err := r.server.Controller.Request(ref, serve.Request); err != nil {
			t.Fatal(err)
		}
	}
	for token, knows := range map[string]bool{"token-of-all-0001": true, "token-of-shop-001": false, "token-of-fetcher1": false} {
		s, err := r.client(token).Stats(t.Context())
		if err != nil || knows != (s.Oldest > 0) {
			t.Errorf("%s: %+v, %v", token, s, err)
		}
	}
}

// TestEnded tells one who waits for a run that will not be to come again.
func TestEnded(t *testing.T) {
	r := newRig(t, false)
	release := r.hold("app")
	if _, err := r.server.Controller.Request(app, serve.Request); err != nil {
		t.Fatal(err)
	}
	status := make(chan int)
	go func() { // for the run after that
		s, _, _ := r.ask("POST", "/api/v1/sources/gitrepository/shop/app/reconcile?wait=1m", "", "")
		status <- s
	}()
	r.stop()
	release()
	if s := <-status; s != 503 {
		t.Errorf("%d", s)
	}
	if strings.Contains(r.log.String(), "could not be answered") {
		t.Errorf("it is told as a defect:\n%s", r.log)
	}
}

// TestSession shows what callers are told of themselves.
func TestSession(t *testing.T) {
	r := newRig(t, true)
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
