package tester_test

import (
	"crypto/sha256"
	"encoding/base64"
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
	"github.com/headgate-io/headgate/rollout/tester"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
	"github.com/headgate-io/headgate/rollout/tester/run"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// k6 replaces the real k6: it prints what that prints before a test starts, and then
// does what the script says.
const k6 = `#!/bin/sh
for script; do :; done
echo 'output: -'
case $(cat "$script") in
pass) echo pass ;;
fail) echo fail; exit 99 ;;
linger) sleep 60 ;;
once*) read -r _ mark <"$script"; if [ -e "$mark" ]; then echo pass; else : >"$mark"; sleep 60; fi ;;
esac
`

// programs returns a directory for PATH with the programs that tests of the protocol may run.
func programs(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "bash", "cat", "sleep", "env", "head", "tr"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Skip(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Skip(err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "k6"), []byte(k6), 0o755))
	return dir
}

// newServer returns a test runner that runs programs in sandboxes of its own,
// with gates and runs in memory.
func newServer(t testing.TB) *tester.Server { return newServerOf(t, run.Config{}) }

// newServerOf is like newServer, with a configuration of the runs.
func newServerOf(t testing.TB, c run.Config) *tester.Server {
	t.Helper()
	s := &tester.Server{Tools: task.Tools{Env: []string{"PATH=" + programs(t)}, Grace: 100 * time.Millisecond}}
	var err error
	if s.Gates, err = gate.Open(gate.Config{}); err != nil {
		t.Fatal(err)
	}
	if s.Runs, err = run.Open(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Shutdown(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
		s.Gates.Close()
	})
	return s
}

// serve serves at a real listener and returns its address.
func serve(t testing.TB, s *tester.Server) string {
	t.Helper()
	server := httptest.NewServer(s.Handler())
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// TestWire replays testdata/exchanges: requests to every endpoint, and the answers. Each
// file gets a new test runner.
func TestWire(t *testing.T) {
	set := map[string]func(*testing.T, *tester.Server){
		"strict.txt": func(_ *testing.T, s *tester.Server) {
			s.Strict, s.Types, s.FailureStatus = true, []string{"bash"}, 500
		},
		"access.txt": func(t *testing.T, s *tester.Server) { s.Guard = guard(t, tenants) },
	}
	files, err := filepath.Glob("../../testdata/exchanges/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			if set[name] != nil {
				set[name](t, s)
			}
			exchanges, err := testenv.Exchanges(file)
			must(t, err)
			address := serve(t, s)
			for _, x := range exchanges {
				testenv.Equal(t, x.Do(address), nil, "%s: %s", x.Position, x.Name)
			}
		})
	}
}

// TestRejectGivenRevision rejects the revision that a user saw while another revision waits
// by then: the other one is not rolled back.
func TestRejectGivenRevision(t *testing.T) {
	d := startServer(t, nil)
	d.post("/gate/check", namespacePayload("shop", `{}`)).expect(t, "a check", 403, "")
	d.post(gatePath+"/reject", `{"checksum": "seen", "ttl": "1h", "reason": "errors"}`).expect(t, "reject", 200, `"open":false`)
	rollback := d.state(api.KindRollback)
	if rollback.Checksum != "seen" || rollback.Expires.Sub(rollback.Changed) != time.Hour {
		t.Errorf("rolled back: %+v", rollback)
	}
	if w := d.state(api.KindGate).Waiting; w == nil || w.Checksum != "abc" {
		t.Errorf("the other waits no more: %+v", w)
	}
	d.post(gatePath+"/reject", `{"mode": "sticky"}`).expect(t, "a mode of a rejection", 400, "mode")
	d.post(gatePath+"/close", `{"ttl": "1h"}`).expect(t, "a time of a closing", 400, "ttl")
}

// TestOpenFromWebhook opens gates by payloads, which have a checksum whatever the mode. A payload
// without a name opens the gate of checks without a name, which begin no wait.
func TestOpenFromWebhook(t *testing.T) {
	d := startServer(t, nil)
	for mode, want := range map[string]string{"": "sticky ", "one-shot": "one-shot ", "checksum": "checksum abc"} {
		body := strings.Replace(namespacePayload("shop", `{}`), "{", `{"mode": "`+mode+`", "ttl": "1h", `, 1)
		d.post("/gate/open", body).expect(t, "open, mode "+mode, 202, "")
		if g := d.state(api.KindGate); string(g.Mode)+" "+g.Checksum != want || g.Expires.IsZero() {
			t.Errorf("mode %q: %+v", mode, g)
		}
		d.post("/gate/close", body).expect(t, "close, mode "+mode, 202, "")
	}
	d.post("/gate/check", `{}`).expect(t, "no name", 403, "")
	testenv.Equal(t, waitingGates(t, d.url, api.Filter{}), "")
	d.post("/gate/open", `{}`).expect(t, "open", 202, "")
	d.post("/gate/check", `null`).expect(t, "opened", 200, "")
}

