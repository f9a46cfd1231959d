package tester_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/remote"
)

const (
	serverPassword = "p4ssword-of-the-server"
	serverKey      = "k3y-of-the-server"
)

// remoteDoor opens a door that may ask servers on loopback.
func remoteDoor(t *testing.T) *door {
	keys := t.TempDir()
	if err := os.WriteFile(filepath.Join(keys, "concord"), []byte(serverKey+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return openDoor(t, func(w *doorway) { w.server.Servers = remote.Servers{Hosts: []string{"127.0.0.1"}, Keys: keys} })
}

// ask posts metadata for a canary.
func (d *door) ask(name string, pairs ...string) reply {
	m := map[string]string{"pollInterval": "100ms"}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	text, err := json.Marshal(m)
	if err != nil {
		d.t.Fatal(err)
	}
	return d.post("/", payload(name, string(text)))
}

// keeps fails the test when what is kept of runs, or said of them, has a secret.
func (d *door) keeps(texts ...string) {
	d.t.Helper()
	for _, r := range d.Server.Runs.Runs(api.Filter{}) {
		full, err := d.Server.Runs.Run(r.ID)
		text, _ := json.Marshal(full)
		if err != nil {
			d.t.Error(err)
		}
		texts = append(texts, string(text))
	}
	for _, text := range append(texts, d.log.String()) {
		for _, secret := range []string{serverPassword, serverKey, base64.StdEncoding.EncodeToString([]byte(serverPassword))} {
			if strings.Contains(text, secret) {
				d.t.Errorf("a secret is in %s", text)
			}
		}
	}
}

// TestDelegatedLoad has load tests of both generations of nGrinder, by both names
// of the type, in the background and waited for (S-3, S-36, S-39).
func TestDelegatedLoad(t *testing.T) {
	d := remoteDoor(t)
	for _, old := range []bool{false, true} {
		for _, name := range []string{"ngrinder", "delegated-load"} {
			for end, status := range map[string]int{"FINISHED": 200, "STOP_BY_ERROR": 422} {
				grinder := &testenv.NGrinder{Old: old, User: "admin", Password: serverPassword, States: []string{"TESTING", end}}
				server := httptest.NewServer(grinder)
				canary := fmt.Sprintf("%s-%t-%d", name, old, status)
				metadata := []string{"type", name, "server", server.URL, "clone", "7", "username", "admin",
					"passwd", base64.StdEncoding.EncodeToString([]byte(serverPassword))}
				if got := d.ask(canary, metadata...); got.status != 202 || got.body != "" {
					t.Errorf("%s: %d %q", canary, got.status, got.body)
				}
				want := api.Succeeded
				if status == 422 {
					want = api.Failed
				}
				until(t, d.Server, canary, is(want))
				got := d.ask(canary, append(metadata, "wait", "true")...)
				if got.status != status || status == 422 && !strings.HasPrefix(got.body, "ngrinder: test 1002 stopped by an error (STOP_BY_ERROR)\nngrinder: started test 1002, a clone of test 7, on "+server.URL) {
					t.Errorf("%s: %d %q", canary, got.status, got.body)
				}
				d.keeps(got.body)
				server.Close()
			}
		}
	}
}

// TestWorkflow has processes of Concord in all their terminal states, by both
// names of the type (S-40, S-41, S-45).
func TestWorkflow(t *testing.T) {
	d := remoteDoor(t)
	for _, name := range []string{"concord", "workflow"} {
		for end, want := range map[string]string{
			"FINISHED": "", "FAILED": "concord instanceID: %s failed\n", "CANCELLED": "concord instanceID: %s was cancelled\n",
			"TIMED_OUT": "concord instanceID: %s timed out\n", "RUNNING": "concord process timed out, after 0.5 seconds\n",
		} {
			pollTimeout := "60"
			if end == "RUNNING" {
				pollTimeout = "0.5"
			}
			concord := &testenv.Concord{Key: serverKey, States: []string{"ENQUEUED", end}}
			server := httptest.NewServer(concord)
			got := d.ask(name+end, "type", name, "server", server.URL, "org", "o", "project", "p", "repo", "r", "entrypoint", "e",
				"apiKeyPath", "concord", "endpoint", "http://canary", "pollTimeout", pollTimeout, "returnCmdOutput", "true")
			if strings.Contains(want, "%") {
				want = fmt.Sprintf(want, concord.ID(0))
			}
			status := 422
			if end == "FINISHED" {
				status = 200
			}
			if got.status != status || !strings.HasPrefix(got.body, want+"concord: started process "+concord.ID(0)+" on "+server.URL+"\n") {
				t.Errorf("%s %s: %d %q", name, end, got.status, got.body)
			}
			if cancelled := len(concord.Cancelled()) == 1; cancelled != (end == "RUNNING") {
				t.Errorf("%s %s: cancelled %v", name, end, concord.Cancelled())
			}
			d.keeps(got.body)
			server.Close()
		}
	}
}

// TestRemoteMetadata has a text for each thing that is wrong, and asks nobody.
func TestRemoteMetadata(t *testing.T) {
	d := remoteDoor(t)
	for _, c := range []struct {
		want  string
		pairs []string
	}{
		{"server, clone, username and passwd are required metadata", []string{"type", "ngrinder"}},
		{"invalid url: host 192.0.2.1 is not one that may be asked: see --hosts", []string{"type", "ngrinder", "server", "http://192.0.2.1", "clone", "x", "username", "u", "passwd", "x"}},
		{"`server` is required with type concord", []string{"type", "concord"}},
		{"`apiKeyPath` file doesn't exist /etc/passwd", []string{"type", "workflow", "server", "http://127.0.0.1", "org", "o", "project", "p", "repo", "r", "entrypoint", "e", "apiKeyPath", "/etc/passwd"}},
	} {
		if got := d.ask("c", c.pairs...); got.status != 400 || strings.TrimSpace(got.body) != c.want {
			t.Errorf("%d %q, want %q", got.status, got.body, c.want)
		}
	}
}

// TestRemoteEndsWithItsRun has what was started on a server end when its run is
// cancelled, and when the test runner shuts down (S-26, S-27).
func TestRemoteEndsWithItsRun(t *testing.T) {
	d := remoteDoor(t)
	grinder := &testenv.NGrinder{User: "admin", Password: serverPassword, States: []string{"TESTING"}}
	server := httptest.NewServer(grinder)
	defer server.Close()
	var runs []string
	for _, canary := range []string{"cancelled", "stopped"} {
		d.ask(canary, "type", "ngrinder", "server", server.URL, "clone", "7", "username", "admin", "passwd", base64.StdEncoding.EncodeToString([]byte(serverPassword)))
		r := until(t, d.Server, canary, is(api.Running))
		runs = append(runs, r.ID)
		if err := d.Server.Runs.Output(t.Context(), r.ID, true, once{}); err != io.EOF { // it says that the test was started
			t.Fatal(err)
		}
	}
	if got := d.post("/api/v1/runs/"+runs[0]+"/cancel", ""); got.status != 200 || len(grinder.Stopped()) != 1 {
		t.Errorf("%d %s, stopped %v", got.status, got.body, grinder.Stopped())
	}
	if err := d.end(); err != nil || len(grinder.Stopped()) != 2 {
		t.Errorf("%v, stopped %v", err, grinder.Stopped())
	}
}

// once takes what is written, and no more.
type once struct{}

func (once) Write(p []byte) (int, error) { return len(p), io.EOF }
