package tester_test

import (
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"unicode"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/remote"
)

// Each test whose name begins with TestG is about one row of a list of risks. All of
// them use the public API, a real listener and, if the row is about programs, real
// processes.

const (
	allToken  = "all-of-it-0123456789"
	teamToken = "team-token-0123456789"
	lookToken = "look-token-0123456789"
	gateToken = "gate-token-0123456789"

	tenants = `tokens:
- {name: all, token: ` + allToken + `}
- {name: team, token: ` + teamToken + `, namespaces: [team-*], types: [bash], gates: ["traffic*"]}
- {name: look, token: ` + lookToken + `, readOnly: true}
- {name: gates, token: ` + gateToken + `, kinds: [gate], types: []}
`
)

// namespacePayload returns a payload.
func namespacePayload(namespace, metadata string) string {
	return `{"name": "podinfo", "namespace": "` + namespace + `", "phase": "Progressing", "checksum": "abc", "metadata": ` + metadata + `}`
}

// marker returns a command that leaves a mark when it runs, and a function that counts marks.
func marker(t *testing.T) (command string, marks func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "marks")
	return "echo >>" + file, func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\n")
	}
}

// TestGUnauthenticatedExecution: a client without credentials that reaches the port runs commands.
func TestGUnauthenticatedExecution(t *testing.T) {
	command, marks := marker(t)
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	task := namespacePayload("shop", `{"type": "bash", "cmd": "`+command+`"}`)
	for _, tt := range []struct{ method, path, body string }{
		{"POST", "/", task}, {"POST", "/any/path", task}, {"POST", "/launch-test", task}, {"PUT", "/", task},
		{"POST", "/gate/open", task}, {"POST", "/gate/close", task}, {"POST", "/gate/check", task}, {"GET", "/gate/check", task},
		{"POST", "/gate/approve", task}, {"POST", "/gate/halt", task}, {"POST", "/gate/prod/open", task}, {"POST", "/rollback/open", task}, {"POST", "/rollback/check", task},
		{"GET", "/api/v1/gates", ""}, {"GET", "/api/v1/runs", ""}, {"GET", "/api/v1/audit", ""}, {"GET", "/api/v1/watch", ""}, {"GET", "/api/v1/session", ""},
		{"POST", "/api/v1/gates/gate/shop/podinfo/default/open", "{}"}, {"POST", "/api/v1/gates/gate/shop/podinfo/default/link", "{}"},
		{"POST", "/api/v1/runs/x/cancel", ""}, {"GET", "/api/v1/runs/x/output", ""}, {"GET", "/metrics", ""},
	} {
		for name, header := range map[string][]string{
			"nobody": {"A", "b"}, "a wrong token": {"Authorization", "Bearer " + allToken + "x"}, "an empty one": {"Authorization", "Bearer "}, "a cookie": {"Cookie", "headgate_session=" + allToken},
		} {
			got := d.call(tt.method, tt.path, tt.body, append(header, "Content-Type", "application/json")...)
			wrongMethod := tt.method == "PUT" && got.status == http.StatusMethodNotAllowed
			if got.status != http.StatusUnauthorized && !wrongMethod || got.header.Get("WWW-Authenticate") == "" && !wrongMethod {
				t.Errorf("%s: %s %s: %d %s", name, tt.method, tt.path, got.status, got.body)
			}
		}
	}
	if n := marks(); n != 0 || len(d.Server.Runs.Runs(api.Filter{}, nil)) != 0 {
		t.Errorf("a command of nobody ran %d times", n)
	}
	d.token = allToken
	if d.post("/", task).expect(t, "with a token", 200, ""); marks() != 1 {
		t.Errorf("it ran %d times", marks())
	}
}

