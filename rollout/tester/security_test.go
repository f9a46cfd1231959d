package tester_test

// The tests whose names begin with TestG are the rows of a list of risks, one
// each: every one goes through the public door, a real listener and, where the
// row is about what runs, real processes.

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	allToken  = "everything-0123456789"
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

// canary returns a payload.
func canary(namespace, metadata string) string {
	return `{"name": "podinfo", "namespace": "` + namespace + `", "phase": "Progressing", "checksum": "abc", "metadata": ` + metadata + `}`
}

// marker returns a command that leaves a mark when it runs, and how many there are.
func marker(t *testing.T) (command string, marks func() int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "marks")
	return "echo >>" + file, func() int {
		text, _ := os.ReadFile(file)
		return strings.Count(string(text), "\n")
	}
}

// TestGUnauthenticatedExecution: whoever can reach the port runs commands.
func TestGUnauthenticatedExecution(t *testing.T) {
	if _, err := new(tester.Server).Listen(t.Context(), tester.Endpoint{Addr: "0.0.0.0:0"}); !errors.Is(err, tester.ErrExposed) {
		t.Errorf("an exposed address without authentication: %v", err)
	}
	command, marks := marker(t)
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	task := canary("shop", `{"type": "bash", "cmd": "`+command+`"}`)
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
	if n := marks(); n != 0 || len(d.Server.Runs.Runs(api.Filter{})) != 0 {
		t.Errorf("a command of nobody ran %d times", n)
	}
	d.token = allToken
	if d.post("/", task).is(t, "with a token", 200, ""); marks() != 1 {
		t.Errorf("it ran %d times", marks())
	}
}

