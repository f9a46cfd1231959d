package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

// What chart tests need (specification, Errors), and where it is granted.
const (
	chartNeeds = "secrets (get, watch, list, update), pods, pods/log and, for tests that are jobs, jobs (create, list, delete, watch)"
	granting   = `docs/tester.md, "Deploying"`
)

// explain returns what a constructor returned, with the task explained.
func explain(t run.Task, secrets []string, err error) (run.Task, []string, error) {
	if err != nil {
		return nil, nil, err
	}
	return explained(t), secrets, nil
}

// explained returns t with errors that name the permissions which an API server
// said are missing; when t ends for lack of time and nothing was said, those
// that chart tests need.
func explained(t run.Task) run.Task { return explainedTask{t} }

type explainedTask struct{ run.Task }

func (t explainedTask) Run(ctx context.Context, out io.Writer) error {
	seen := &refusals{to: out}
	err := t.Task.Run(ctx, seen)
	if err == nil {
		return nil
	}
	missing := seen.found()
	switch {
	case len(missing) > 0:
		return &permissionError{err, fmt.Sprintf("the test runner lacks the permission to %s: see %s", strings.Join(missing, ", and to "), granting)}
	case errors.Is(ctx.Err(), context.DeadlineExceeded) || seen.late:
		return &permissionError{err, fmt.Sprintf("a chart test that hangs may lack a permission; it needs %s: see %s", chartNeeds, granting)}
	}
	return err
}

// A permissionError says what to do about an error.
type permissionError struct {
	error
	hint string
}

func (e *permissionError) Error() string { return e.error.Error() + ": " + e.hint }
func (e *permissionError) Unwrap() error { return e.error }

// refusals passes output on, and collects what the lines of an API server's
// client say of missing permissions.
type refusals struct {
	to io.Writer

	mu      sync.Mutex
	line    []byte // that has no end yet, its first maxLine bytes
	missing []string
	late    bool // the client gave up waiting
}

const (
	maxLine    = 4096 // bytes of a line that are looked at
	maxMissing = 5    // permissions that are named
)

func (r *refusals) Write(b []byte) (int, error) {
	r.look(b)
	return r.to.Write(b)
}

func (r *refusals) look(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		line, rest, ended := bytes.Cut(b, []byte("\n"))
		r.line = append(r.line, line[:min(len(line), maxLine-len(r.line))]...)
		if !ended {
			return
		}
		r.read()
		b = rest
	}
}

// found returns the permissions that are missing, as "watch pods in namespace shop".
func (r *refusals) found() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.read()
	return r.missing
}

// forbidden is how API servers refuse; logs of clients quote it, and escape its quotes.
var forbidden = regexp.MustCompile(`cannot ([a-z]+) resource \\?"([a-z0-9./-]+)\\?" in API group \\?"[a-z0-9.-]*\\?"(?: in the namespace \\?"([a-z0-9.-]+)\\?"| at the cluster scope)?`)

// read reads the line.
func (r *refusals) read() {
	line := r.line
	r.line = r.line[:0]
	r.late = r.late || bytes.Contains(line, []byte("timed out waiting")) || bytes.Contains(line, []byte("context deadline exceeded"))
	if !bytes.Contains(line, []byte("forbidden")) {
		return
	}
	for _, m := range forbidden.FindAllSubmatch(line, maxMissing) {
		what := fmt.Sprintf("%s %s", m[1], m[2])
		if len(m[3]) > 0 {
			what += fmt.Sprintf(" in namespace %s", m[3])
		}
		if len(r.missing) < maxMissing && !slices.Contains(r.missing, what) {
			r.missing = append(r.missing, what)
		}
	}
}
