package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

// rolloutServers are the servers for a rollout with the proxy: two application servers that answer
// with their role, and a webhook that answers 403.
type rolloutServers struct {
	primary, canary, webhook string
	dir                      string
	called                   chan struct{} // one element per webhook call
}

func newRolloutServers(t *testing.T) *rolloutServers {
	t.Helper()
	s := &rolloutServers{dir: t.TempDir(), called: make(chan struct{}, 100)}
	for url, answer := range map[*string]http.HandlerFunc{
		&s.primary: func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "primary") },
		&s.canary:  func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "canary") },
		&s.webhook: func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body) // otherwise the server does not notice that the client disconnects
			s.called <- struct{}{}
			if r.URL.Path == "/hanging" {
				<-r.Context().Done()
			}
			w.WriteHeader(http.StatusForbidden)
		},
	} {
		server := httptest.NewServer(answer)
		t.Cleanup(server.Close)
		*url = server.URL
	}
	return s
}

// args writes a canary with a webhook of type kind at path and more fields of the analysis, and a
// saved status. It returns the arguments of a run with them.
func (s *rolloutServers) args(t *testing.T, kind, path, status string, fields ...string) []string {
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
%s`, kind, s.webhook+path, strings.Join(fields, ""))
	for name, data := range map[string]string{manifest: text, state: `{"name": "app", "namespace": "default", "status": ` + status + "}"} {
		must(t, os.WriteFile(name, []byte(data), 0o600))
	}
	return []string{"rollout", "run", "-f", manifest, "--state", state, "--proxy", "127.0.0.1:0", "--primary", s.primary, "--canary", s.canary}
}

// TestResumedProxy checks that the proxy starts with the weight in the status, unless the revision
// is another one.
func TestResumedProxy(t *testing.T) {
	for name, c := range map[string]struct {
		status, revision string
		canary           int  // of 100 requests
		ended            bool // the rollout ends without a webhook call
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
			s := newRolloutServers(t)
			kind := "rollback"
			if strings.Contains(c.status, "Succeeded") {
				kind = "confirm-rollout" // no rollback webhook is called then
			}
			args := append(s.args(t, kind, "/hanging", c.status), "--revision", c.revision, "--proxy-keep", "--interval", "1ms")
			if c.again {
				args = append(args, "--again")
			}
			p := startCommand(t, args...)
			url := p.line(p.stderr, "serving at ")
			p.drain(&p.stderr)
			if c.ended {
				p.line(p.stdout, "")
			} else {
				<-s.called
			}
			testenv.Equal(t, countCanaryResponses(t, url), c.canary, "requests of 100 to the canary")
			p.end(c.code)
		})
	}
}

// countCanaryResponses returns how many of 100 requests through a proxy reach the canary.
func countCanaryResponses(t *testing.T, url string) (n int) {
	t.Helper()
	url, _, _ = strings.Cut(url, ": ")
	defer http.DefaultClient.CloseIdleConnections() // otherwise the proxy waits for idle connections when it ends
	for range 100 {
		if _, body := sendRequest(t, "GET", url, ""); body == "canary" {
			n++
		}
	}
	return n
}

// TestResumedProxyMeasuresFirst checks that a resumed proxy without measurements does not cause a
// failed check.
func TestResumedProxyMeasuresFirst(t *testing.T) {
	s := newRolloutServers(t)
	args := s.args(t, "event", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40, "preRollout": true}`,
		"    metrics: [{name: request-success-rate, thresholdRange: {min: 99}}]\n")
	var out strings.Builder
	args = append(args, "--revision", "v2", "--timeout", "200ms", "-o", "json")
	if code := run(t.Context(), args, strings.NewReader(""), &out, t.Output(), os.LookupEnv); code != exitNotOver {
		t.Errorf("exit code %d", code)
	}
	if !strings.Contains(out.String(), `"failedChecks":0`) || strings.Contains(out.String(), "metric-fail") {
		t.Errorf("a check failed without a measurement: %s", out.String())
	}
}

