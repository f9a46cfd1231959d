package source_test

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A scriptedOrigin is an origin and its content; a test may replace each step.
type scriptedOrigin struct {
	rev     source.Revision
	resolve func(context.Context) error
	open    func(context.Context) error
	verify  func() (source.Verification, error)
	write   func(io.Writer) (source.Report, error)
	secrets []string
	last    source.State // passed to Resolve
	next    source.State
	closed  int
}

func (s *scriptedOrigin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if s.last = last; s.resolve != nil {
		if err := s.resolve(ctx); err != nil {
			return source.Revision{Inputs: s.rev.Inputs}, nil, err
		}
	}
	return s.rev, s.next, nil
}

func (s *scriptedOrigin) Open(ctx context.Context, _ source.Revision) (source.Content, error) {
	if s.open != nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *scriptedOrigin) Verify(context.Context) (source.Verification, error) {
	if s.verify != nil {
		return s.verify()
	}
	return source.Verification{}, nil
}

func (s *scriptedOrigin) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	if s.write != nil {
		return s.write(w)
	}
	_, err := io.WriteString(w, "content of "+s.rev.ID)
	return source.Report{Message: "stored artifact for commit 'first'"}, err
}

func (s *scriptedOrigin) Close() error      { s.closed++; return nil }
func (s *scriptedOrigin) Secrets() []string { return s.secrets }

// originAt returns a script whose current revision is id.
func originAt(id string) *scriptedOrigin {
	_, hex, _ := strings.Cut(id, ":")
	return &scriptedOrigin{rev: source.Revision{ID: id, File: hex + ".tar.gz"}}
}

// failingOrigin returns a script whose Resolve fails.
func failingOrigin(err error) *scriptedOrigin {
	return &scriptedOrigin{resolve: func(context.Context) error { return err }}
}

// A fixture is a reconciler that records its effects.
type fixture struct {
	*source.Reconciler
	t      *testing.T
	dir    string
	clock  time.Time
	ledger *source.Ledger
	events []source.Event
}

func newFixture(t *testing.T) *fixture {
	r := &fixture{t: t, dir: t.TempDir(), clock: time.Date(2026, 7, 22, 10, 0, 0, 5000, time.UTC)}
	r.ledger = &source.Ledger{Dir: t.TempDir()}
	now := func() time.Time { return r.clock }
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: r.dir, BaseURL: "store.example", KeepFor: time.Nanosecond, Now: now})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	r.Reconciler = &source.Reconciler{
		Store: store, Load: r.ledger.Load, Save: r.ledger.Save, Now: now,
		Emit: func(e source.Event) { r.events = append(r.events, e) },
	}
	return r
}

// run reconciles obj and requires the outcome; each run is a minute after the previous one.
func (r *fixture) run(obj source.Object, from source.Origin, want source.Outcome) error {
	r.t.Helper()
	r.events, r.clock = nil, r.clock.Add(time.Minute)
	result, err := r.Reconcile(r.t.Context(), obj, from)
	if result.Outcome != want {
		r.t.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, want)
	}
	return err
}

// reasons returns SEVERITY/REASON of the events of the last run.
func (r *fixture) reasons() string {
	var list []string
	for _, e := range r.events {
		list = append(list, e.Severity+"/"+e.Reason)
	}
	return strings.Join(list, " ")
}

// conditions returns TYPE=STATUS/REASON of all conditions.
func conditions(obj source.Object) string {
	var list []string
	for _, c := range obj.Common().Conditions {
		list = append(list, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return strings.Join(list, " ")
}

const (
	ready     = "Ready=True/Succeeded ArtifactInStorage=True/Succeeded"
	revision1 = "main@sha1:0123456789abcdef0123456789abcdef01234567"
	revision2 = "main@sha1:89abcdef0123456789abcdef0123456789abcdef"
)

// The status is saved before events are emitted, and events are emitted before pruning.
func TestOrder(t *testing.T) {
	r := newFixture(t)
	r.run(repository(), originAt(revision1), source.Stored)
	var steps []string
	old := func() string {
		files, err := filepath.Glob(filepath.Join(r.dir, "gitrepository/apps/sample/*/0123456789abcdef0123456789abcdef01234567.tar.gz"))
		return fmt.Sprint(len(files), err)
	}
	save, emit := r.Save, r.Emit
	r.Save = func(ctx context.Context, obj source.Object, state source.State) error {
		steps = append(steps, "save with old "+old())
		if err := r.Store.Check(*obj.Artifact()); err != nil {
			t.Errorf("saved status names an artifact that is not there: %v", err)
		}
		return save(ctx, obj, state)
	}
	r.Emit = func(e source.Event) {
		steps = append(steps, e.Reason+" with old "+old())
		r.clock = r.clock.Add(time.Second) // so that the old one expires
		emit(e)
	}
	r.run(repository(), originAt(revision2), source.Stored)
	steps = append(steps, "end with old "+old())
	want := []string{"save with old 1 <nil>", "NewArtifact with old 1 <nil>", "end with old 0 <nil>"}
	testenv.Equal(t, steps, want, "steps")
}

// The state belongs to the saved status: a failed run keeps the state of the last successful one.
func TestState(t *testing.T) {
	r := newFixture(t)
	first := originAt(revision1)
	first.next = source.State("etag 1")
	r.run(repository(), first, source.Stored)
	second := originAt(revision2)
	second.next = source.State("etag 2")
	second.open = func(context.Context) error { return io.EOF }
	r.run(repository(), second, source.Failed)
	third := originAt(revision2)
	r.run(repository(), third, source.Stored)
	if string(first.last) != "" || string(second.last) != "etag 1" || string(third.last) != "etag 1" {
		t.Errorf("states %q, %q, %q", first.last, second.last, third.last)
	}
}
