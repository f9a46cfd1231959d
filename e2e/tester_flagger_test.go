package e2e

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
)

// Flagger's own functions get the right verdicts of the test runner, and the
// reason of each failure.
func TestTesterByFlagger(t *testing.T) {
	remote := httptest.NewServer(http.HandlerFunc(remotes))
	defer remote.Close()
	key := write(t, filepath.Join(t.TempDir(), "key"), "s3cret\n")
	path := programs(t, "helm=helm4", "k6")
	stub(t, path, "kubectl", "echo \"kubectl $*\"\ntest \"$1\" = version\n")
	s := startTester(t, "--env", "PATH="+path, "--hosts", remote.Listener.Addr().String(), "--keys", filepath.Dir(key),
		"--env", "K6_NO_USAGE_REPORT=true")
	c := startCaller(t)
	concord := func(entry string) []string {
		return []string{"type", "concord", "server", remote.URL, "org", "o", "project", "p", "repo", "r", "entrypoint", entry, "apiKeyPath", key, "endpoint", "http://x", "pollInterval", "1"}
	}
	ngrinder := func(clone string) []string {
		return []string{"type", "ngrinder", "server", remote.URL, "clone", clone, "username", "u", "passwd", "cGFzcw==", "pollInterval", "1s", "wait", "true"}
	}
	for _, row := range []struct {
		name, path string
		metadata   []string
		want       string // in the error; "" for a success
	}{
		{"cmd", "/", []string{"type", "cmd", "cmd", "true"}, ""},
		{"no type", "/", []string{"cmd", "true"}, ""},
		{"below another path", "/load/test", []string{"cmd", "true"}, ""},
		{"cmd that fails in the background", "/", []string{"cmd", "false"}, ""},
		{"cmd that is waited for", "/", []string{"cmd", "echo so slow; exit 4", "wait", "true"}, "command echo so slow; exit 4 failed: so slow\n: exit status 4"},
		{"no cmd", "/", []string{"type", "cmd"}, "cmd not found in metadata"},
		{"bash", "/", []string{"type", "bash", "cmd", "[[ a == a ]]"}, ""},
		{"bash that fails", "/", []string{"type", "bash", "cmd", "echo '<b>'; exit 7"}, "command echo '<b>'; exit 7 failed: <b>\n: exit status 7"},
		{"bash without cmd", "/", []string{"type", "bash"}, "cmd not found in metadata"},
		{"a pipeline that fails", "/", []string{"type", "bash", "cmd", "false | true"}, "exit status 1"},
		{"helm", "/", []string{"type", "helm", "cmd", "version --short"}, ""},
		{"pkgtest3", "/", []string{"type", "pkgtest3", "cmd", "version"}, ""},
		{"helm that fails", "/", []string{"type", "helmv3", "cmd", "nonsense"}, `unknown command "nonsense"`},
		{"kubectl", "/", []string{"type", "kubectl", "cmd", "version"}, ""},
		{"kubectl that fails", "/", []string{"type", "kubectl", "cmd", "get 'a b'"}, "kubectl get a b"},
		{"ngrinder", "/", ngrinder("1"), ""},
		{"ngrinder that fails", "/", ngrinder("2"), "STOP_BY_ERROR"},
		{"ngrinder without keys", "/", []string{"type", "ngrinder"}, "server, clone, username and passwd are required metadata"},
		{"concord", "/", concord("finished"), ""},
		{"concord that is cancelled", "/", concord("cancelled"), "CANCELLED"},
		{"concord without keys", "/", []string{"type", "workflow"}, "`server` is required"},
		{"k6", "/", []string{"type", "k6", "script", "export default function() {}"}, ""},
		{"k6 that fails", "/launch-test", []string{"script", "export default function() { throw new Error('no good') }; export const options = {thresholds: {iterations: ['count>1']}}"}, "99"},
		{"unknown type", "/", []string{"type", "helmv9", "cmd", "test"}, "unknown task type helmv9"},
		{"no metadata", "/", nil, "metadata not found in payload"},
		{"approve", "/gate/approve", nil, ""},
		{"halt", "/gate/halt", nil, "Forbidden"},
		{"gate", "/gate/check", nil, "Forbidden"},
		{"switch", "/rollback/check", nil, "Forbidden"},
		{"no such path", "/gate/chek", nil, "nothing at this path"},
	} {
		h := hook(row.name, "rollout", s.url+row.path, row.metadata...)
		h["timeout"] = "30s"
		got := c.call("app", row.name, "", h)
		if (got == "") != (row.want == "") || !strings.Contains(strings.ToLower(got), strings.ToLower(row.want)) {
			t.Errorf("%s: %q, want %q", row.name, got, row.want)
		}
		if row.path == "/" && row.metadata != nil {
			if again := c.call("app", row.name, "it happened", h); (again == "") != (row.want == "") {
				t.Errorf("%s, as an event: %q", row.name, again)
			}
		}
	}
	t.Run("gates", func(t *testing.T) { gatesByFlagger(t, s, c) })
	t.Run("a test that outlives its webhook", func(t *testing.T) { outlived(t, s, c) })
	t.Run("retries", func(t *testing.T) { retried(t, c) })
}

