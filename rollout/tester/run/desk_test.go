package run_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// A task is a Task made of a function.
type task func(ctx context.Context, out io.Writer) error

func (t task) Run(ctx context.Context, out io.Writer) error { return t(ctx, out) }

// exit is the error of a program that ended with a code.
type exit int

func (e exit) Error() string { return "exit status " + string(rune('0'+int(e))) }
func (e exit) ExitCode() int { return int(e) }

// A work is a task that counts how often it is started, takes a while, and ends as told.
type work struct {
	starts atomic.Int32
	active atomic.Int32
	most   atomic.Int32 // at a time
	takes  time.Duration
	err    error
}

func (w *work) Run(ctx context.Context, out io.Writer) error {
	w.starts.Add(1)
	now := w.active.Add(1)
	defer w.active.Add(-1)
	for most := w.most.Load(); now > most && !w.most.CompareAndSwap(most, now); most = w.most.Load() {
	}
	io.WriteString(out, "working\n")
	select {
	case <-time.After(w.takes):
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *work) started(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	if got := int(w.starts.Load()); got != want {
		t.Errorf("%d tasks were started, want %d", got, want)
	}
}

// open returns a desk that is shut down at the end.
func open(t *testing.T, c run.Config) *run.Runner {
	t.Helper()
	if c.Warn == nil {
		c.Warn = func(err error) { t.Errorf("warned of %v", err) }
	}
	d, err := run.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Shutdown(context.Background()) })
	return d
}

func request(text string) run.Request {
	return run.Request{Namespace: "prod", Name: "app", Phase: "Progressing", Checksum: "c1", Type: "bash", Metadata: map[string]string{"type": "bash", "cmd": text}}
}

func wait(t *testing.T, d *run.Runner, r run.Request, w run.Task) api.Run {
	t.Helper()
	got, err := d.Wait(t.Context(), r, w)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func start(t *testing.T, d *run.Runner, r run.Request, w run.Task) api.Run {
	t.Helper()
	got, err := d.Start(r, w)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func state(t *testing.T, got api.Run, want api.RunState) {
	t.Helper()
	if got.State != want {
		t.Errorf("run %s is %s (%s), want %s", got.ID, got.State, got.Reason, want)
	}
}

func lookUp(t *testing.T, d *run.Runner, id string) api.Run {
	t.Helper()
	got, err := d.Run(id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// within runs f in a bubble, where time passes when all wait.
func within(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}
