package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestGateWait goes on while the test runner is not there, says so once for each
// cause, and while the gate is open for another revision than the one that waits.
func TestGateWait(t *testing.T) {
	t.Parallel()
	key := api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "default"}
	steps := []api.Gate{
		{}, {}, // not there
		{Key: key, Open: true, Mode: api.Bound, Checksum: "old", Waiting: &api.Waiting{Checksum: "new"}},
		{Key: key, Open: true, Mode: api.Bound, Checksum: "new", Waiting: &api.Waiting{Checksum: "new"}},
	}
	asked := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		step := steps[min(asked, len(steps)-1)]
		if asked++; step.Name == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(step)
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"gate", "wait", "prod/web", "--timeout", "1m", "--server", server.URL}, strings.NewReader(""), &stdout, &stderr, func(string) (string, bool) { return "", false })
	if code != exitReady || asked != len(steps) || !strings.Contains(stdout.String(), "open   new") {
		t.Errorf("exit code %d after %d looks: %s", code, asked, &stdout)
	}
	if got := stderr.String(); strings.Count(got, "; trying again\n") != 1 || strings.Count(got, "answers again\n") != 1 || !strings.Contains(got, "status 503") {
		t.Errorf("%s", got)
	}
}

func TestOpensFor(t *testing.T) {
	waiting := &api.Waiting{Checksum: "w"}
	for _, c := range []struct {
		gate     api.Gate
		checksum string
		want     bool
	}{
		{api.Gate{}, "", false},
		{api.Gate{Waiting: waiting}, "w", false},
		{api.Gate{Open: true}, "", true},
		{api.Gate{Open: true, Waiting: waiting}, "x", true},
		{api.Gate{Open: true, Checksum: "a"}, "", true},
		{api.Gate{Open: true, Checksum: "a"}, "a", true},
		{api.Gate{Open: true, Checksum: "a"}, "x", false},
		{api.Gate{Open: true, Checksum: "a", Waiting: waiting}, "", false},
		{api.Gate{Open: true, Checksum: "a", Waiting: &api.Waiting{}}, "", false},
		{api.Gate{Open: true, Checksum: "a", Waiting: waiting}, "a", true},
		{api.Gate{Open: true, Checksum: "w", Waiting: waiting}, "", true},
		{api.Gate{Open: true, Checksum: "w", Waiting: waiting}, "x", false},
	} {
		if got := opensFor(c.gate, c.checksum); got != c.want {
			t.Errorf("%+v for %q: %t", c.gate, c.checksum, got)
		}
	}
}