// TestStatusThatCannotBeSaved checks that the run takes no action if it cannot save its status.
func TestStatusThatCannotBeSaved(t *testing.T) {
	for name, status := range map[string]string{
		"under way": `{"phase": "Progressing", "lastAppliedSpec": "v2", "canaryWeight": 40}`,
		"begins":    `{}`,
		"anew":      `{"phase": "Failed", "lastAppliedSpec": "v1", "lastPromotedSpec": "v0"}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRolloutServers(t)
			args := append(s.args(t, "confirm-rollout", "/", status), "--revision", "v2", "--interval", "1ms")
			if err := os.MkdirAll(filepath.Join(s.dir, ".app.json", "full"), 0o700); err != nil { // blocks the temporary file of the next status
				t.Fatal(err)
			}
			var out, stderr strings.Builder
			if code := run(t.Context(), args, strings.NewReader(""), &out, &stderr, os.LookupEnv); code != exitUsage {
				t.Errorf("exit code %d", code)
			}
			if len(s.called) > 0 || strings.Contains(stderr.String(), "new revision") || !strings.Contains(stderr.String(), "headgate: status ") {
				t.Errorf("%d calls, %s", len(s.called), stderr.String())
			}
		})
	}
}

// TestErrorsOfRun checks that an error is printed once, without the text for programs.
func TestErrorsOfRun(t *testing.T) {
	s := newRolloutServers(t)
	args := append(s.args(t, "rollout", "/", `{}`), "--revision", "v2", "--primary", "ftp://h")
	var stderr strings.Builder
	if code := run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr, os.LookupEnv); code != exitUsage {
		t.Errorf("exit code %d", code)
	}
	if !strings.HasPrefix(stderr.String(), "headgate: proxy: primary of the proxy: ") {
		t.Errorf("%q", stderr.String())
	}
}

// TestNextRunAfterPromotion checks the run after the proxy promoted the canary's URL, which is now
// the primary's. With the same flags the next run must fail. With --swap it splits requests between
// the promoted version and the new one.
func TestNextRunAfterPromotion(t *testing.T) {
	s := newRolloutServers(t)
	args := append(s.args(t, "rollback", "/", "{}"), "--interval", "1ms")
	state := args[5]
	rollOut := func(code int, extraArgs ...string) (output string) {
		t.Helper()
		var text strings.Builder
		if got := run(t.Context(), append(args, extraArgs...), strings.NewReader(""), io.Discard, &text, os.LookupEnv); got != code {
			t.Fatalf("%q: exit code %d, want %d: %s", extraArgs, got, code, text.String())
		}
		return text.String()
	}
	demand := func(output string, wants ...string) {
		t.Helper()
		for _, want := range wants {
			if !strings.Contains(output, want) {
				t.Errorf("%q is missing in\n%s", want, output)
			}
		}
	}
	at := func(url string) {
		t.Helper()
		if got := readStatus(t, state).PromotedURL; got != url {
			t.Fatalf("promoted at %q, want %q", got, url)
		}
	}
	demand(rollOut(exitPromoted, "--revision", "v2"),
		": primary "+s.primary+", canary "+s.canary+"\n", "the proxy ends with this run, without --proxy-keep\n",
		"app.default: all requests go to "+s.canary+"\n", "app.default: promoted, all requests go to "+s.canary+"\n",
		"revision v2 is at "+s.canary+": give the next run --primary "+s.canary+", or --swap\n", " has ended\n")
	at(s.canary)
	demand(rollOut(exitPromoted, "--revision", "v2"), ": all requests go to "+s.canary+", which was promoted\n")
	demand(rollOut(exitUsage, "--revision", "v3"),
		"primary "+s.primary+": revision v2 was promoted at "+s.canary, s.canary+" has to be the primary", ", or swap the two\n")
	if output := rollOut(exitUsage, "--revision", "v3", "--primary", "http://127.0.0.1:1", "--canary", s.primary); strings.Contains(output, "or swap") {
		t.Errorf("what was promoted is no canary: %s", output)
	}
	demand(rollOut(exitUsage, "--revision", "v3", "--swap", "--primary", "http://127.0.0.1:1"), "http://127.0.0.1:1 does not answer")
	at(s.canary)

	for _, roles := range [][]string{
		{"--swap"},
		{"--primary", s.canary + "/", "--canary", s.primary},
		{"--primary", s.canary, "--canary", s.primary, "--swap"}, // already in the right roles
	} {
		p := startCommand(t, append(append(args, "--revision", "v3", "--interval", "1h"), roles...)...)
		url := p.line(p.stderr, "serving at ")
		p.drain(&p.stderr)
		testenv.Equal(t, countCanaryResponses(t, url), 100, "%q: requests of 100 to the version that was promoted", roles)
		p.end(exitNotOver)
	}
	demand(rollOut(exitPromoted, "--revision", "v3", "--swap"), ": primary "+s.canary+", canary "+s.primary+"\n", "give the next run --primary "+s.primary)
	at(s.primary)
	demand(rollOut(exitPromoted, "--revision", "v3", "--swap"), ": all requests go to "+s.primary+", which was promoted\n")
	demand(rollOut(exitPromoted, "--revision", "v4", "--swap"), ": primary "+s.primary+", canary "+s.canary+"\n")
	at(s.canary)
	demand(rollOut(exitUsage, "--revision", "v4", "--again"), "or swap the two")
}

// TestPromotedByOtherMeans checks that a promotion without the proxy clears the URL that a proxy
// promoted.
func TestPromotedByOtherMeans(t *testing.T) {
	s := newRolloutServers(t)
	args := s.args(t, "rollback", "/", `{"phase": "Succeeded", "lastAppliedSpec": "v2", "lastPromotedSpec": "v2", "promotedURL": "http://127.0.0.1:1"}`)
	runCommand(t, exitPromoted, append(args[:6], "--revision", "v3", "--interval", "1ms", "--no-traffic")...)
	testenv.Equal(t, readStatus(t, args[5]).PromotedURL, "", "promoted at")
}

// TestMirrorIsNotBegunAgain checks that a rollout that another process resumes at its mirrored step
// does not mirror again.
func TestMirrorIsNotBegunAgain(t *testing.T) {
	var routes []string
	balancer := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { routes = append(routes, req.URL.RawQuery) }))
	defer balancer.Close()
	s := newRolloutServers(t)
	args := s.args(t, "post-rollout", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "lastPromotedSpec": "v1"}`, "    mirror: true\n")
	args = append(args[:6:6], "--revision", "v2", "--once", "--interval", "1ns", "--request", "set-routes="+balancer.URL+"/?{{.Canary}}{{if .Mirrored}}m{{end}}")
	for range 3 {
		runCommand(t, exitNotOver, args...)
	}
	testenv.Equal(t, routes, []string{"0m", "20", "40"})
}