// TestGScopes: a credential is limited to namespaces, types and gates, or to reading.
func TestGScopes(t *testing.T) {
	command, marks := marker(t)
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	bash, cmd := `{"type": "bash", "cmd": "`+command+`"}`, `{"type": "cmd", "cmd": "`+command+`"}`
	d.token = allToken
	d.post("/", namespacePayload("shop", `{"type": "bash", "cmd": "exit 0"}`)).expect(t, "a run of another", 200, "")
	id := d.Server.Runs.Runs(api.Filter{}, nil)[0].ID
	const gates = "/api/v1/gates/"
	for _, tt := range []struct {
		token, method, path, body string
		status                    int
	}{
		{teamToken, "POST", "/", namespacePayload("team-a", bash), 200},
		{teamToken, "POST", "/", namespacePayload("team-a", cmd), 403},
		{teamToken, "POST", "/", namespacePayload("team-a", `{"cmd": "`+command+`"}`), 403}, // cmd is the default
		{teamToken, "POST", "/", namespacePayload("shop", bash), 403},
		{teamToken, "POST", "/launch-test", namespacePayload("team-a", `{"script": "x"}`), 403},
		{teamToken, "POST", "/gate/traffic-eu/open", namespacePayload("team-a", `{}`), 202},
		{teamToken, "POST", "/gate/open", namespacePayload("team-a", `{}`), 403},
		{teamToken, "POST", "/gate/open?gate=prod", namespacePayload("team-a", `{"gate": "traffic"}`), 403},
		{teamToken, "POST", "/gate/check", namespacePayload("team-a", `{"gate": "prod"}`), 403},
		{teamToken, "GET", "/api/v1/runs/" + id, "", 403},
		{teamToken, "GET", "/api/v1/runs/" + id + "/output", "", 403},
		{teamToken, "POST", "/api/v1/runs/" + id + "/cancel", "", 403},
		{teamToken, "POST", gates + "gate/shop/podinfo/traffic/open", "{}", 403},
		{teamToken, "GET", gates + "gate/shop/podinfo/traffic", "", 403},
		{lookToken, "POST", "/", namespacePayload("shop", bash), 403},
		{lookToken, "POST", "/gate/check", namespacePayload("shop", `{}`), 403}, // it is closed
		{lookToken, "POST", "/gate/open", namespacePayload("shop", `{}`), 403},
		{lookToken, "POST", gates + "gate/shop/podinfo/default/reject", "{}", 403},
		{lookToken, "POST", gates + "gate/shop/podinfo/default/link", "{}", 403},
		{lookToken, "POST", "/api/v1/runs/" + id + "/cancel", "", 403},
		{lookToken, "GET", "/api/v1/runs/" + id, "", 200},
		{gateToken, "POST", "/gate/open", namespacePayload("shop", `{}`), 202},
		{gateToken, "POST", "/rollback/open", namespacePayload("shop", `{}`), 403},
		{gateToken, "POST", gates + "gate/shop/podinfo/default/reject", "{}", 403}, // it would open the rollback switch
		{gateToken, "POST", gates + "gate/shop/podinfo/default/link", "{}", 403},
		{gateToken, "POST", "/", namespacePayload("shop", bash), 403},
	} {
		d.token = tt.token
		if got := d.call(tt.method, tt.path, tt.body, "Content-Type", "application/json"); got.status != tt.status {
			t.Errorf("%s: %s %s %s: %d %s, want %d", tt.token, tt.method, tt.path, tt.body, got.status, got.body, tt.status)
		}
	}
	testenv.Equal(t, marks(), 1)
	if d.Gates.Gate(api.Key{Kind: api.KindRollback, Namespace: "shop", Name: "podinfo", Gate: api.DefaultGate}).Open {
		t.Error("a rollback switch is open")
	}
	for _, path := range []string{"/api/v1/runs", "/api/v1/gates", "/api/v1/audit"} {
		d.token = teamToken
		if got := d.call(http.MethodGet, path, ""); got.status != 200 || strings.Contains(got.body, `"shop"`) || !strings.Contains(got.body, `"team-a"`) {
			t.Errorf("%s shows the team %d %s", path, got.status, got.body)
		}
	}
}

// TestGCallersCannotSendHeaders: rollout controllers send nothing but URL and payload.
func TestGCallersCannotSendHeaders(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	show := `"type": "bash", "cmd": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'; echo args: $0 $@", "returnCmdOutput": "true"`
	base := d.url
	for name, tt := range map[string]struct{ url, path, metadata string }{
		"path":     {base, "/token/" + teamToken + "/", `{` + show + `, "n": "1"}`},
		"query":    {base, "/?token=" + teamToken, `{` + show + `, "n": "2"}`},
		"userinfo": {strings.Replace(base, "http://", "http://anybody:"+teamToken+"@", 1), "/", `{` + show + `, "n": "3"}`},
		"metadata": {base, "/", `{` + show + `, "n": "4", "token": "` + teamToken + `"}`},
	} {
		d.url = tt.url
		got := d.post(tt.path, namespacePayload("team-a", tt.metadata))
		if got.expect(t, name, 200, "PATH="); strings.Contains(got.body, teamToken) {
			t.Errorf("%s: the token is in the environment: %s", name, got.body)
		}
		d.post(tt.path, strings.Replace(namespacePayload("shop", tt.metadata), `"n"`, `"m"`, 1)).expect(t, name+", another namespace", 403, "Forbidden")
	}
	d.url, d.token = base, allToken
	records := d.call(http.MethodGet, "/api/v1/runs", "").body
	for _, run := range d.Server.Runs.Runs(api.Filter{}, nil) {
		records += d.call(http.MethodGet, "/api/v1/runs/"+run.ID, "").body
		testenv.Equal(t, run.Actor, "team", "the actor of a run")
		if _, exists := run.Metadata["token"]; exists {
			t.Errorf("the record has the key of the token: %v", run.Metadata)
		}
	}
	for where, text := range map[string]string{"log": d.log.String(), "records": records, "metrics": d.call(http.MethodGet, "/metrics", "").body} {
		if strings.Contains(text, teamToken) {
			t.Errorf("the token is in the %s", where)
		}
	}
}

