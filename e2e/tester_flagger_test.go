package e2e

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestTesterByFlagger checks that Flagger's own functions get the right verdict from the test
// runner, with the reason of each failure.
func TestTesterByFlagger(t *testing.T) {
	t.Parallel()
	remote := func(h http.Handler) string {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		return s.URL
	}
	key := write(t, filepath.Join(t.TempDir(), "key"), "s3cret\n")
	path := programs(t, "helm=helm4", "k6")
	stub(t, path, "kubectl", "echo \"kubectl $*\"\ntest \"$1\" = version\n")
	s := startTester(t, "--env", "PATH="+path, "--hosts", "127.0.0.1", "--keys", filepath.Dir(key),
		"--env", "K6_NO_USAGE_REPORT=true")
	c := startCaller(t)
	concord := func(states ...string) []string {
		return []string{"type", "concord", "server", remote(&testenv.Concord{Key: "s3cret", States: states}), "org", "o", "project", "p", "repo", "r", "entrypoint", "e", "apiKeyPath", key, "endpoint", "http://x", "pollInterval", "1"}
	}
	ngrinder := func(states ...string) []string {
		return []string{"type", "ngrinder", "server", remote(&testenv.NGrinder{User: "u", Password: "pass", States: states}), "clone", "1", "username", "u", "passwd", "cGFzcw==", "pollInterval", "1s", "wait", "true"}
	}
	for _, row := range []struct {
		name, path string
		metadata   []string
		want       string // part of the error; "" for a success
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
		{"ngrinder", "/", ngrinder("FINISHED"), ""},
		{"ngrinder that fails", "/", ngrinder("STOP_BY_ERROR"), "STOP_BY_ERROR"},
		{"ngrinder without keys", "/", []string{"type", "ngrinder"}, "server, clone, username and passwd are required metadata"},
		{"concord", "/", concord("FINISHED"), ""},
		{"concord that is cancelled", "/", concord("CANCELLED"), "CANCELLED"},
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
	t.Run("gates", func(t *testing.T) { testGates(t, s, c) })
	t.Run("a test that outlives its webhook", func(t *testing.T) { testWebhookTimeout(t, s, c) })
	t.Run("retries", func(t *testing.T) { testRetries(t, c) })
}

// testGates opens and closes each switch of a canary.
func testGates(t *testing.T, s *testRunner, c *flaggerCaller) {
	const canary = `{"name": "gated", "namespace": "shop"}`
	for _, kind := range []string{"/gate", "/rollback"} {
		checks := hook("ask", "confirm-rollout", s.url+kind+"/check")
		for _, step := range []struct{ do, want string }{{"", "Forbidden"}, {"/open", ""}, {"/open", ""}, {"/close", "Forbidden"}} {
			if step.do != "" {
				if status, body := ask(t, "POST", s.url+kind+step.do, canary); status != http.StatusAccepted || body != "" {
					t.Errorf("%s%s: %d %q", kind, step.do, status, body)
				}
			}
			testenv.Equal(t, c.call("gated", "v1", "", checks), step.want, "%s after %q", kind, step.do)
		}
	}
	// One opening is for one revision: its repeated checks pass, the next revision waits.
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

// testWebhookTimeout runs a test that takes longer than the webhook timeout. The next call must get its
// verdict, and the call after that must start a new run.
func testWebhookTimeout(t *testing.T, s *testRunner, c *flaggerCaller) {
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
	testenv.Equal(t, lines(t, file), 1, "runs")
	if got := c.call("slow", "v1", "", h); !strings.Contains(got, "too late") || lines(t, file) != 2 {
		t.Errorf("the third call: %q, %d runs", got, lines(t, file))
	}
}

// testRetries compares failure statuses: after 422 Flagger reports the text and does not retry; 500 is
// the status of the reference.
func testRetries(t *testing.T, c *flaggerCaller) {
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

// TestTesterMatchesReference checks that compatible requests get the same response as from Flagger's
// load tester: the same status, and the same body except for error texts of Go or of tools.
func TestTesterMatchesReference(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	path := programs(t, "bats")
	stub(t, path, "helm", "echo \"helm $*\"\ntest \"$1\" = test\n")
	stub(t, path, "kubectl", "echo \"kubectl $*\"\ntest \"$1\" = version\n")
	must(t, os.Setenv("PATH", path)) // the load tester's commands inherit this environment
	theirs := serveLoadTester(t)
	ours := startTester(t, "--failure-status", "500", "--hosts", "127.0.0.1", "--env", "PATH="+path).url
	task := func(metadata ...string) string {
		m := stringMap{}
		for i := 0; i < len(metadata); i += 2 {
			m[metadata[i]] = metadata[i+1]
		}
		return encodedPayload("app", m)
	}
	const canary = `{"name": "app", "namespace": "shop"}`
	// For rows with prefix, bodies are compared up to the first colon. The rest is a text of Go or
	// of a tool.
	const prefix = true
	for _, row := range []struct {
		name, method, path, body string
		prefix                   bool
	}{
		{"of a webhook", "POST", "/gate/check", encodedPayload("app", stringMap{"type": "x"}), false},
		{"gate closed again", "POST", "/gate/close", canary, false},
		{"metadata null", "POST", "/", `{"metadata": null}`, false},
		{"cmd", "POST", "/", task("type", "cmd", "cmd", "true"), false},
		{"cmd without cmd", "POST", "/", task("type", "cmd"), false},
		{"bash", "POST", "/", task("type", "bash", "cmd", "echo fine"), false},
		{"bash with output 1", "POST", "/", task("type", "bash", "cmd", "echo out", "returnCmdOutput", "1"), false},
		{"bash without output", "POST", "/", task("type", "bash", "cmd", "echo out", "returnCmdOutput", "false"), false},
		{"bash with HTML", "POST", "/", task("type", "bash", "cmd", "echo '<html>'", "returnCmdOutput", "true"), false},
		{"bash that fails", "POST", "/", task("type", "bash", "cmd", "echo out; echo err >&2; exit 7"), false},
		{"bash that is not there", "POST", "/", task("type", "bash", "cmd", "nosuchprogram"), false},
		{"bash by a signal", "POST", "/", task("type", "bash", "cmd", "kill -9 $$"), false},
		{"helm", "POST", "/", task("type", "helm", "cmd", "test app"), false},
		{"helmv3", "POST", "/", task("type", "helmv3", "cmd", "test app --logs", "returnCmdOutput", "true"), false},
		{"helm that fails", "POST", "/", task("type", "helmv3", "cmd", "list"), false},
		{"kubectl", "POST", "/", task("type", "kubectl", "cmd", "version", "returnCmdOutput", "true"), false},
		{"kubectl that fails", "POST", "/", task("type", "kubectl", "cmd", "get pods"), false},
		{"ngrinder, bad clone", "POST", "/", task("type", "ngrinder", "server", "http://127.0.0.1:1/", "clone", "x", "username", "u", "passwd", "cA=="), prefix},
		{"ngrinder, bad password", "POST", "/", task("type", "ngrinder", "server", "http://127.0.0.1:1/", "clone", "1", "username", "u", "passwd", "%"), prefix},
		{"concord without server", "POST", "/", task("type", "concord"), false},
		{"concord without org", "POST", "/", task("type", "concord", "server", "http://127.0.0.1:1/"), false},
		{"concord without project", "POST", "/", task("type", "concord", "server", "http://127.0.0.1:1/", "org", "o"), false},
	} {
		got, want := answerOf(t, ours, row.method, row.path, row.body), answerOf(t, theirs, row.method, row.path, row.body)
		if row.prefix {
			got.body, want.body = untilColon(got.body), untilColon(want.body)
		}
		if want.status == http.StatusInternalServerError && strings.Contains(want.body, "is required") {
			want.status = http.StatusBadRequest // an invalid request, not a failed test
		}
		if got.status != want.status || got.body != want.body {
			t.Errorf("%s: %d %q, the load tester %d %q", row.name, got.status, got.body, want.status, want.body)
		}
		if want.kind != "" && got.kind != "text/plain; charset=utf-8" {
			t.Errorf("%s: Content-Type %q", row.name, got.kind)
		}
	}
	for _, body := range []string{"", "{", "[]", `"x"`, canary + "x", `{"name": 1}`, `{"metadata": {"type": 1}}`} {
		for _, path := range []string{"/", "/gate/check", "/gate/open", "/gate/close", "/rollback/check", "/rollback/open", "/rollback/close"} {
			got, want := answerOf(t, ours, "POST", path, body), answerOf(t, theirs, "POST", path, body)
			if want.status == http.StatusInternalServerError && strings.Contains(want.body, "is required") {
				want.status = http.StatusBadRequest // an invalid request, not a failed test
			}
			if got.status != want.status || got.body == "" {
				t.Errorf("%s %q: %d %q, the load tester %d", path, body, got.status, got.body, want.status)
			}
		}
	}
}

// An answer holds the compared parts of a response.
type answer struct {
	status     int
	body, kind string
}

func answerOf(t *testing.T, base, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{body: err.Error()} // the load tester panics on some requests
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	must(t, err)
	return answer{resp.StatusCode, text.String(), resp.Header.Get("Content-Type")}
}

var colons = regexp.MustCompile(`^([^:]*):.*`)

func untilColon(text string) string { return colons.ReplaceAllString(text, "$1") }

// TestTesterExchangesMatchReference checks that the exchanges that are marked as valid for Flagger's
// load tester are.
func TestTesterExchangesMatchReference(t *testing.T) {
	t.Parallel()
	if !inNamespace(t) {
		return // the load tester listens on all interfaces
	}
	files, err := filepath.Glob("../testdata/exchanges/*.txt")
	must(t, err)
	rows := 0
	for _, file := range files {
		exchanges, err := testenv.Exchanges(file)
		must(t, err)
		theirs := strings.TrimPrefix(serveLoadTester(t), "http://")
		for _, x := range exchanges {
			if !x.Reference {
				continue
			}
			rows++
			if err := x.Do(theirs); err != nil {
				t.Errorf("%s: %s: %v", x.Position, x.Name, err)
			}
		}
	}
	if rows < 30 {
		t.Errorf("%d rows", rows)
	}
}