// analysisPayload returns a payload as an analysis sends it.
func analysisPayload(weight, fields string) string {
	return fmt.Sprintf(`{"name":"app","namespace":"test","phase":"Waiting","checksum":"a","metadata":{"headgate.revision":"main@sha1:69d8","headgate.weight":%q,`+
		`"headgate.step":"2/5","headgate.threshold":"5","headgate.failures":"1"%s}}`, weight, fields)
}

// TestHeadgateKeysAreNotPartOfTheTest shows that requests which differ only in the keys of headgate
// are equal, and that these keys alone ask for no test.
func TestHeadgateKeysAreNotPartOfTheTest(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	for _, weight := range []string{"20", "40"} {
		if status, text := mustPost(t, url, analysisPayload(weight, `,"cmd":"sleep 60"`)); status != http.StatusAccepted {
			t.Errorf("%d %s", status, text)
		}
	}
	mustPost(t, url, `{"name":"app","namespace":"test","phase":"Progressing","checksum":"a","metadata":{"cmd":"sleep 60"}}`)
	if runs := s.Runs.Runs(api.Filter{}, nil); len(runs) != 1 || len(runs[0].Metadata) != 1 {
		t.Errorf("%+v", runs)
	}
	if status, text := mustPost(t, url, analysisPayload("20", "")); status != http.StatusBadRequest || text != "metadata not found in payload" {
		t.Errorf("%d %s", status, text)
	}
}

// TestWaitingCanaryInfo shows that the API has the newest texts for people of a payload,
// sanitized, and that it selects runs by checksum.
func TestWaitingCanaryInfo(t *testing.T) {
	url := "http://" + serve(t, newServer(t))
	client := &api.Client{URL: url}
	key := api.Key{Kind: api.KindGate, Namespace: "test", Name: "app", Gate: "default"}
	var since string
	for _, weight := range []string{"20", "40"} {
		mustPost(t, url+"/gate/check", analysisPayload(weight, ""))
		g, err := client.Gate(t.Context(), key)
		if err != nil || g.Waiting == nil {
			t.Fatalf("%+v %v", g, err)
		}
		testenv.Equal(t, g.Waiting.CanaryInfo, (api.CanaryInfo{Revision: "main@sha1:69d8", Weight: weight, Step: "2/5", Threshold: "5", Failures: "1"}))
		if now := fmt.Sprint(g.Waiting.Since); since != "" && since != now {
			t.Error("another weight is another wait")
		} else {
			since = now
		}
	}
	long, _ := json.Marshal("https://ci:s3cret@git.example.org/a\x1b[2J" + strings.Repeat("x", 1000))
	mustPost(t, url+"/gate/check", `{"name":"app","namespace":"test","metadata":{"headgate.revision":`+string(long)+`}}`)
	g, err := client.Gate(t.Context(), key)
	if err != nil || len(g.Waiting.Revision) > 300 || strings.Contains(g.Waiting.Revision, "s3cret") || strings.Contains(g.Waiting.Revision, "\x1b") {
		t.Errorf("%+v %v", g.Waiting, err)
	}
	for _, checksum := range []string{"a", "b"} {
		mustPost(t, url, `{"name":"app","namespace":"test","checksum":"`+checksum+`","metadata":{"type":"bash","cmd":"true"}}`)
	}
	runs, err := client.Runs(t.Context(), api.Filter{Checksum: "b"})
	if err != nil || len(runs) != 1 || runs[0].Checksum != "b" {
		t.Errorf("%+v %v", runs, err)
	}
}

// TestLinkPageShowsWaitingRevision shows that the page of a link looks like the web page, and has the
// revision, its progress, and those of its runs that the issuer of the link may see.
func TestLinkPageShowsWaitingRevision(t *testing.T) {
	s := newServer(t)
	url := "http://" + serve(t, s)
	mustPost(t, url, analysisPayload("20", `,"type":"bash","cmd":"echo broken; exit 3"`))
	mustPost(t, url, `{"name":"app","namespace":"test","checksum":"other","metadata":{"type":"kubectl","cmd":"get pods"}}`)
	mustPost(t, url+"/gate/check", analysisPayload("20", ""))
	_, text := mustPost(t, url+"/api/v1/gates/gate/test/app/default/link", "{}", "Content-Type", "application/json")
	var link api.Link
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	resp := get(t, link.Approve)
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	shown := string(body)
	for _, part := range []string{"<dt>Revision</dt><dd><bdi class=\"code\">main@sha1:69d8<", "<dt>Checksum</dt><dd><bdi class=\"code\">a<", "<dd>20%</dd>", "<dd>2/5</dd>", "<dd>1 of 5</dd>",
		`<th scope="row">bash</th><td>failed</td>`, "exit status 3"} {
		if !strings.Contains(shown, part) {
			t.Errorf("%q is not in %s", part, shown)
		}
	}
	if strings.Contains(shown, "kubectl") {
		t.Error("it shows runs of another revision")
	}
	_, rest, _ := strings.Cut(shown, "<style>")
	style, _, _ := strings.Cut(rest, "</style>")
	sheet, err := io.ReadAll(get(t, url+"/ui/style.css").Body)
	if err != nil || style != string(sheet) {
		t.Error("it does not look like the page")
	}
	sum := sha256.Sum256([]byte(style))
	if csp := resp.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'") {
		t.Errorf("the style is forbidden by %s", csp)
	}
	mustPost(t, url+"/gate/check", `{"name":"old","namespace":"test","checksum":"5594979469"}`)
	_, text = mustPost(t, url+"/api/v1/gates/gate/test/old/default/link", "{}", "Content-Type", "application/json")
	if err := json.Unmarshal([]byte(text), &link); err != nil {
		t.Fatal(text, err)
	}
	body, _ = io.ReadAll(get(t, link.Approve).Body)
	if shown := string(body); !strings.Contains(shown, "<dt>Revision</dt><dd><bdi class=\"code\">5594979469<") || strings.Contains(shown, "Checksum") {
		t.Errorf("%s", shown)
	}
}