// TestGNamespaceSpoofing: the namespace of a payload is a claim.
func TestGNamespaceSpoofing(t *testing.T) {
	command, marks := marker(t)
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	d.token = teamToken
	task := `"metadata": {"type": "bash", "cmd": "` + command + `"}`
	for name, payload := range map[string]string{
		"part of a name":     namespacePayload("not-team-a", `{"type": "bash", "cmd": "`+command+`"}`),
		"a name and more":    namespacePayload("team", `{"type": "bash", "cmd": "`+command+`"}`),
		"none":               `{"name": "podinfo", ` + task + `}`,
		"null":               `{"name": "podinfo", "namespace": null, ` + task + `}`,
		"the last of two":    `{"name": "podinfo", "namespace": "team-a", "namespace": "shop", ` + task + `}`,
		"in another case":    `{"name": "podinfo", "namespace": "team-a", "NAMESPACE": "shop", ` + task + `}`,
		"capital letters":    namespacePayload("TEAM-A", `{"type": "bash", "cmd": "`+command+`"}`),
		"a namespace inside": `{"name": "podinfo", "metadata": {"namespace": "team-a", "type": "bash", "cmd": "` + command + `"}}`,
		"by path":            `{"name": "podinfo", "namespace": "shop/team-a"` + `, ` + task + `}`,
	} {
		d.post("/", payload).expect(t, name, 403, "Forbidden")
	}
	testenv.Equal(t, marks(), 0)
	// A repeated field means the same for access control and for the record.
	d.post("/", `{"name": "podinfo", "namespace": "shop", "namespace": "team-a", `+task+`}`).expect(t, "the last of two is its own", 200, "")
	if runs := d.Server.Runs.Runs(api.Filter{}, nil); len(runs) != 1 || runs[0].Namespace != "team-a" {
		t.Errorf("recorded: %+v", runs)
	}
}

// TestGMutualTLS: a certificate is a credential like a token if it is valid for
// clients, issued by the right CA and not expired.
func TestGMutualTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := certificate(t, ca)
	pair := func(cert, key []byte) *tls.Certificate {
		p, err := tls.X509KeyPair(cert, key)
		must(t, err)
		return &p
	}
	const passes, cmd = `{"type": "bash", "cmd": "exit 0"}`, `{"cmd": "exit 0"}`
	for name, tt := range map[string]struct {
		shown            *tls.Certificate // nil for none
		metadata         string
		status, optional int // with required and with optional certificates; 0: no connection
	}{
		"known":            {pair(ca.Client("ci")), passes, 200, 200},
		"beyond its scope": {pair(ca.Client("ci")), cmd, 403, 403},
		"unknown":          {pair(ca.Client("somebody")), passes, 401, 401},
		"of another CA":    {pair(other.Client("ci")), passes, 0, 0},
		"expired":          {pair(ca.ExpiredClient("ci")), passes, 0, 0},
		"of a server":      {pair(ca.Server()), passes, 0, 0},
		"none":             {nil, passes, 0, 401},
	} {
		for _, optional := range []bool{false, true} {
			d := startServer(t, func(w *serverSetup) {
				g, err := tester.OpenGuard(file(t, []byte(
					"certificates: [{name: ci, commonName: ci, types: [bash]}, {name: server, commonName: localhost}]")), true, nil)
				must(t, err)
				w.server.Guard = g
				w.Endpoint = tester.Endpoint{Addr: "127.0.0.1:0", Cert: cert, Key: key, ClientCA: file(t, ca.PEM()), Optional: optional}
			})
			config := &tls.Config{RootCAs: ca.Pool()}
			if tt.shown != nil {
				config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return tt.shown, nil }
			}
			d.client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}}
			want := tt.status
			if optional {
				want = tt.optional
			}
			d.post("/", namespacePayload("shop", tt.metadata)).expect(t, fmt.Sprintf("%s, optional %t", name, optional), want, "")
			runs := d.Server.Runs.Runs(api.Filter{}, nil)
			if (len(runs) == 1) != (want == 200) || len(runs) == 1 && runs[0].Actor != "ci" {
				t.Errorf("%s, optional %t: runs: %+v", name, optional, runs)
			}
		}
	}
}

