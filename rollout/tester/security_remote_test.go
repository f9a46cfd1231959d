package tester_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/remote"
)

// metadata returns pairs of keys and values as JSON.
func metadata(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, _ := json.Marshal(m)
	return string(text)
}

// process returns metadata of a process of Concord; those of pairs count.
func process(server string, pairs ...string) string {
	return metadata(append([]string{
		"type", "concord", "server", server, "org", "o", "project", "p", "repo", "r", "entrypoint", "e", "endpoint", "http://x/", "apiKeyPath", "concord", "pollInterval", "100ms",
	}, pairs...)...)
}

// loadTest returns metadata of a load test of nGrinder.
func loadTest(server string, pairs ...string) string {
	return metadata(append([]string{
		"type", "ngrinder", "wait", "true", "server", server, "clone", "1", "username", "admin", "passwd", base64.StdEncoding.EncodeToString([]byte(loadPassword)), "pollInterval", "100ms",
	}, pairs...)...)
}

const (
	apiKey       = "api-key-canary-0123"
	loadPassword = "password-canary-0123"
)

// serveRemote serves h, and returns its URL and how many requests there were.
func serveRemote(t *testing.T, h http.Handler) (string, *atomic.Int64) {
	t.Helper()
	var n atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		h.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL, &n
}

// keys returns a directory of API keys, and the name of a file outside of it.
func keys(t *testing.T) (dir, outside string) {
	t.Helper()
	root := t.TempDir()
	dir, outside = filepath.Join(root, "keys"), filepath.Join(root, "outside")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{filepath.Join(dir, "concord"): apiKey + "\n", filepath.Join(dir, "load"): loadPassword + "\n", outside: "outside-canary-0123\n"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir, outside
}

// TestGSecretsInMetadata plants canaries in all that holds secrets, and looks
// for them in all that the test runner says and keeps.
func TestGSecretsInMetadata(t *testing.T) {
	concord, grinder := &testenv.Concord{Key: apiKey, States: []string{"FAILED"}}, &testenv.NGrinder{User: "admin", Password: loadPassword, States: []string{"STOP_BY_ERROR"}}
	processes, _ := serveRemote(t, concord)
	loads, _ := serveRemote(t, grinder)
	echo, _ := serveRemote(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // says all that it was told
		text, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		user, password, _ := r.BasicAuth()
		fmt.Fprintf(w, `{"message": %q, "cause": %q}`, fmt.Sprint(r.Header, user, password), text)
	}))
	dir, _ := keys(t)
	state := t.TempDir()
	callers := `tokens: [{name: ci, token: token-canary-0123456789}]`
	d := openDoor(t, func(w *doorway) {
		w.server.Guard = guard(t, callers)
		w.server.Servers = remote.Servers{Keys: dir, Hosts: hostsOf(processes, loads, echo)}
		w.server.Tools.PassEnv = []string{"SECRET"}
		w.Runs.Dir = state
	})
	const token = "token-canary-0123456789"
	said := ""
	for _, m := range []string{
		process(processes), process(echo), loadTest(loads), loadTest(echo), loadTest(loads, "passwd", "", "passwdFrom", "load"), loadTest(loads, "passwd", "not base64 canary-0123!"),
		metadata("type", "bash", "cmd", "echo $SECRET; echo $SECRET >&2; exit 1", "env.SECRET", "env-canary-0123"),
		metadata("type", "bash", "cmd", "echo https://user:url-canary-0123@example.com/ url-canary-0123; curl-that-is-not-there https://user:url-canary-0123@example.com/?key=query-canary-0123", "logCmdOutput", "true"),
		metadata("type", "bash", "cmd", "echo "+token, "logCmdOutput", "true", "returnCmdOutput", "true", "token", token),
		metadata("type", "nothing", "passwd", "password-canary-0123"),
		metadata("type", "k6", "script", "x", "env_vars", `{"K": "env-canary-0123"}`), metadata("type", "k6", "script", "x", "kubernetes_secrets", `{"K": "canary-0123"}`, "env_vars", "env-canary-0123"),
	} {
		for _, way := range []struct{ path, header, value string }{
			{"/", "Authorization", "Bearer " + token}, {"/token/" + token + "/", "A", "b"}, {"/?token=" + token, "A", "b"},
			{"/token/wrong-canary-0123456789/", "A", "b"}, {"/?token=wrong-canary-0123456789", "A", "b"}, {"/", "Authorization", "Basic wrong-canary-0123456789"},
			{"/", "Authorization", "Bearer wrong-canary-0123456789"}, {"/", "Cookie", "headgate_session=wrong-canary-0123456789"}, {"/token/wrong-canary-0123456789", "Referer", "http://x/token/" + token + "/"},
		} {
			got := d.post(way.path, canary("shop", m), way.header, way.value)
			said += got.body
		}
	}
	d.token = token
	d.post("/gate/open", `{"name": "podinfo", "namespace": "shop", "reason": "https://user:reason-secret@example.com/", "metadata": {"token": "`+token+`"}}`).is(t, "a reason", 202, "")
	d.post("/api/v1/session", `{"token": "`+token+`"}`).is(t, "a login", 200, "ci")
	said += d.post("/api/v1/session", `{"token": "wrong-canary-0123456789"}`).body
	var link api.Link
	d.post("/gate/check", canary("shop", `{"gate": "linked"}`))
	if err := json.Unmarshal([]byte(d.post("/api/v1/gates/gate/shop/podinfo/linked/link", "{}").body), &link); err != nil {
		t.Fatal(err)
	}
	secret := strings.TrimPrefix(link.Approve, d.url+"/link/")
	d.call(http.MethodPost, "/link/"+secret, "").is(t, "a link", 200, "Approved")

	records := ""
	for _, path := range []string{"/api/v1/runs", "/api/v1/gates", "/api/v1/audit", "/api/v1/session", "/metrics"} {
		records += d.call(http.MethodGet, path, "").body
	}
	runs := d.Server.Runs.Runs(api.Filter{})
	if len(runs) < 8 {
		t.Errorf("only %d runs", len(runs))
	}
	for _, run := range runs {
		records += d.call(http.MethodGet, "/api/v1/runs/"+run.ID, "").body + d.call(http.MethodGet, "/api/v1/runs/"+run.ID+"/output", "").body
	}
	if err := d.end(); err != nil {
		t.Error(err)
	}
	if strings.Contains(d.log.String(), "reason-secret") {
		t.Error("the log has a password that a caller wrote into a reason")
	}
	places := map[string]string{"answers": said, "records": records, "log": d.log.String()}
	for _, name := range []string{"runs.db", "gates.db"} {
		content, err := os.ReadFile(filepath.Join(state, name))
		if err != nil && name == "runs.db" {
			t.Error(err)
		}
		places[name] = string(content)
	}
	for place, text := range places {
		for _, canary := range []string{"canary-0123", base64.StdEncoding.EncodeToString([]byte(loadPassword)), base64.StdEncoding.EncodeToString([]byte("admin:" + loadPassword)), secret} {
			if at := strings.Index(text, canary); at >= 0 {
				t.Errorf("%s: %q in …%s…", place, canary, text[max(0, at-200):min(len(text), at+100)])
			}
		}
	}
}

