package tester_test

import (
	"encoding/base64"
	"encoding/json"
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

// TestRemoteEndsWithItsRun has what was started on a server end when its run is
// cancelled, and when the test runner shuts down (S-26, S-27), and no secret kept.
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
	d.keeps()
	if err := d.end(); err != nil || len(grinder.Stopped()) != 2 {
		t.Errorf("%v, stopped %v", err, grinder.Stopped())
	}
}

// once takes what is written, and no more.
type once struct{}

func (once) Write(p []byte) (int, error) { return len(p), io.EOF }