// TestGCommandInjection: the owner of the test runner decides what may run.
func TestGCommandInjection(t *testing.T) {
	command, marks := marker(t)
	mark := strings.TrimPrefix(command, "echo >>")
	dir := t.TempDir()
	for name, script := range map[string]string{"allowed": "#!/bin/sh\nfor a; do echo \"<$a>\"; done\n", "evil": "#!/bin/sh\necho >>" + mark + "\n"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	path := []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
	for name, tt := range map[string]struct {
		set    func(*serverSetup)
		tasks  map[string]int // statuses by metadata
		output string         // of the tasks with status 200
	}{
		"allow-list": {func(w *serverSetup) { w.server.Tools.Allow = []string{"allowed"} }, map[string]int{
			`{"type": "bash", "cmd": "allowed a '; echo >>` + mark + `'", "returnCmdOutput": "true"}`:                   200,
			`{"type": "bash", "cmd": "allowed ; evil"}`:                                                                 400,
			`{"type": "bash", "cmd": "allowed a|evil"}`:                                                                 200,
			`{"type": "bash", "cmd": "allowed $(evil)"}`:                                                                200,
			"{\"type\": \"bash\", \"cmd\": \"allowed `evil`\"}":                                                         200,
			`{"type": "bash", "cmd": "allowed\nevil"}`:                                                                  200, // all of them are words, as in the next tasks
			`{"type": "bash", "cmd": "allowed a && evil"}`:                                                              400,
			`{"type": "bash", "cmd": "evil"}`:                                                                           400,
			`{"type": "bash", "cmd": "` + dir + `/evil"}`:                                                               400,
			`{"type": "bash", "cmd": "` + dir + `/allowed/../evil"}`:                                                    400,
			`{"type": "bash", "cmd": "sh -c evil"}`:                                                                     400,
			`{"type": "bash", "cmd": "env evil"}`:                                                                       400,
			`{"type": "bash", "shell": "true", "cmd": "allowed; evil"}`:                                                 400,
			`{"type": "cmd", "wait": "true", "cmd": "evil"}`:                                                            400,
			`{"type": "helm", "cmd": "version"}`:                                                                        400,
			`{"type": "kubectl", "cmd": "version"}`:                                                                     400,
			`{"type": "k6", "script": "x"}`:                                                                             400,
			`{"type": "bash", "cmd": "allowed", "env.PATH": "` + dir + `"}`:                                             400,
			`{"type": "bash", "cmd": "allowed", "env.LD_PRELOAD": "/tmp/x.so"}`:                                         400,
			`{"type": "bash", "cmd": "PATH=` + dir + ` allowed"}`:                                                       400,
			`{"type": "bash", "cmd": "allowed", "env.BASH_ENV": "` + filepath.Join(dir, "evil") + `"}`:                  400,
			`{"type": "bash", "cmd": "allowed ` + strings.Repeat(`\"`, 3) + `"}`:                                        400,
			`{"type": "bash", "cmd": "@allowed"}`:                                                                       400,
			`{"type": "bash", "cmd": ""}`:                                                                               400,
			`{"type": "bash", "cmd": "  "}`:                                                                             400,
			`{"type": "Bash", "cmd": "allowed"}`:                                                                        400,
			`{"type": "bash", "CMD": "allowed"}`:                                                                        400,
			`{"type": "bash", "cmd": "allowed \u0000evil"}`:                                                             400,
			`{"type": "bash", "cmd": "allowed", "shell": "/bin/sh"}`:                                                    400,
			`{"type": "bash", "cmd": "allowed", "timeout": "1; evil"}`:                                                  400,
			`{"type": "bash", "cmd": "allowed ${IFS}evil"}`:                                                             200,
			`{"type": "bash", "cmd": "allowed >` + mark + `"}`:                                                          200,
			`{"type": "bash", "cmd": "./allowed"}`:                                                                      400,
			`{"type": "bash", "cmd": "allowed <(evil)"}`:                                                                200,
			`{"type": "bash", "cmd": "allowed --x='$(evil)' \"$(evil)\"", "shell": "false", "returnCmdOutput": "true"}`: 200,
		}, "<"},
		"named commands": {func(w *serverSetup) {
			w.server.Tools.Commands, w.server.Tools.OnlyNamed = map[string]string{"smoke": "allowed --url ${url} fixed", "rm": "allowed ${what}"}, true
		}, map[string]int{
			`{"type": "bash", "cmd": "@smoke", "arg.url": "x y; evil", "returnCmdOutput": "true"}`: 200,
			`{"type": "bash", "cmd": "@smoke"}`:                                                    400,
			`{"type": "bash", "cmd": "@smoke", "arg.url": "x", "arg.other": "y"}`:                  400,
			`{"type": "bash", "cmd": "@rm", "arg.what": "--all"}`:                                  400,
			`{"type": "bash", "cmd": "@smoke; evil", "arg.url": "x"}`:                              400,
			`{"type": "bash", "cmd": "@evil"}`:                                                     400,
			`{"type": "bash", "cmd": "allowed"}`:                                                   400,
			`{"type": "helm", "cmd": "@smoke"}`:                                                    400,
			`{"type": "kubectl", "cmd": "get pods"}`:                                               400,
			`{"type": "k6", "script": "x"}`:                                                        400,
		}, "<x y; evil>"},
		"types": {func(w *serverSetup) { w.server.Types = []string{"kubectl", "workflow"} }, map[string]int{
			`{"type": "bash", "cmd": "evil"}`: 403, `{"cmd": "evil"}`: 403, `{"type": "cmd", "cmd": "evil"}`: 403, `{"type": "pkgtest", "cmd": "x"}`: 403, `{"type": "concord"}`: 400,
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := startServer(t, func(w *serverSetup) {
				w.server.Tools.Env = path
				tt.set(w)
			})
			for metadata, status := range tt.tasks {
				got := d.post("/", namespacePayload("shop", metadata))
				if got.status != status || status == 200 && strings.Contains(metadata, "returnCmdOutput") && !strings.Contains(got.body, tt.output) {
					t.Errorf("%s: %d %q, want %d %s", metadata, got.status, got.body, status, tt.output)
				}
			}
		})
	}
	testenv.Equal(t, marks(), 0)
}

// TestGResourceExhaustion: bodies, output, time, runs at a time and their memory have limits.
func TestGResourceExhaustion(t *testing.T) {
	d := startServer(t, func(w *serverSetup) {
		w.server.MaxBody = 10 << 10
		w.Runs.Concurrency, w.Runs.Queue, w.Runs.OutputLimit = 1, 1, 4<<10
	})
	d.post("/", namespacePayload("shop", `{"type": "bash", "cmd": "`+strings.Repeat("x", 10<<10)+`"}`)).expect(t, "a long body", 413, "longer than 10240 bytes")
	d.post("/gate/open", namespacePayload("shop", `{"x": "`+strings.Repeat("x", 10<<10)+`"}`)).expect(t, "a long body of a gate", 413, "")
	d.post("/", strings.Repeat("[", 5<<10)).expect(t, "a deep body", 400, "")

	d.post("/", namespacePayload("shop", `{"type": "bash", "cmd": "echo x", "outputLimit": "99999999999"}`)).expect(t, "an output without limit", 400, "outputLimit")
	d.post("/", namespacePayload("shop", `{"type": "bash", "cmd": "sleep 600", "timeout": "0.2"}`)).expect(t, "a run that takes too long", 422, "timed out")
	d.post("/", namespacePayload("shop", `{"cmd": "sleep 600"}`)).expect(t, "the one run at a time", 202, "")
	d.post("/", namespacePayload("shop", `{"cmd": "sleep 601"}`)).expect(t, "the one that waits", 202, "")
	for path, metadata := range map[string]string{"/": `{"cmd": "sleep 602"}`, "/launch-test": `{"script": "x"}`} {
		if got := d.post(path, namespacePayload("shop", metadata)); got.status != http.StatusTooManyRequests || got.header.Get("Retry-After") == "" {
			t.Errorf("one too many: %s: %+v", path, got)
		}
	}
}

// TestSecretsAreBounded shows that requests with too many secrets are refused, and that
// repetitions do not count.
func TestSecretsAreBounded(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	var many strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&many, " http://u:pass%d@h/", i)
	}
	for cmd, want := range map[string]int{
		"true" + many.String():                                  http.StatusBadRequest,
		"true http://u:" + strings.Repeat("x", 300<<10) + "@h/": http.StatusBadRequest,
		"true" + strings.Repeat(" http://u:the-same@h/", 2000):  http.StatusOK,
	} {
		if status, text := mustPost(t, url, payload("masked", `{"type":"bash","cmd":"`+cmd+`"}`)); status != want || want != http.StatusOK && !strings.Contains(text, "secrets") {
			t.Errorf("%.20s: status %d %.100s", cmd, status, text)
		}
	}
}

