package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// A moody test runner breaks its stream of changes after each one, and refuses
// every other connection.
type moody struct {
	mu      sync.Mutex
	streams int
	changes []api.Gate // one for each stream
	state   []api.Gate
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.URL.Path == "/api/v1/gates":
		json.NewEncoder(w).Encode(map[string][]api.Gate{"gates": m.state})
	case m.streams%2 == 1:
		m.streams++
		w.WriteHeader(http.StatusServiceUnavailable)
	case m.streams/2 < len(m.changes):
		w.Header().Set("Content-Type", "text/event-stream")
		g := m.changes[m.streams/2]
		m.streams++
		m.state = append(m.state, g)
		text, _ := json.Marshal(api.Notice{Gate: &g})
		io.WriteString(w, "data: "+string(text)+"\n\n")
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

// A tripwire ends something once enough was written to it.
type tripwire struct {
	mu   sync.Mutex
	text bytes.Buffer
	word string
	trip func()
}

func (w *tripwire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if strings.Contains(w.text.String(), w.word) {
		w.trip()
	}
	return len(p), nil
}

// TestGateWatch connects again when the stream breaks, and tells once of each
// change, of those in between too.
func TestGateWatch(t *testing.T) {
	gateOf := func(name, reason string) api.Gate {
		return api.Gate{Key: api.Key{Kind: api.KindGate, Namespace: "prod", Name: name, Gate: "default"}, Open: true, Mode: api.Sticky, Reason: reason}
	}
	rollback := gateOf("undo", "")
	rollback.Kind = api.KindRollback
	m := &moody{
		changes: []api.Gate{gateOf("one", "first\x1b[2J"), rollback, gateOf("two", "last")},
		state:   []api.Gate{gateOf("before", "was open")},
	}
	server := httptest.NewServer(m)
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &tripwire{word: "reason: last", trip: cancel}
	var stderr bytes.Buffer
	code := run(ctx, []string{"gate", "watch", "--server", server.URL}, strings.NewReader(""), out, &stderr, func(string) (string, bool) { return "", false })
	if code != exitReady {
		t.Errorf("exit code %d: %s", code, &stderr)
	}
	lines := strings.Split(strings.TrimSpace(out.text.String()), "\n")
	for i, want := range []string{"prod/before open for all reason: was open", "prod/one open for all reason: first", "prod/two open for all reason: last"} {
		if i >= len(lines) || !strings.HasSuffix(lines[i], want) {
			t.Errorf("line %d of %q is not %s", i, lines, want)
		}
	}
	if len(lines) != 3 || strings.Contains(out.text.String(), "\x1b") || strings.Count(stderr.String(), "trying again in") != 4 {
		t.Errorf("%q\n%s", lines, &stderr)
	}

	// what will not get better ends it
	code = run(t.Context(), []string{"rollback", "watch", "--server", server.URL}, strings.NewReader(""), io.Discard, &stderr, func(string) (string, bool) { return "", false })
	if code != exitFailed {
		t.Errorf("exit code %d when it is refused", code)
	}
}