// phasePayload returns the payload of a canary in namespace test.
func phasePayload(name, phase, metadata string) string {
	return fmt.Sprintf(`{"name":%q,"namespace":"test","phase":%q,"checksum":"a","metadata":%s}`, name, phase, metadata)
}

// waitingGates lists the canaries that wait, through a client: NAME/GATE of each, in order.
func waitingGates(t *testing.T, url string, f api.Filter) string {
	t.Helper()
	f.Waiting = true
	gates, err := (&api.Client{URL: url}).Gates(t.Context(), f)
	must(t, err)
	var names []string
	for _, g := range gates {
		names = append(names, g.Name+"/"+g.Gate)
	}
	return strings.Join(names, " ")
}

// TestEndOfRolloutEndsWaits shows that payloads of a canary whose rollout is over end its
// waits, and that payloads of other canaries and of trials do not.
func TestEndOfRolloutEndsWaits(t *testing.T) {
	const test = `{"type":"bash","cmd":"true"}`
	const both = "app/promotion app/start other/start"
	for name, x := range map[string]struct{ path, body, want string }{
		"failed":              {"/", phasePayload("app", "Failed", test), "other/start"},
		"succeeded":           {"/", phasePayload("app", "Succeeded", test), "other/start"},
		"at a switch":         {"/rollback/check", phasePayload("app", "Failed", "{}"), "other/start"},
		"closing a gate":      {"/gate/third/close", phasePayload("app", "Succeeded", "{}"), "other/start"},
		"k6 webhook":          {"/launch-test", phasePayload("app", "Failed", `{"script":"x"}`), "other/start"},
		"no test":             {"/", phasePayload("app", "Failed", "{}"), "other/start"},
		"the next rollout":    {"/gate/start/check", phasePayload("app", "Failed", "{}"), "app/start other/start"},
		"under way":           {"/", phasePayload("app", "Progressing", test), both},
		"another canary":      {"/", phasePayload("third", "Failed", test), both},
		"a trial":             {"/", phasePayload("app", "Failed", `{"type":"bash","cmd":"true","headgate.trial":"true"}`), both},
		"a trial of a switch": {"/rollback/check", phasePayload("app", "Failed", `{"headgate.trial":"true"}`), both},
	} {
		t.Run(name, func(t *testing.T) {
			url := "http://" + serve(t, newServer(t))
			for _, at := range []string{"app /gate/start/check", "app /gate/promotion/check", "other /gate/start/check"} {
				name, path, _ := strings.Cut(at, " ")
				mustPost(t, url+path, phasePayload(name, "Waiting", "{}"))
			}
			if got := waitingGates(t, url, api.Filter{}); got != both {
				t.Fatalf("before: %s", got)
			}
			mustPost(t, url+x.path, x.body)
			testenv.Equal(t, waitingGates(t, url, api.Filter{}), x.want)
		})
	}
}

// TestEndOfRolloutNeedsAccess shows that a caller cannot end waits outside its namespaces.
func TestEndOfRolloutNeedsAccess(t *testing.T) {
	s := newServer(t)
	s.Guard = guard(t, tenants)
	url := "http://" + serve(t, s)
	mustPost(t, url+"/gate/check", phasePayload("app", "Waiting", "{}"), "Authorization", "Bearer all-of-it-0123456789")
	for _, path := range []string{"/", "/gate/check", "/gate/close", "/rollback/check"} {
		mustPost(t, url+path, phasePayload("app", "Failed", `{"cmd":"true"}`), "Authorization", "Bearer team-token-0123456789")
	}
	testenv.Equal(t, len(s.Gates.List(api.Filter{Waiting: true})), 1)
}
