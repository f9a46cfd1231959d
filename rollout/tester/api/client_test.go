package api_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

var key = api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "a/b c"}

// TestRequests checks the requests of the client against the package documentation.
func TestRequests(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got = strings.TrimSpace(r.Method + " " + r.RequestURI + " " + string(body))
		testenv.Equal(t, r.Header.Get("Authorization"), "Bearer s3cret", "Authorization")
		io.WriteString(w, `{"gates": [{"kind":"gate","name":"web","open":true}], "entries": [{"id":7}], "runs": [{"id":"r"}], "id": "r", "name": "web"}`)
	}))
	defer server.Close()
	c := &api.Client{URL: server.URL + "/deep%2Fer/at/", Token: "s3cret"}
	ctx := t.Context()
	at := "/deep%2Fer/at/api/v1/"
	for _, test := range []struct {
		want string
		call func() error
	}{
		{"GET " + at + "gates", func() error {
			gates, err := c.Gates(ctx, api.Filter{})
			if len(gates) != 1 || !gates[0].Open || gates[0].Kind != api.KindGate {
				t.Errorf("gates %v", gates)
			}
			return err
		}},
		{"GET " + at + "gates?kind=gate&name=w%26b&namespace=prod&waiting=true", func() error {
			_, err := c.Gates(ctx, api.Filter{Kind: api.KindGate, Namespace: "prod", Name: "w&b", Waiting: true})
			return err
		}},
		{"GET " + at + "gates/gate/prod/web/a%2Fb%20c", func() error { _, err := c.Gate(ctx, key); return err }},
		{"POST " + at + `gates/gate/prod/web/a%2Fb%20c/open {"mode":"sticky","ttl":"1h","reason":"go"}`, func() error {
			_, err := c.Change(ctx, "open", key, api.Change{Mode: api.Sticky, TTL: "1h", Reason: "go"})
			return err
		}},
		{"POST " + at + "gates/gate/prod/web/a%2Fb%20c/close {}", func() error { _, err := c.Change(ctx, "close", key, api.Change{}); return err }},
		{"POST " + at + "gates/gate/prod/web/a%2Fb%20c/reject {}", func() error { _, err := c.Change(ctx, "reject", key, api.Change{}); return err }},
		{"POST " + at + `gates/gate/prod/web/a%2Fb%20c/link {"ttl":"60"}`, func() error { _, err := c.Link(ctx, key, api.LinkRequest{TTL: "60"}); return err }},
		{"GET " + at + "audit?before=9&gate=x&limit=5", func() error {
			entries, err := c.Audit(ctx, api.Filter{Gate: "x", Limit: 5, Before: "9"})
			if len(entries) != 1 || entries[0].ID != 7 {
				t.Errorf("entries %v", entries)
			}
			return err
		}},
		{"GET " + at + "runs?state=failed&type=cmd", func() error { _, err := c.Runs(ctx, api.Filter{Type: "cmd", State: api.Failed}); return err }},
		{"GET " + at + "runs/r%3F1", func() error { _, err := c.Run(ctx, "r?1"); return err }},
		{"POST " + at + "runs/r/cancel", func() error { _, err := c.Cancel(ctx, "r"); return err }},
		{"GET " + at + "runs/r/output?follow=true", func() error { return c.Output(ctx, "r", true, io.Discard) }},
	} {
		if err := test.call(); err != nil || got != test.want {
			t.Errorf("got  %s\nwant %s\n%v", got, test.want, err)
		}
	}
	got = ""
	for _, k := range []api.Key{{}, {Kind: api.KindGate, Namespace: "..", Name: "x", Gate: "y"}, {Kind: api.KindGate, Namespace: "a", Name: ".", Gate: "y"}} {
		if _, err := c.Change(ctx, "open", k, api.Change{}); err == nil || got != "" {
			t.Errorf("%v: %v %q", k, err, got)
		}
	}
}