// TestGScopes: a credential is for some namespaces, types and gates, or for looking.
func TestGScopes(t *testing.T) {
	command, marks := marker(t)
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	bash, cmd := `{"type": "bash", "cmd": "`+command+`"}`, `{"type": "cmd", "cmd": "`+command+`"}`
	d.token = allToken
	d.post("/", canary("shop", `{"type": "bash", "cmd": "exit 0"}`)).is(t, "a run of another", 200, "")
	id := d.Server.Runs.Runs(api.Filter{})[0].ID
	const gates = "/api/v1/gates/"
	for _, tt := range []struct {
		token, method, path, body string
		status                    int
	}{
		{teamToken, "POST", "/", canary("team-a", bash), 200},
		{teamToken, "POST", "/", canary("team-a", cmd), 403},
		{teamToken, "POST", "/", canary("team-a", `{"cmd": "`+command+`"}`), 403}, // cmd is the default
		{teamToken, "POST", "/", canary("shop", bash), 403},
		{teamToken, "POST", "/launch-test", canary("team-a", `{"script": "x"}`), 403},
		{teamToken, "POST", "/gate/traffic-eu/open", canary("team-a", `{}`), 202},
		{teamToken, "POST", "/gate/open", canary("team-a", `{}`), 403},
		{teamToken, "POST", "/gate/open?gate=prod", canary("team-a", `{"gate": "traffic"}`), 403},
		{teamToken, "POST", "/gate/check", canary("team-a", `{"gate": "prod"}`), 403},
		{teamToken, "GET", "/api/v1/runs/" + id, "", 403},
		{teamToken, "GET", "/api/v1/runs/" + id + "/output", "", 403},
		{teamToken, "POST", "/api/v1/runs/" + id + "/cancel", "", 403},
		{teamToken, "POST", gates + "gate/shop/podinfo/traffic/open", "{}", 403},
		{teamToken, "GET", gates + "gate/shop/podinfo/traffic", "", 403},
		{lookToken, "POST", "/", canary("shop", bash), 403},
		{lookToken, "POST", "/gate/check", canary("shop", `{}`), 403}, // it is closed
		{lookToken, "POST", "/gate/open", canary("shop", `{}`), 403},
		{lookToken, "POST", gates + "gate/shop/podinfo/default/reject", "{}", 403},
		{lookToken, "POST", gates + "gate/shop/podinfo/default/link", "{}", 403},
		{lookToken, "POST", "/api/v1/runs/" + id + "/cancel", "", 403},
		{lookToken, "GET", "/api/v1/runs/" + id, "", 200},
		{gateToken, "POST", "/gate/open", canary("shop", `{}`), 202},
		{gateToken, "POST", "/rollback/open", canary("shop", `{}`), 403},
		{gateToken, "POST", gates + "gate/shop/podinfo/default/reject", "{}", 403}, // it would open the rollback switch
		{gateToken, "POST", gates + "gate/shop/podinfo/default/link", "{}", 403},
		{gateToken, "POST", "/", canary("shop", bash), 403},
	} {
		d.token = tt.token
		if got := d.call(tt.method, tt.path, tt.body, "Content-Type", "application/json"); got.status != tt.status {
			t.Errorf("%s: %s %s %s: %d %s, want %d", tt.token, tt.method, tt.path, tt.body, got.status, got.body, tt.status)
		}
	}
	if n := marks(); n != 1 {
		t.Errorf("%d commands ran, want 1", n)
	}
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
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	show := `"type": "bash", "cmd": "env; cat /proc/$PPID/environ | tr '\\0' '\\n'; echo args: $0 $@", "returnCmdOutput": "true"`
	base := d.url
	for name, tt := range map[string]struct{ url, path, metadata string }{
		"path":     {base, "/token/" + teamToken + "/", `{` + show + `, "n": "1"}`},
		"query":    {base, "/?token=" + teamToken, `{` + show + `, "n": "2"}`},
		"userinfo": {strings.Replace(base, "http://", "http://anybody:"+teamToken+"@", 1), "/", `{` + show + `, "n": "3"}`},
		"metadata": {base, "/", `{` + show + `, "n": "4", "token": "` + teamToken + `"}`},
	} {
		d.url = tt.url
		got := d.post(tt.path, canary("team-a", tt.metadata))
		if got.is(t, name, 200, "PATH="); strings.Contains(got.body, teamToken) {
			t.Errorf("%s: the token is in the environment: %s", name, got.body)
		}
		d.post(tt.path, strings.Replace(canary("shop", tt.metadata), `"n"`, `"m"`, 1)).is(t, name+", another namespace", 403, "Forbidden")
	}
	d.url, d.token = base, allToken
	records := d.call(http.MethodGet, "/api/v1/runs", "").body
	for _, run := range d.Server.Runs.Runs(api.Filter{}) {
		records += d.call(http.MethodGet, "/api/v1/runs/"+run.ID, "").body
		if run.Actor != "team" {
			t.Errorf("the actor of a run is %q", run.Actor)
		}
		if _, kept := run.Metadata["token"]; kept {
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
	d := openDoor(t, func(w *doorway) { w.server.Guard = guard(t, tenants) })
	d.token = teamToken
	task := `"metadata": {"type": "bash", "cmd": "` + command + `"}`
	for name, payload := range map[string]string{
		"part of a name":     canary("not-team-a", `{"type": "bash", "cmd": "`+command+`"}`),
		"a name and more":    canary("team", `{"type": "bash", "cmd": "`+command+`"}`),
		"none":               `{"name": "podinfo", ` + task + `}`,
		"null":               `{"name": "podinfo", "namespace": null, ` + task + `}`,
		"the last of two":    `{"name": "podinfo", "namespace": "team-a", "namespace": "shop", ` + task + `}`,
		"in another case":    `{"name": "podinfo", "namespace": "team-a", "NAMESPACE": "shop", ` + task + `}`,
		"capital letters":    canary("TEAM-A", `{"type": "bash", "cmd": "`+command+`"}`),
		"a namespace inside": `{"name": "podinfo", "metadata": {"namespace": "team-a", "type": "bash", "cmd": "` + command + `"}}`,
		"by path":            `{"name": "podinfo", "namespace": "shop/team-a"` + `, ` + task + `}`,
	} {
		d.post("/", payload).is(t, name, 403, "Forbidden")
	}
	if n := marks(); n != 0 {
		t.Errorf("%d commands ran", n)
	}
	// What two names of one field mean is the same for access and for what is recorded.
	d.post("/", `{"name": "podinfo", "namespace": "shop", "namespace": "team-a", `+task+`}`).is(t, "the last of two is its own", 200, "")
	if runs := d.Server.Runs.Runs(api.Filter{}); len(runs) != 1 || runs[0].Namespace != "team-a" {
		t.Errorf("recorded: %+v", runs)
	}
}

// TestGMutualTLS: a certificate is a credential as a token is, when it is one
// of a client, from the right CA and of today.
func TestGMutualTLS(t *testing.T) {
	ca, other := testenv.NewCA(t), testenv.NewCA(t)
	cert, key := certificate(t, ca)
	pair := func(cert, key []byte) *tls.Certificate {
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &p
	}
	const passes, cmd = `{"type": "bash", "cmd": "exit 0"}`, `{"cmd": "exit 0"}`
	for name, tt := range map[string]struct {
		shown            *tls.Certificate // nil for none
		metadata         string
		status, optional int // when all need a certificate, and when not; 0: there is no connection
	}{
		"known":            {pair(ca.Client("ci")), passes, 200, 200},
		"beyond its scope": {pair(ca.Client("ci")), cmd, 403, 403},
		"unknown":          {pair(ca.Client("somebody")), passes, 401, 401},
		"of another CA":    {pair(other.Client("ci")), passes, 0, 0},
		"expired":          {pair(ca.Expired("ci")), passes, 0, 0},
		"of a server":      {pair(ca.Server()), passes, 0, 0},
		"none":             {nil, passes, 0, 401},
	} {
		for _, optional := range []bool{false, true} {
			d := openDoor(t, func(w *doorway) {
				g, err := tester.OpenGuard(file(t, []byte(
					"certificates: [{name: ci, commonName: ci, types: [bash]}, {name: server, commonName: localhost}]")), true, nil)
				if err != nil {
					t.Fatal(err)
				}
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
			d.post("/", canary("shop", tt.metadata)).is(t, fmt.Sprintf("%s, optional %t", name, optional), want, "")
			runs := d.Server.Runs.Runs(api.Filter{})
			if (len(runs) == 1) != (want == 200) || len(runs) == 1 && runs[0].Actor != "ci" {
				t.Errorf("%s, optional %t: runs: %+v", name, optional, runs)
			}
		}
	}
}