const gatePath = "/api/v1/gates/gate/shop/podinfo/default"

// state returns a gate of the canary.
func (d *testServer) state(kind api.Kind) api.Gate {
	return d.Gates.Gate(api.Key{Kind: kind, Namespace: "shop", Name: "podinfo", Gate: api.DefaultGate})
}

// TestGGateAbuse: a gate is opened on purpose, for the revision that was seen, and by a known
// actor.
func TestGGateAbuse(t *testing.T) {
	d := startServer(t, func(w *serverSetup) { w.server.Guard = guard(t, tenants) })
	d.token = allToken
	check := func(checksum string) int {
		return d.post("/gate/check", strings.Replace(namespacePayload("shop", `{}`), "abc", checksum, 1)).status
	}
	for _, path := range []string{"/gate/open", "/rollback/close", "/gate/x/open", gatePath + "/open", gatePath + "/reject"} {
		if got := d.call("GET", path, namespacePayload("shop", `{}`)); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "POST" {
			t.Errorf("GET %s: %d, Allow %q", path, got.status, got.header.Get("Allow"))
		}
	}

	// For one revision.
	check("a")
	d.post(gatePath+"/open", `{"checksum": "a", "reason": "looks good", "actor": "mallory"}`).expect(t, "bound", 200, `"mode":"checksum"`)
	if check("a") != 200 || check("b") != 403 {
		t.Error("an approval of one revision counts for another")
	}
	d.post(gatePath+"/open", `{"mode": "one-shot"}`).expect(t, "one-shot", 200, "")
	var answers []int
	for _, checksum := range []string{"b", "b", "c", "b"} {
		answers = append(answers, check(checksum))
	}
	testenv.Equal(t, answers, []int{200, 200, 403, 403}, "a one-shot approval counts for more than one revision")
	d.post(gatePath+"/open", `{"ttl": "0"}`).expect(t, "a time that is none", 400, "")

	// By a link: loading the page decides nothing, the button decides once.
	check("d")
	var link, next api.Link
	for _, l := range []*api.Link{&link, &next} {
		must(t, json.Unmarshal([]byte(d.post(gatePath+"/link", `{"ttl": "1h"}`).body), l))
	}
	d.token = ""
	path := func(u string) string { return strings.TrimPrefix(u, d.url) }
	for _, method := range []string{"GET", "HEAD", "GET"} {
		d.call(method, path(link.Approve), "").expect(t, "looking at a link", 200, "")
	}
	d.call("PUT", path(link.Approve), "").expect(t, "another method", 405, "")
	d.call("POST", path(link.Approve), "", "Origin", "https://other.example.com").expect(t, "a form of another site", 403, "")
	d.call("POST", path(link.Approve), "", "Origin", "null").expect(t, "a form of nowhere", 403, "")
	for name, broken := range map[string]string{
		"changed": path(link.Approve)[:len(path(link.Approve))-2] + "xx", "swapped": strings.Replace(path(link.Reject), "/link/", "/link/x", 1), "short": "/link/x", "escaped": "/link/%2e%2e",
	} {
		if got := d.call("POST", broken, ""); got.status != http.StatusGone && got.status != http.StatusNotFound {
			t.Errorf("a link that is %s: %d", name, got.status)
		}
	}
	d.token = allToken
	if check("d") != 403 {
		t.Fatal("the gate is open")
	}
	d.token = ""
	d.call("POST", path(link.Approve), "", "Origin", d.url).expect(t, "the button", 200, "")
	d.call("POST", path(link.Approve), "").expect(t, "the button again", 410, "")
	d.call("POST", path(link.Reject), "").expect(t, "the other button", 410, "")
	d.token = allToken
	if check("d") != 200 || check("e") != 403 {
		t.Error("the link opened something else")
	}
	d.token = ""
	d.call("POST", path(next.Reject), "").expect(t, "an older link when another revision waits", 410, "")
	if d.state(api.KindRollback).Open {
		t.Error("the rollback switch is open")
	}

	// The audit trail has all decisions.
	d.token = allToken
	trail := d.call("GET", "/api/v1/audit?namespace=shop", "").body
	for _, want := range []string{`"actor":"all"`, `"reason":"looks good"`, `"action":"link"`, `"actor":"a link"`, `"action":"consume"`} {
		if !strings.Contains(trail, want) {
			t.Errorf("the audit trail has no %s: %s", want, trail)
		}
	}
	if strings.Contains(trail, "mallory") {
		t.Error("a caller chose the actor")
	}

	// A decision during the shutdown is refused with a retry, and changes nothing.
	must(t, json.Unmarshal([]byte(d.post(gatePath+"/link", "{}").body), &next))
	must(t, d.Gates.Close())
	for p, body := range map[string]string{path(next.Approve): "", "/gate/open": namespacePayload("shop", `{}`), gatePath + "/open": ""} {
		got := d.post(p, body)
		if got.expect(t, "a change when the gates are closed for good", 503, "shutting down"); got.header.Get("Retry-After") == "" {
			t.Errorf("%s: it was not told to come again: %v", p, got.header)
		}
	}
	if strings.Contains(d.log.String(), path(next.Approve)) {
		t.Error("the log has a link that works")
	}
}