// gatesByFlagger opens and closes each switch of a canary.
func gatesByFlagger(t *testing.T, s *testRunner, c *flaggerCaller) {
	const canary = `{"name": "gated", "namespace": "shop"}`
	for _, kind := range []string{"/gate", "/rollback"} {
		checks := hook("ask", "confirm-rollout", s.url+kind+"/check")
		for _, step := range []struct{ do, want string }{{"", "Forbidden"}, {"/open", ""}, {"/open", ""}, {"/close", "Forbidden"}} {
			if step.do != "" {
				if status, body := ask(t, "POST", s.url+kind+step.do, canary); status != http.StatusAccepted || body != "" {
					t.Errorf("%s%s: %d %q", kind, step.do, status, body)
				}
			}
			if got := c.call("gated", "v1", "", checks); got != step.want {
				t.Errorf("%s after %q: %q, want %q", kind, step.do, got, step.want)
			}
		}
	}
	// One opening for one revision: its retries pass, the next revision waits.
	if status, body := ask(t, "POST", s.url+"/api/v1/gates/gate/shop/gated/promote/open", `{"mode": "one-shot"}`); status != 200 {
		t.Fatalf("%d %s", status, body)
	}
	checks := hook("ask", "confirm-promotion", s.url+"/gate/promote/check")
	for _, step := range []struct{ revision, want string }{{"v1", ""}, {"v1", ""}, {"v2", "Forbidden"}, {"v1", "Forbidden"}} {
		if got := c.call("gated", step.revision, "", checks); got != step.want {
			t.Errorf("one-shot, revision %s: %q, want %q", step.revision, got, step.want)
		}
	}
}

// outlived has a test take longer than its webhook waits: the next call gets its
// verdict, and the one after that tests anew.
func outlived(t *testing.T, s *testRunner, c *flaggerCaller) {
	file := filepath.Join(t.TempDir(), "runs")
	ready := filepath.Join(t.TempDir(), "go")
	h := hook("slow", "rollout", s.url+"/", "type", "bash", "cmd", "echo >>"+file+"; until test -e "+ready+"; do sleep 0.05; done; echo too late; exit 1")
	h["timeout"] = "1s"
	if got := c.call("slow", "v1", "", h); !strings.Contains(got, "giving up") && !strings.Contains(got, "deadline") && !strings.Contains(got, "Timeout") {
		t.Errorf("the first call: %q", got)
	}
	write(t, ready, "")
	h["timeout"] = "20s"
	if got := c.call("slow", "v1", "", h); !strings.Contains(got, "too late") {
		t.Errorf("the second call: %q", got)
	}
	if n := lines(t, file); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
	if got := c.call("slow", "v1", "", h); !strings.Contains(got, "too late") || lines(t, file) != 2 {
		t.Errorf("the third call: %q, %d runs", got, lines(t, file))
	}
}

// retried compares statuses of failures: 422 is told and not tried again; 500 is
// what the reference answers.
func retried(t *testing.T, c *flaggerCaller) {
	for status, want := range map[string]string{"422": "why", "500": "giving up"} {
		s := startTester(t, "--failure-status", status)
		file := filepath.Join(t.TempDir(), "runs")
		h := hook("test", "rollout", s.url+"/", "type", "bash", "cmd", "echo >>"+file+"; echo why; exit 1")
		h["retries"] = 1
		if got := c.call("app", "v1", "", h); !strings.Contains(got, want) {
			t.Errorf("status %s: %q", status, got)
		}
		if n, most := lines(t, file), map[string]int{"422": 1, "500": 2}[status]; n != most {
			t.Errorf("status %s: %d runs", status, n)
		}
	}
}

// remotes is nGrinder, whose test 1 finishes and 2 fails, and Concord, whose
// processes end as their entry point says.
func remotes(w http.ResponseWriter, r *http.Request) {
	say := func(body any) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(body)
	}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/clone_and_start"):
		say(map[string]any{"id": 10 + int(path[len("/perftest/api/")]-'0')})
	case path == "/perftest/api/11/status":
		say(map[string]any{"success": true, "status": []any{keys{"status_id": "FINISHED"}}})
	case path == "/perftest/api/12/status":
		say(map[string]any{"success": true, "status": []any{keys{"status_id": "STOP_BY_ERROR"}}})
	case path == "/api/v1/process" && r.Header.Get("Authorization") == "s3cret":
		r.ParseMultipartForm(1 << 20)
		say(map[string]any{"ok": true, "instanceId": "00000000-0000-0000-0000-" + r.FormValue("entryPoint")})
	case strings.HasPrefix(path, "/api/v1/process/"):
		id := path[strings.LastIndex(path, "/")+1:]
		say(keys{"instanceId": id, "status": strings.ToUpper(id[strings.LastIndex(id, "-")+1:])})
	default:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, "not found")
	}
}