// TestCredentialsOfRequests checks that credentials are accepted only if all requests have one
// origin.
func TestCredentialsOfRequests(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(token, []byte("t0k3n"), 0o600))
	const one, other, template = "set-routes=https://lb.example/a", "promote=POST https://cd.example/b", "promote=https://{{.Name}}.example/"
	for name, test := range map[string]struct {
		flags *runFlags
		ok    bool
	}{
		"one origin":          {&runFlags{tokenFile: token, requests: []string{one, "promote=PUT HTTPS://LB.example/b?{{.Name}}"}}, true},
		"several":             {&runFlags{tokenFile: token, requests: []string{one, other}}, false},
		"another scheme":      {&runFlags{tokenFile: token, requests: []string{one, "promote=http://lb.example/a"}}, false},
		"a query":             {&runFlags{tokenFile: token, requests: []string{"routes=https://lb.example?a", "promote=https://lb.example?b"}}, true},
		"a template":          {&runFlags{tokenFile: token, requests: []string{template}}, false},
		"a header":            {&runFlags{headers: []string{"authorization: Bearer t"}, requests: []string{one, other}}, false},
		"no credentials":      {&runFlags{headers: []string{"X-Team: a"}, requests: []string{one, other, "scale-up=https://{{.Name}}.example/"}}, true},
		"commands for others": {&runFlags{tokenFile: token, requests: []string{one}, exec: []string{"promote=deploy"}}, true},
	} {
		if _, err := test.flags.actions(); (err == nil) != test.ok || err != nil && !strings.Contains(err.Error(), "one origin") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRestartsSkipNoInterval repeatedly kills a rollout as soon as it has saved a step, and
// restarts it. No step may happen earlier than one interval after the previous step.
func TestRestartsSkipNoInterval(t *testing.T) {
	t.Parallel()
	const interval = 200 * time.Millisecond
	args := newRolloutServers(t).args(t, "post-rollout", "/", `{"phase": "Progressing", "lastAppliedSpec": "v2", "lastPromotedSpec": "v1"}`)
	state := args[5]
	text := strings.Replace(read(t, args[3]), "stepWeight: 20", "stepWeight: 1", 1)
	must(t, os.WriteFile(args[3], []byte(text), 0o600))
	var last rollout.Status
	for kill := range 5 {
		c := exec.Command("headgate", append(args[:6:6], "--revision", "v2", "--interval", interval.String(), "--no-traffic")...)
		c.Stderr, c.Env = t.Output(), append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		must(t, c.Start())
		for readStatus(t, state).Sequence == last.Sequence { // until a step is saved
			select {
			case <-t.Context().Done():
				t.Fatal("no step")
			case <-time.After(time.Millisecond):
			}
		}
		c.Process.Kill()
		c.Wait()
		s := readStatus(t, state)
		if s.LastStep.IsZero() {
			t.Fatalf("the status does not say when the last step was: %+v", s)
		}
		// One more step may have been saved before the kill. The 1% tolerance allows for slewed
		// clocks.
		if steps := max(s.CanaryWeight-last.CanaryWeight, 1); kill > 0 && s.LastStep.Sub(last.LastStep) < time.Duration(steps)*interval*99/100 {
			t.Errorf("kill %d: %d steps in %v, from %+v to %+v", kill, steps, s.LastStep.Sub(last.LastStep), last, s)
		}
		last = s
	}
}

// readStatus returns the status in a file, or the zero status if there is none yet.
func readStatus(t *testing.T, path string) rollout.Status {
	t.Helper()
	var r struct{ Status rollout.Status }
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return r.Status
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return r.Status
}
