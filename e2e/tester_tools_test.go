package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	bats = `@test "it answers" { curl -sf $URL; }
@test "it is quick" { skip "not today"; }
@test "it is right" { [ "$(curl -s $URL)" = right ]; }
`
	k6Script = `import http from 'k6/http'; import { check } from 'k6';
export const options = { vus: 2, iterations: 20, thresholds: { http_req_failed: ['rate<0.01'] } };
export default function () { check(http.get(__ENV.URL), { 'is right': (r) => r.body === 'right' }); }
`
	chartFile   = "apiVersion: v2\nname: app\nversion: 1.0.0\n"
	serviceFile = "apiVersion: v1\nkind: Service\nmetadata:\n  name: {{ .Release.Name }}\nspec:\n  ports: [{port: {{ required \"port is wanted\" .Values.port }}}]\n"
)

// TestTesterTools runs common test tools as tests.
func TestTesterTools(t *testing.T) {
	t.Parallel()
	right := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "right") }))
	defer right.Close()
	wrong := httptest.NewServer(http.NotFoundHandler())
	defer wrong.Close()
	suite := write(t, filepath.Join(t.TempDir(), "suite.bats"), bats)
	chart := t.TempDir()
	write(t, filepath.Join(chart, "Chart.yaml"), chartFile)
	must(t, os.Mkdir(filepath.Join(chart, "templates"), 0o700))
	write(t, filepath.Join(chart, "templates", "service.yaml"), serviceFile)
	s := startTester(t, "--env", "PATH="+programs(t, "hey", "bats", "wrk", "k6", "helm=helm3", "helm4"), "--pass-env", "URL", "--env", "K6_NO_USAGE_REPORT=true")
	for _, row := range []struct {
		name     string
		metadata stringMap
		status   int
		text     string // in the response
		output   string // in the output of the run
	}{
		{name: "hey", metadata: stringMap{"cmd": "hey -n 200 -c 5 " + right.URL, "wait": "true"}, status: 200, output: "200 responses"},
		{name: "wrk", metadata: stringMap{"cmd": "wrk -d 1s -t 1 -c 2 --latency " + right.URL, "wait": "true"}, status: 200, output: "Requests/sec"},
		{name: "bats", metadata: stringMap{"type": "bash", "cmd": "bats " + suite, "env.URL": right.URL}, status: 200, output: "ok 3 it is right"},
		{name: "bats that fails", metadata: stringMap{"type": "bash", "cmd": "bats " + suite, "env.URL": wrong.URL}, status: 422, text: "not ok 1 it answers", output: "not ok 3 it is right"},
		{name: "bats, JUnit", metadata: stringMap{"type": "bash", "cmd": "bats --formatter junit " + suite, "env.URL": wrong.URL}, status: 422, text: "<testsuite", output: "it is right"},
		{name: "helm lint", metadata: stringMap{"type": "helm", "cmd": "lint " + chart + " --set 'port=80'"}, status: 200},
		{name: "helm template", metadata: stringMap{"type": "helmv3", "cmd": "template shop " + chart + " --set port=80", "returnCmdOutput": "true"}, status: 200, text: "name: shop"},
		{name: "helm template that fails", metadata: stringMap{"type": "helmv3", "cmd": "template shop " + chart}, status: 422, text: "port is wanted"},
		{name: "helm 4", metadata: stringMap{"type": "bash", "cmd": "helm4 template shop " + chart + " --set port=80"}, status: 200},
		{name: "k6", metadata: stringMap{"type": "k6", "script": k6Script, "env_vars": fmt.Sprintf(`{"URL": %q}`, right.URL)}, status: 200, output: "20 complete"},
		{name: "k6 with a threshold", metadata: stringMap{"type": "k6", "script": k6Script, "env_vars": fmt.Sprintf(`{"URL": %q}`, wrong.URL)}, status: 422, text: "exit status 99", output: "http_req_failed"},
		{name: "k6 with an error", metadata: stringMap{"type": "k6", "script": "import nothing"}, status: 422, text: "exit status 107"},
	} {
		status, body := ask(t, "POST", s.url+"/", encodedPayload(row.name, row.metadata))
		run := s.runs()[0]
		if status != row.status || !strings.Contains(body, row.text) || run.Name != row.name {
			t.Errorf("%s: %d %s", row.name, status, body)
		}
		if _, output := ask(t, "GET", s.url+"/api/v1/runs/"+run.ID+"/output", ""); !strings.Contains(output, row.output) {
			t.Errorf("%s: the output is %s", row.name, output)
		}
	}
	t.Run("launch", func(t *testing.T) { testLaunch(t, s, right.URL, wrong.URL) })
}

// testLaunch tests the path of the k6 webhook.
func testLaunch(t *testing.T, s *testRunner, right, wrong string) {
	variables := func(url string) string { return fmt.Sprintf(`{"URL": %q}`, url) }
	for _, row := range []struct {
		name     string
		metadata stringMap
		status   int
		text     string
	}{
		{"passes", stringMap{"script": k6Script, "env_vars": variables(right)}, 200, "checks_succeeded"},
		{"does not wait", stringMap{"script": k6Script, "env_vars": variables(right), "wait_for_results": "false"}, 200, ""},
		{"fails", stringMap{"script": k6Script, "env_vars": variables(wrong)}, 400, "http_req_failed"},
		{"fails at once", stringMap{"script": "import nothing"}, 400, "exit status 107"},
		{"no script", stringMap{"x": "y"}, 400, "script"},
	} {
		if status, body := ask(t, "POST", s.url+"/launch-test", encodedPayload(strings.ReplaceAll(row.name, " ", "-"), row.metadata)); status != row.status || !strings.Contains(body, row.text) {
			t.Errorf("%s: %d %s", row.name, status, body)
		}
	}
}