func hostsOf(urls ...string) (hosts []string) {
	for _, u := range urls {
		hosts = append(hosts, strings.TrimPrefix(u, "http://"))
	}
	return hosts
}

// TestGCrash: nothing that a caller says ends the process.
func TestGCrash(t *testing.T) {
	dir, _ := keys(t)
	d := openDoor(t, func(w *doorway) {
		w.server.Servers = remote.Servers{Keys: dir, LoadURL: "http://127.0.0.1:1", ProcessURL: "http://127.0.0.1:1"}
	})
	for _, m := range []string{
		`{"type": "unknown"}`, `{"type": ""}`, `{"type": "ngrinder"}`, `{"type": "concord"}`, `{"type": "bash"}`, `{"type": "helm"}`, `{"type": "kubectl"}`, `{"type": "k6"}`, `{"x": "y"}`,
		loadTest("", "pollInterval", "-1s"), loadTest("", "pollInterval", "0"), loadTest("", "pollInterval", "999999999h"), loadTest("", "clone", "x"), process("", "pollInterval", "0"), process("", "pollTimeout", "-1"),
	} {
		if got := d.post("/", canary("shop", m)); got.status != 400 || got.body == "" {
			t.Errorf("%s: %d %q", m, got.status, got.body)
		}
	}
	for _, body := range []string{``, `{`, `[]`, `""`, `5`, `{"metadata": []}`, `{"metadata": {"a": 5}}`, `{} {}`, "\x00", `{"name": {}}`} {
		for _, path := range []string{"/", "/gate/check", "/gate/open", "/rollback/check", "/rollback/close", "/launch-test"} {
			if got := d.post(path, body); got.status != 400 || got.body == "" {
				t.Errorf("%s %s: %d %q", path, body, got.status, got.body)
			}
		}
	}
	d.call(http.MethodGet, "/healthz", "").is(t, "in the end", 200, "OK")
	if strings.Contains(d.log.String(), "panic") {
		t.Errorf("log: %s", d.log)
	}
}
