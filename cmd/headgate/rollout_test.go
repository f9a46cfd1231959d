package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A theatre is what a rollout with the proxy needs: two servers that say who
// they are, and a webhook that does not answer until the curtain rises.
type theatre struct {
	primary, canary, webhook string
	dir                      string
	called                   chan struct{} // the webhook was called
}

func newTheatre(t *testing.T) *theatre {
	t.Helper()
	s := &theatre{dir: t.TempDir(), called: make(chan struct{}, 100)}
	serve := func(h http.HandlerFunc) string {
		server := httptest.NewServer(h)
		t.Cleanup(server.Close)
		return server.URL
	}
	s.primary = serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "primary") })
	s.canary = serve(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "canary") })
	s.webhook = serve(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body) // or the server does not see that the client leaves
		s.called <- struct{}{}
		if r.URL.Path == "/hanging" {
			<-r.Context().Done()
		}
		w.WriteHeader(http.StatusForbidden)
	})
	return s
}

// args are those of a run with a webhook of a type at path, and a status.
func (s *theatre) args(t *testing.T, kind, path, status string) []string {
	t.Helper()
	manifest, state := filepath.Join(s.dir, "canary.yaml"), filepath.Join(s.dir, "app.json")
	text := fmt.Sprintf(`apiVersion: rollout.headgate.dev/v1beta1
kind: Canary
metadata: {name: app}
spec:
  targetRef: {kind: Deployment, name: app}
  analysis:
    interval: 1m
    stepWeight: 20
    maxWeight: 60
    webhooks: [{name: stage, type: %s, url: %q, timeout: 30s}]
`, kind, s.webhook+path)
	for name, data := range map[string]string{manifest: text, state: `{"name": "app", "namespace": "default", "status": ` + status + "}"} {
		if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"rollout", "run", "-f", manifest, "--state", state, "--proxy", "127.0.0.1:0", "--primary", s.primary, "--canary", s.canary}
}

// What the proxy begins with is what the status says, but for another revision.
func TestResumedProxy(t *testing.T) {
	for name, c := range map[string]struct {
		status, revision string
		canary           int  // of 100 requests
		ended            bool // no webhook is called
		code             int
		again            bool
	}{
		"the weight is kept":      {`{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`, "v2", 40, false, exitNotOver, false},
		"another revision":        {`{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`, "v3", 0, false, exitNotOver, false},
		"under way, again":        {`{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`, "v2", 40, false, exitNotOver, true},
		"decided to be promoted":  {`{"phase": "Promoting", "lastAppliedSpec": "v2", "canaryWeight": 40}`, "v2", 100, true, exitPromoted, false},
		"promoted before the end": {`{"phase": "Finalising", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2"}`, "v2", 100, true, exitPromoted, false},
		"promoted, again":         {`{"phase": "Finalising", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2"}`, "v2", 100, true, exitPromoted, true},
		"promoted":                {`{"phase": "Succeeded", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2"}`, "v2", 100, true, exitPromoted, false},
		"rolled back":             {`{"phase": "Failed", "lastAppliedSpec": "v2"}`, "v2", 0, true, exitRolledBack, false},
		"the promotion failed":    {`{"phase": "Failed", "lastAppliedSpec": "v2", "canaryWeight": 100}`, "v2", 100, true, exitRolledBack, false},
		"after a promotion":       {`{"phase": "Succeeded", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2"}`, "v3", 0, false, exitNotOver, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTheatre(t)
			kind := "rollback"
			if strings.Contains(c.status, "Succeeded") {
				kind = "confirm-rollout" // nobody is asked for a rollback
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			r, w := io.Pipe()
			result, out := io.Pipe()
			ended := make(chan int, 1)
			args := append(s.args(t, kind, "/hanging", c.status), "--revision", c.revision, "--proxy-keep", "--interval", "1ms")
			if c.again {
				args = append(args, "--again")
			}
			go func() {
				ended <- run(ctx, args, strings.NewReader(""), out, w, os.LookupEnv)
				w.Close()
				out.Close()
			}()
			url := servingAt(t, r)
			if c.ended {
				bufio.NewReader(result).ReadString('\n')
			} else {
				<-s.called
			}
			go io.Copy(io.Discard, result)
			if got := ofCanary(t, url); got != c.canary {
				t.Errorf("the canary gets %d of 100 requests, want %d", got, c.canary)
			}
			interrupt()
			if code := <-ended; code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
		})
	}
}

