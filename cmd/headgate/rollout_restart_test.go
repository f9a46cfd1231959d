package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// TestRestartsSkipNoInterval kills a rollout twenty times, each time as soon as
// a step is saved, and starts it again: no step is done before an interval has
// passed since the one before.
func TestRestartsSkipNoInterval(t *testing.T) {
	const interval = 200 * time.Millisecond
	dir := t.TempDir()
	manifest, state := filepath.Join(dir, "canary.yaml"), filepath.Join(dir, "app.json")
	const text = `apiVersion: rollout.headgate.dev/v1beta1
kind: Canary
metadata: {name: app}
spec:
  targetRef: {kind: Deployment, name: app}
  analysis: {interval: 10s, stepWeight: 1}
`
	if err := os.WriteFile(manifest, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var last rollout.Status
	for kill := range 20 {
		c := exec.Command("headgate", "rollout", "run", "-f", manifest, "--state", state, "--revision", "v2",
			"--interval", interval.String(), "--no-traffic")
		c.Stderr, c.Env = t.Output(), append(os.Environ(), "GORACE=atexit_sleep_ms=0")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for readStatus(t, state).Sequence == last.Sequence { // until a step is saved
			select {
			case <-t.Context().Done():
				t.Fatal("no step")
			case <-time.After(time.Millisecond):
			}
		}
		c.Process.Kill()
		c.Wait()
		s := readStatus(t, state)
		if s.LastStep.IsZero() {
			t.Fatalf("the status does not say when the last step was: %+v", s)
		}
		// One step more may have been saved before the kill. A percent is for clocks that are slewed.
		if steps := max(s.CanaryWeight-last.CanaryWeight, 1); kill > 0 && s.LastStep.Sub(last.LastStep) < time.Duration(steps)*interval*99/100 {
			t.Errorf("kill %d: %d steps in %v, from %+v to %+v", kill, steps, s.LastStep.Sub(last.LastStep), last, s)
		}
		last = s
	}
}

// readStatus returns the status in a file, the zero one when there is none yet.
func readStatus(t *testing.T, path string) rollout.Status {
	t.Helper()
	var r struct{ Status rollout.Status }
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return r.Status
	}
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		t.Fatal(fmt.Errorf("%s: %w", path, err))
	}
	return r.Status
}
