package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestGateWait checks that gate wait keeps waiting while the test runner is down,
// which it reports once, and while the gate is open for a revision other than the
// waiting one.
func TestGateWait(t *testing.T) {
	t.Parallel()
	key := api.Key{Kind: api.KindGate, Namespace: "prod", Name: "web", Gate: "default"}
	steps := []api.Gate{
		{}, {}, // the server answers 503
		{Key: key, Open: true, Mode: api.Bound, Checksum: "old", Waiting: &api.Waiting{Checksum: "new"}},
		{Key: key, Open: true, Mode: api.Bound, Checksum: "new", Waiting: &api.Waiting{Checksum: "new"}},
	}
	requests := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		step := steps[min(requests, len(steps)-1)]
		if requests++; step.Name == "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		json.NewEncoder(w).Encode(step)
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"gate", "wait", "prod/web", "--timeout", "1m", "--server", server.URL}, strings.NewReader(""), &stdout, &stderr, emptyEnv)
	if code != exitReady || requests != len(steps) || !strings.Contains(stdout.String(), "open   new") {
		t.Errorf("exit code %d after %d looks: %s", code, requests, &stdout)
	}
	if got := stderr.String(); strings.Count(got, ": trying again until it is back\n") != 1 || strings.Count(got, "the server is back\n") != 1 || !strings.Contains(got, "status 503") {
		t.Errorf("%s", got)
	}
}

func TestIsOpenFor(t *testing.T) {
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
		testenv.Equal(t, isOpenFor(c.gate, c.checksum), c.want, "%+v for %q", c.gate, c.checksum)
	}
}

// TestGateWatch checks that gate watch prints each change once, including those
// that happened while the stream was broken, and prints no control characters.
func TestGateWatch(t *testing.T) {
	t.Parallel()
	gateOf := func(name, reason string) api.Gate {
		return api.Gate{Key: api.Key{Kind: api.KindGate, Namespace: "prod", Name: name, Gate: "default"}, Open: true, Mode: api.Sticky, Reason: reason}
	}
	state := []api.Gate{gateOf("before", "was open")}
	changes := []api.Gate{gateOf("one", "first\x1b[2J"), gateOf("two", "last")} // the stream ends after each
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/api/v1/gates":
			json.NewEncoder(w).Encode(map[string][]api.Gate{"gates": state})
		case len(changes) == 0:
			w.WriteHeader(http.StatusForbidden)
		default:
			w.Header().Set("Content-Type", "text/event-stream")
			text, _ := json.Marshal(api.Notice{Gate: &changes[0]})
			io.WriteString(w, "data: "+string(text)+"\n\n")
			state, changes = append(state, changes[0]), changes[1:]
		}
	}))
	defer server.Close()
	var stdout, stderr bytes.Buffer
	code := run(t.Context(), []string{"gate", "watch", "--server", server.URL}, strings.NewReader(""), &stdout, &stderr, emptyEnv)
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	for i, want := range []string{"prod/before open for all reason: was open", "prod/one open for all reason: first", "prod/two open for all reason: last"} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d of %q is not %s", i, lines, want)
		}
	}
	if code != exitFailed || len(lines) != 3 || strings.Contains(stdout.String(), "\x1b") || strings.Count(stderr.String(), "the server is back") != 1 {
		t.Errorf("exit code %d, %q\n%s", code, lines, &stderr)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	if code := run(ctx, []string{"gate", "watch", "--server", server.URL}, strings.NewReader(""), io.Discard, &stderr, emptyEnv); code != exitReady {
		t.Errorf("exit code %d when it is interrupted", code)
	}
}