// TestGCrossSite: a page of another site makes the browser send requests with the session
// of its user.
func TestGCrossSite(t *testing.T) {
	d := startServer(t, func(w *serverSetup) {
		w.server.Guard, w.server.BaseURL = guard(t, tenants), "https://tests.example.com/tester"
	})
	got := d.post("/api/v1/session", `{"token": "`+allToken+`"}`)
	got.expect(t, "login", 200, `"actor":"all"`)
	cookie := got.header.Get("Set-Cookie")
	for _, attribute := range []string{"HttpOnly", "SameSite=Strict", "Path=/"} {
		if !strings.Contains(cookie, attribute) {
			t.Errorf("the cookie has no %s: %s", attribute, cookie)
		}
	}
	cookie, _, _ = strings.Cut(cookie, ";")
	command, marks := marker(t)
	task := namespacePayload("shop", `{"type": "bash", "cmd": "`+command+`"}`)
	for name, headers := range map[string][]string{
		"another origin":                {"Origin", "https://other.example.com"},
		"another port":                  {"Origin", "http://127.0.0.1:1"},
		"another scheme and port":       {"Origin", "https://127.0.0.1"},
		"no origin":                     {"Origin", "null"},
		"a name that begins the same":   {"Origin", "https://tests.example.com.attacker.example.net"},
		"another host of the base":      {"Origin", "https://www.tests.example.com"},
		"the scheme of the base":        {"Origin", "http://tests.example.com"},
		"the browser says so":           {"Sec-Fetch-Site", "cross-site"},
		"another host of the same site": {"Sec-Fetch-Site", "same-site"},
	} {
		for path, body := range map[string]string{
			"/": task, "/prefix": task, "/launch-test": task, "/gate/open": task, "/rollback/open": task, gatePath + "/open": "{}", gatePath + "/reject": "{}", gatePath + "/link": "{}",
			"/api/v1/session": `{"token": "` + lookToken + `"}`,
		} {
			for _, kind := range []string{"application/json", "text/plain", "application/x-www-form-urlencoded"} {
				got := d.call("POST", path, body, append(headers, "Cookie", cookie, "Content-Type", kind)...)
				if got.status != 403 || got.header.Get("Access-Control-Allow-Origin") != "" || got.header.Get("Set-Cookie") != "" {
					t.Errorf("%s: %s as %s: %d %s %v", name, path, kind, got.status, got.body, got.header)
				}
			}
		}
		d.call("DELETE", "/api/v1/session", "", append(headers, "Cookie", cookie)...).expect(t, name+": logout", 403, "")
	}
	if n := marks(); n != 0 || d.state(api.KindGate).Open || d.state(api.KindRollback).Open {
		t.Errorf("another site ran %d commands, or opened something", n)
	}
	// The API refuses requests that a page can send without a CORS preflight, such as forms and text.
	d.call("POST", gatePath+"/open", "{}", "Cookie", cookie, "Content-Type", "text/plain").expect(t, "not JSON", 415, "")
	for name, headers := range map[string][]string{
		"no browser": {"A", "b"}, "the page": {"Origin", d.url, "Sec-Fetch-Site", "same-origin"}, "without the newer header": {"Origin", d.url}, "by the base URL": {"Origin", "https://tests.example.com"},
	} {
		d.post(gatePath+"/open", "{}", append(headers, "Cookie", cookie)...).expect(t, name, 200, `"open":true`)
	}
	for _, path := range []string{"/api/v1/gates", "/api/v1/session", "/gate/check", "/healthz"} {
		got := d.call("OPTIONS", path, "", "Origin", "https://other.example.com", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "content-type")
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s lets other sites in: %v", path, got.header)
			}
		}
	}
	d.call("DELETE", "/api/v1/session", "", "Cookie", cookie).expect(t, "logout", 204, "")
	d.call("GET", "/api/v1/gates", "", "Cookie", cookie).expect(t, "after the logout", 401, "")
}

const markup = `<script>alert(1)</script><img src=x onerror=alert(1)>`