// servingAt returns the URL of the proxy of a run that writes to r.
func servingAt(t *testing.T, r io.Reader) string {
	t.Helper()
	said := bufio.NewReader(r)
	line, err := said.ReadString('\n')
	_, url, found := strings.Cut(line, "serving at ")
	if err != nil || !found {
		t.Fatalf("%q, %v", line, err)
	}
	go io.Copy(io.Discard, said)
	url, _, _ = strings.Cut(url, ": ")
	return url
}

// ofCanary returns how many of 100 requests the canary answers.
func ofCanary(t *testing.T, url string) (n int) {
	t.Helper()
	defer http.DefaultClient.CloseIdleConnections() // or the proxy waits for their next request when it ends
	for range 100 {
		if _, body := ask(t, "GET", url, ""); body == "canary" {
			n++
		}
	}
	return n
}

// TestResumedProxyMeasuresFirst goes on with a proxy that has measured nothing
// yet: that is no failed check.
func TestResumedProxyMeasuresFirst(t *testing.T) {
	s := newTheatre(t)
	args := s.args(t, "event", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40, "preRollout": true}`)
	text, err := os.ReadFile(args[3])
	if err != nil {
		t.Fatal(err)
	}
	text = append(text, "    metrics: [{name: request-success-rate, thresholdRange: {min: 99}}]\n"...)
	if err := os.WriteFile(args[3], text, 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	args = append(args, "--revision", "v2", "--timeout", "200ms", "-o", "json")
	if code := run(t.Context(), args, strings.NewReader(""), &out, t.Output(), os.LookupEnv); code != exitNotOver {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), `"failedChecks":0`) || strings.Contains(out.String(), "metric-fail") {
		t.Errorf("a check failed without a measurement: %s", out.String())
	}
}

// TestStatusThatCannotBeSaved does nothing that would not be known afterwards.
func TestStatusThatCannotBeSaved(t *testing.T) {
	for name, status := range map[string]string{
		"under way": `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`,
		"begins":    `{}`,
		"anew":      `{"phase": "Failed", "lastAppliedSpec": "v1", "lastPromotedSpec": "v0"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTheatre(t)
			args := append(s.args(t, "confirm-rollout", "/", status), "--revision", "v2", "--interval", "1ms")
			if err := os.MkdirAll(filepath.Join(s.dir, ".app.json.new", "full"), 0o700); err != nil { // where the next status is written
				t.Fatal(err)
			}
			var out, said strings.Builder
			if code := run(t.Context(), args, strings.NewReader(""), &out, &said, os.LookupEnv); code != exitUsage {
				t.Errorf("exit code %d", code)
			}
			if len(s.called) > 0 || strings.Contains(said.String(), "new revision") || !strings.Contains(said.String(), "headgate: status ") {
				t.Errorf("%d calls, %s", len(s.called), said.String())
			}
		})
	}
}

// TestErrorsOfRun are told once, without what is for programs.
func TestErrorsOfRun(t *testing.T) {
	s := newTheatre(t)
	args := append(s.args(t, "rollout", "/", `{}`), "--revision", "v2", "--primary", "ftp://h")
	var said strings.Builder
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, &said, os.LookupEnv); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasPrefix(said.String(), "headgate: --proxy: primary of the proxy: ") {
		t.Errorf("%q", said.String())
	}
}
