package summary

import (
	"bytes"
	"strings"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// wrk reads what wrk prints.
type wrk struct {
	total load
	runs  int
	run   load
	in    bool // a run was announced
	found bool // its requests were counted
}

func (w *wrk) look(raw []byte) {
	if raw[0] == 'R' && bytes.HasPrefix(raw, []byte("Running ")) && bytes.Contains(raw, []byte(" test @ ")) {
		w.finish()
		w.in = true
		return
	}
	if !w.in {
		return
	}
	line := strings.TrimSpace(string(raw))
	f := strings.Fields(line)
	switch {
	case len(f) == 2 && f[0] == "50%":
		w.run.p50 = span(f[1])
	case len(f) == 2 && f[0] == "99%":
		w.run.p99 = span(f[1])
	case len(f) > 3 && f[1] == "requests" && f[2] == "in":
		w.run.requests, w.found = count(f[0]), true
		w.run.seconds = span(strings.TrimSuffix(f[3], ",")).Seconds()
	case strings.HasPrefix(line, "Non-2xx or 3xx responses:"):
		w.errors(count(f[len(f)-1]), line)
	case strings.HasPrefix(line, "Socket errors:"):
		w.sockets(line)
	case raw[0] == 'R' && len(f) == 2 && f[0] == "Requests/sec:":
		w.run.rate = number(f[1])
	}
}

// sockets reads: Socket errors: connect 0, read 1, write 0, timeout 2. Those
// are no requests of the total.
func (w *wrk) sockets(line string) {
	var n int64
	for _, word := range strings.Fields(line) {
		n = sum(n, count(strings.TrimSuffix(word, ",")))
	}
	w.run.requests = sum(w.run.requests, n)
	w.errors(n, line)
}

func (w *wrk) errors(n int64, what string) {
	if n > 0 {
		w.run.errors = sum(w.run.errors, n)
		w.run.failures = w.run.failures.add(what)
	}
}

func (w *wrk) finish() {
	if w.found {
		w.total = w.total.add(w.run)
		w.runs++
	}
	w.run, w.in, w.found = load{}, false, false
}

func (w wrk) summary() *api.Summary {
	w.finish()
	if w.runs == 0 {
		return nil
	}
	return w.total.fill(&api.Summary{Format: "wrk"}, w.runs)
}