// TestGOutputIsText: output of tests and text of callers is never served as a web page.
func TestGOutputIsText(t *testing.T) {
	d := startServer(t, nil)
	m := func(pairs ...string) string {
		return metadata(append([]string{"type", "bash", "returnCmdOutput", "true"}, pairs...)...)
	}
	d.post("/", namespacePayload("shop", m("cmd", "printf '%s' '<!DOCTYPE html>"+markup+"'"))).expect(t, "output", 200, markup)
	id := d.Server.Runs.Runs(api.Filter{}, nil)[0].ID
	d.post("/gate/check", `{"name": "`+`<b>podinfo`+`", "namespace": "shop", "checksum": "<i>"}`)
	escaped := url.PathEscape(markup)
	for name, got := range map[string]reply{
		"output":          d.post("/", namespacePayload("shop", m("cmd", "printf '%s' '<!DOCTYPE html>"+markup+"'", "n", "1"))),
		"failure":         d.post("/", namespacePayload("shop", m("cmd", "echo '"+markup+"'; exit 1"))),
		"type":            d.post("/", namespacePayload("shop", m("type", markup))),
		"key":             d.post("/", namespacePayload("shop", m("cmd", "x", "env."+markup, "x"))),
		"body":            d.post("/", markup),
		"body of a gate":  d.post("/gate/open", markup),
		"path":            d.call("GET", "/gate/"+escaped, ""),
		"path of the API": d.call("GET", "/api/v1/"+escaped, ""),
		"gate":            d.call("GET", "/api/v1/gates/"+escaped+"/a/b/c", ""),
		"query":           d.call("GET", "/api/v1/runs?"+escaped+"=1", ""),
		"run":             d.call("GET", "/api/v1/runs/"+escaped, ""),
		"page":            d.call("GET", "/ui/"+escaped, ""),
		"live output":     d.call("GET", "/api/v1/runs/"+id+"/output", ""),
		"record":          d.call("GET", "/api/v1/runs/"+id, ""),
		"gates":           d.call("GET", "/api/v1/gates", ""),
		"token":           d.call("GET", "/token/"+escaped+"/gate/check", ""),
		"origin":          d.call("POST", "/", "", "Origin", "https://"+markup),
		"host":            d.call("GET", "/healthz", "", "Host", "attacker.example.com"),
		"method":          d.call("SCRIPT", "/gate/open", ""),
	} {
		kind, _, _ := strings.Cut(got.header.Get("Content-Type"), ";")
		if kind != "text/plain" && kind != "application/json" || got.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d as %q, %q", name, got.status, got.header.Get("Content-Type"), got.header.Get("X-Content-Type-Options"))
		}
		if kind == "application/json" && strings.Contains(got.body, "<script>") {
			t.Errorf("%s: markup in JSON is not escaped: %s", name, got.body)
		}
	}
	for _, path := range []string{"/ui/", "/link/x"} {
		got := d.call("GET", path, "")
		policy := got.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "frame-ancestors 'none'", "base-uri 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s: the policy has no %s: %s", path, want, policy)
			}
		}
		if strings.Contains(policy, "unsafe") || got.header.Get("X-Content-Type-Options") != "nosniff" || got.header.Get("X-Frame-Options") != "DENY" || strings.Contains(got.body, "<script>") {
			t.Errorf("%s: %v", path, got.header)
		}
	}
}

// TestGLogInjection: no text of a request adds a line to the log.
func TestGLogInjection(t *testing.T) {
	const forged = "\nlevel=ERROR msg=forged\r\n\x1b[31m\x1b]0;title\x07\u202e\u2028forged\u0085"
	for name, handler := range map[string]func(*logBuffer) slog.Handler{
		"text": func(b *logBuffer) slog.Handler { return slog.NewTextHandler(b, nil) },
		"JSON": func(b *logBuffer) slog.Handler { return slog.NewJSONHandler(b, nil) },
	} {
		var buffer logBuffer
		d := startServer(t, func(w *serverSetup) {
			w.server.Log = slog.New(handler(&buffer))
			w.server.Guard = guard(t, tenants)
		})
		d.token = allToken
		text, err := json.Marshal(forged)
		must(t, err)
		one := strings.Trim(string(text), `"`)
		d.post("/", `{"name": "`+one+`", "namespace": "`+one+`", "phase": "`+one+`", "checksum": "`+one+`", "metadata": {"type": "bash", "logCmdOutput": "true", "cmd": "printf 'a\\nlevel=ERROR msg=forged\\n\\033[31mb\\rc'; exit 1"}}`)
		d.post("/gate/"+url.PathEscape(forged)+"/open", `{"name": "`+one+`", "namespace": "`+one+`", "reason": "`+one+`", "actor": "`+one+`", "checksum": "`+one+`", "mode": "checksum"}`)
		d.token = teamToken
		d.post("/", `{"name": "x", "namespace": "`+one+`", "metadata": {"type": "`+one+`", "cmd": "x"}}`).expect(t, "a namespace", 403, "")
		d.call("POST", "/gate/open", "{}", "Origin", "https://x/"+url.QueryEscape(forged))
		testenv.Equal(t, d.end(), nil)
		log := buffer.String()
		for line := range strings.Lines(log) {
			if strings.HasPrefix(line, "level=ERROR") || !strings.Contains(line, "time") {
				t.Errorf("%s: a line of a caller: %q", name, line)
			}
		}
		if i := strings.IndexFunc(log, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s: a control character in %q", name, log[max(0, i-80):min(len(log), i+20)])
		}
		if !strings.Contains(log, "forged") {
			t.Errorf("%s: what callers said is not logged at all: %s", name, log)
		}
	}
}