// TestProblems checks the errors of wrong answers, and that they contain neither token nor terminal sequences.
func TestProblems(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was called, Authorization %q", r.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	mux := http.NewServeMux()
	answer := func(path string, status int, kind, body string) {
		mux.HandleFunc(path+"/api/v1/gates/gate/prod/web/a/open", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.WriteHeader(status)
			io.WriteString(w, body)
		})
	}
	answer("/problem", 403, "application/json", `{"status": 999, "reason": "not for s3cret-token\u001b[2J"}`)
	answer("/plain", 429, "text/plain; charset=utf-8", "busy\n")
	answer("/page", 502, "text/html", "<h1>proxy</h1>")
	answer("/long", 400, "text/plain", strings.Repeat("é", 1<<20))
	answer("/other", 200, "text/html", "<h1>hello</h1>")
	mux.HandleFunc("/away/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL+"/?token=s3cret-token", http.StatusTemporaryRedirect)
	})
	mux.HandleFunc("/get/", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/problem/", http.StatusSeeOther) })
	mux.HandleFunc("/loop/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Path, http.StatusPermanentRedirect)
	})
	mux.HandleFunc("/moved/", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/problem"+strings.TrimPrefix(r.URL.Path, "/moved"), http.StatusPermanentRedirect)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	k := api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "a"}
	for path, want := range map[string]string{
		"/problem": "open gate prod/web/a: status 403: not for ***",
		"/plain":   "open gate prod/web/a: status 429: busy",
		"/page":    "open gate prod/web/a: status 502 Bad Gateway",
		"/long":    "…",
		"/other":   "not that of a test runner",
		"/away":    "redirect to another server, " + elsewhere.URL,
		"/get":     "would not repeat the request",
		"/loop":    "too many redirects",
		"/moved":   "status 403: not for ***",
	} {
		c := &api.Client{URL: server.URL + path, Token: "s3cret-token"}
		_, err := c.Change(t.Context(), "open", k, api.Change{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "\x1b") || len(err.Error()) > 3000 {
			t.Errorf("%s: %v", path, err)
		}
		var p *api.Problem
		if want := path == "/problem" || path == "/plain" || path == "/page" || path == "/long" || path == "/moved"; errors.As(err, &p) != want || p != nil && p.Status == 999 {
			t.Errorf("%s: problem %v", path, p)
		}
	}
	for _, u := range []string{"", "127.0.0.1:8080", "ftp://x", "http://", "http://u:s3cret-token@%zz/"} {
		if _, err := (&api.Client{URL: u}).Gates(t.Context(), api.Filter{}); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v", u, err)
		}
	}
	server.Close()
	if _, err := (&api.Client{URL: server.URL}).Gates(t.Context(), api.Filter{}); err == nil || !strings.Contains(err.Error(), server.URL) {
		t.Errorf("closed server: %v", err)
	}
}

// watchClient returns a client of a server with one gate, and a stream of changes that is body.
// The first answers have the statuses of refusals instead.
func watchClient(t *testing.T, body string, refusals ...int) *api.Client {
	mux, streams := http.NewServeMux(), 0
	mux.HandleFunc("/api/v1/gates", func(w http.ResponseWriter, _ *http.Request) {
		io.WriteString(w, `{"gates": [{"kind": "gate", "name": "before"}]}`)
	})
	mux.HandleFunc("/api/v1/watch", func(w http.ResponseWriter, _ *http.Request) {
		if streams++; streams <= len(refusals) && refusals[streams-1] != 0 {
			w.WriteHeader(refusals[streams-1])
			return
		}
		if body != "" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		io.WriteString(w, body)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return &api.Client{URL: server.URL}
}

// TestWatch reads a stream of events with all elements that a stream may have. When the
// stream breaks, the client reads it again, until it is refused.
func TestWatch(t *testing.T) {
	const body = ": keepalive\n\nevent: gate\nid: 1\ndata: {\"gate\":{\"kind\":\"gate\",\"name\":\"one\",\ndata: \"open\":true}}\r\n\r\n" +
		"data: {\"gate\":{\"kind\":\"rollback\",\"name\":\"other\"}}\n\ndata: {\"later\":1}\n\ndata:{\"run\":{\"id\":\"two\"}}\n\n"
	c := watchClient(t, body, 0, 503, 0, 403)
	var got []string
	c.Lost = func(err error) {
		if err == nil {
			got = append(got, "back")
		} else {
			got = append(got, "lost: "+err.Error())
		}
	}
	tell := func(n api.Notice) error {
		if n.Gate != nil {
			got = append(got, fmt.Sprintf("%s %v", n.Gate.Name, n.Gate.Open))
		} else {
			got = append(got, n.Run.ID)
		}
		return nil
	}
	err := c.Watch(t.Context(), api.Filter{Kind: api.KindGate}, tell)
	const rest = "|one true|two|lost: watch: the stream ended: unexpected EOF"
	testenv.Equal(t, strings.Join(got, "|"), "before false"+rest+"|before false|back"+rest)
	if err == nil || !strings.Contains(err.Error(), "watch: status 403") {
		t.Errorf("refused: %v", err)
	}
	if err := watchClient(t, body, 403).Watch(t.Context(), api.Filter{}, tell); err == nil {
		t.Error("it is refused at once, and that is no error")
	}
	enough := errors.New("enough")
	if err := watchClient(t, body).Watch(t.Context(), api.Filter{}, func(api.Notice) error { return enough }); err != enough {
		t.Errorf("the caller's error is %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	testenv.Equal(t, watchClient(t, body).Watch(ctx, api.Filter{}, func(api.Notice) error { cancel(); return nil }), nil, "after the end of the context")
}

// TestWatchHostile checks answers that are not streams, and events without an end.
func TestWatchHostile(t *testing.T) {
	for name, body := range map[string]string{
		"no stream": "", "long line": "data: " + strings.Repeat("x", 2<<20), "long event": strings.Repeat("data: "+strings.Repeat("x", 1000)+"\n", 2000), "no JSON": "data: <h1>\n\n",
	} {
		ctx, cancel := context.WithCancel(t.Context())
		c, notices, lost := watchClient(t, body), 0, 0
		c.Lost = func(error) { lost++; cancel() }
		err := c.Watch(ctx, api.Filter{}, func(n api.Notice) error {
			if n.Gate == nil || n.Gate.Name != "before" {
				notices++
			}
			return nil
		})
		if notices != 0 || (lost == 1) == (err != nil) {
			t.Errorf("%s: %d notices, lost %d times, %v", name, notices, lost, err)
		}
		cancel()
	}
}
