package source_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/source"
)

func TestTimeouts(t *testing.T) {
	stall := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for phase, from := range map[string]*scriptedOrigin{
		"resolve": {resolve: stall},
		"fetch":   {rev: originAt(revision1).rev, open: stall},
	} {
		r := newFixture(t)
		g := repository()
		g.Spec.Timeout = source.Duration(time.Millisecond)
		err := r.run(g, from, source.Failed)
		if want := phase + ": not done within 1ms, raise spec.timeout"; !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	interrupted := func(ctx context.Context) error { <-ctx.Done(); return io.ErrUnexpectedEOF }
	if err := source.Within(t.Context(), time.Millisecond, "x", interrupted); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v tells not what happened", err)
	}
	r := newFixture(t)
	g := repository()
	g.Spec.Timeout = 0 // only the origin's own limit
	if err := r.run(g, failingOrigin(context.DeadlineExceeded), source.Failed); strings.Contains(err.Error(), "spec.timeout") {
		t.Errorf("error %v", err)
	}
}

// A run whose caller's context ends records nothing, whatever it was doing.
func TestCancellation(t *testing.T) {
	r := newFixture(t)
	r.run(repository(), originAt(revision1), source.Stored)
	r.events = nil
	try := func(doing string, ctx context.Context, from source.Origin) {
		t.Helper()
		result, err := r.Reconcile(ctx, repository(), from)
		if result.Outcome != "" || !errors.Is(err, io.ErrClosedPipe) || len(r.events) != 0 {
			t.Errorf("%s: outcome %q, error %v, events %s", doing, result.Outcome, err, r.reasons())
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	try("resolving", ctx, &scriptedOrigin{resolve: func(ctx context.Context) error { cancel(io.ErrClosedPipe); return ctx.Err() }})
	unlock, err := r.Store.Lock(t.Context(), "gitrepository/apps/sample")
	must(t, err)
	defer unlock()
	try("waiting for the lock", ctx, originAt(revision2))
}
