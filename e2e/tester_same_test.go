package e2e

import (
	"bytes"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What is compatible answers as the load tester of Flagger does: the same status,
// and the same body but for texts of errors that come from elsewhere.
func TestTesterAnswersAlike(t *testing.T) {
	if !inside(t) {
		return
	}
	path := programs(t, "bats")
	stub(t, path, "helm", "echo \"helm $*\"\ntest \"$1\" = test\n")
	stub(t, path, "kubectl", "echo \"kubectl $*\"\ntest \"$1\" = version\n")
	check(t, os.Setenv("PATH", path)) // the load tester's programs have its environment
	theirs := serveLoadTester(t)
	ours := startTester(t, "--failure-status", "500", "--hosts", "127.0.0.1", "--env", "PATH="+path).url
	task := func(metadata ...string) string {
		m := keys{}
		for i := 0; i < len(metadata); i += 2 {
			m[metadata[i]] = metadata[i+1]
		}
		return payload("app", m)
	}
	const canary = `{"name": "app", "namespace": "shop"}`
	// Bodies of the rows marked so are compared up to the second colon: what follows is Go's or a tool's text.
	const prefix = true
	for _, row := range []struct {
		name, method, path, body string
		prefix                   bool
	}{
		{"health", "GET", "/healthz", "", false},
		{"approve", "POST", "/gate/approve", "", false},
		{"approve by GET", "GET", "/gate/approve", "", false},
		{"halt", "POST", "/gate/halt", canary, false},
		{"gate never seen", "POST", "/gate/check", canary, false},
		{"gate opened", "POST", "/gate/open", canary, false},
		{"gate open", "POST", "/gate/check", canary, false},
		{"gate open, by GET", "GET", "/gate/check", canary, false},
		{"other case, unknown keys", "POST", "/gate/check", `{"NAME": "app", "nameSpace": "shop", "more": [1, {}]}`, false},
		{"of a webhook", "POST", "/gate/check", payload("app", keys{"type": "x"}), false},
		{"gate opened again", "POST", "/gate/open", canary, false},
		{"another namespace", "POST", "/gate/check", `{"name": "app", "namespace": "other"}`, false},
		{"rollback is another switch", "POST", "/rollback/check", canary, false},
		{"gate closed", "POST", "/gate/close", canary, false},
		{"gate is closed", "POST", "/gate/check", canary, false},
		{"gate closed again", "POST", "/gate/close", canary, false},
		{"rollback opened", "POST", "/rollback/open", canary, false},
		{"rollback open", "POST", "/rollback/check", canary, false},
		{"rollback closed", "POST", "/rollback/close", canary, false},
		{"rollback is closed", "POST", "/rollback/check", canary, false},
		{"null", "POST", "/gate/check", "null", false},
		{"no names", "POST", "/gate/check", "{}", false},
		{"no metadata", "POST", "/", canary, false},
		{"empty metadata", "POST", "/", `{"name": "app", "namespace": "shop", "metadata": {}}`, false},
		{"metadata null", "POST", "/", `{"metadata": null}`, false},
		{"null task", "POST", "/", "null", false},
		{"cmd", "POST", "/", task("type", "cmd", "cmd", "true"), false},
		{"cmd without type", "POST", "/", task("cmd", "false"), false},
		{"cmd below a path", "POST", "/some/where", task("cmd", "true"), false},
		{"cmd without cmd", "POST", "/", task("type", "cmd"), false},
		{"bash", "POST", "/", task("type", "bash", "cmd", "echo fine"), false},
		{"bash with output", "POST", "/", task("type", "bash", "cmd", "echo out; echo err >&2", "returnCmdOutput", "true"), false},
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
		{"ngrinder without keys", "POST", "/", task("type", "ngrinder"), false},
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
			want.status = http.StatusBadRequest // no test has failed: what was asked for is wrong
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
				want.status = http.StatusBadRequest // no test has failed: what was asked for is wrong
			}
			if got.status != want.status || got.body == "" {
				t.Errorf("%s %q: %d %q, the load tester %d", path, body, got.status, got.body, want.status)
			}
		}
	}
}

// An answer is what of one is compared.
type answer struct {
	status     int
	body, kind string
}

func answerOf(t *testing.T, base, method, path, body string) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
	check(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return answer{body: err.Error()} // the load tester panics at some
	}
	defer resp.Body.Close()
	var text bytes.Buffer
	_, err = text.ReadFrom(resp.Body)
	check(t, err)
	return answer{resp.StatusCode, text.String(), resp.Header.Get("Content-Type")}
}

var colons = regexp.MustCompile(`^([^:]*):.*`)

func untilColon(text string) string { return colons.ReplaceAllString(text, "$1") }