// metadata returns pairs of keys and values as JSON.
func metadata(pairs ...string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, _ := json.Marshal(m)
	return string(text)
}

// concordMetadata returns metadata of a process of Concord; pairs override its values.
func concordMetadata(server string, pairs ...string) string {
	return metadata(append([]string{
		"type", "concord", "server", server, "org", "o", "project", "p", "repo", "r", "entrypoint", "e", "endpoint", "http://x/", "apiKeyPath", "concord", "pollInterval", "100ms",
	}, pairs...)...)
}

// nGrinderMetadata returns metadata of a load test of nGrinder.
func nGrinderMetadata(server string, pairs ...string) string {
	return metadata(append([]string{
		"type", "ngrinder", "wait", "true", "server", server, "clone", "1", "username", "admin", "passwd", base64.StdEncoding.EncodeToString([]byte(loadPassword)), "pollInterval", "100ms",
	}, pairs...)...)
}

const (
	apiKey       = "api-key-canary-0123"
	loadPassword = "password-canary-0123"
)

// serveRemote serves h, and returns its URL and the number of its requests.
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

// keyDir returns a directory of API keys, and the name of a file outside of it.
func keyDir(t *testing.T) (dir, outside string) {
	t.Helper()
	root := t.TempDir()
	dir, outside = filepath.Join(root, "keys"), filepath.Join(root, "outside")
	must(t, os.Mkdir(dir, 0o700))
	for name, text := range map[string]string{filepath.Join(dir, "concord"): apiKey + "\n", filepath.Join(dir, "load"): loadPassword + "\n", outside: "outside-canary-0123\n"} {
		must(t, os.WriteFile(name, []byte(text), 0o600))
	}
	return dir, outside
}

// TestGSecretsInMetadata plants canaries in every place for secrets, and looks for
// them in everything that the test runner writes and answers.
func TestGSecretsInMetadata(t *testing.T) {
	concord, grinder := &testenv.Concord{Key: apiKey, States: []string{"FAILED"}}, &testenv.NGrinder{User: "admin", Password: loadPassword, States: []string{"STOP_BY_ERROR"}}
	processes, _ := serveRemote(t, concord)
	loads, _ := serveRemote(t, grinder)
	echo, _ := serveRemote(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // repeats the whole request
		text, _ := io.ReadAll(r.Body)
		w.WriteHeader(http.StatusBadRequest)
		user, password, _ := r.BasicAuth()
		fmt.Fprintf(w, `{"message": %q, "cause": %q}`, fmt.Sprint(r.Header, user, password), text)
	}))
	dir, _ := keyDir(t)
	state := t.TempDir()
	callers := `tokens: [{name: ci, token: token-canary-0123456789}]`
	d := startServer(t, func(w *serverSetup) {
		w.server.Guard = guard(t, callers)
		w.server.Servers = remote.Servers{Keys: dir, Hosts: hostsOf(processes, loads, echo)}
		w.server.Tools.PassEnv = []string{"SECRET"}
		w.Runs.Dir = state
	})
	const token = "token-canary-0123456789"
	answers := ""
	for _, m := range []string{
		concordMetadata(processes), concordMetadata(echo), nGrinderMetadata(loads), nGrinderMetadata(echo), nGrinderMetadata(loads, "passwd", "", "passwdFrom", "load"), nGrinderMetadata(loads, "passwd", "not base64 canary-0123!"),
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
			got := d.post(way.path, namespacePayload("shop", m), way.header, way.value)
			answers += got.body
		}
	}
	d.token = token
	d.post("/gate/open", `{"name": "podinfo", "namespace": "shop", "reason": "https://user:reason-secret@example.com/", "metadata": {"token": "`+token+`"}}`).expect(t, "a reason", 202, "")
	d.post("/api/v1/session", `{"token": "`+token+`"}`).expect(t, "a login", 200, "ci")
	answers += d.post("/api/v1/session", `{"token": "wrong-canary-0123456789"}`).body
	var link api.Link
	d.post("/gate/check", namespacePayload("shop", `{"gate": "linked"}`))
	must(t, json.Unmarshal([]byte(d.post("/api/v1/gates/gate/shop/podinfo/linked/link", "{}").body), &link))
	secret := strings.TrimPrefix(link.Approve, d.url+"/link/")
	d.call(http.MethodPost, "/link/"+secret, "").expect(t, "a link", 200, "Approved")

	records := ""
	for _, path := range []string{"/api/v1/runs", "/api/v1/gates", "/api/v1/audit", "/api/v1/session", "/metrics"} {
		records += d.call(http.MethodGet, path, "").body
	}
	runs := d.Server.Runs.Runs(api.Filter{}, nil)
	if len(runs) < 8 {
		t.Errorf("only %d runs", len(runs))
	}
	for _, run := range runs {
		records += d.call(http.MethodGet, "/api/v1/runs/"+run.ID, "").body + d.call(http.MethodGet, "/api/v1/runs/"+run.ID+"/output", "").body
	}
	testenv.Equal(t, d.end(), nil)
	if strings.Contains(d.log.String(), "reason-secret") {
		t.Error("the log has a password that a caller wrote into a reason")
	}
	places := map[string]string{"answers": answers, "records": records, "log": d.log.String()}
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

var must = testenv.Must
