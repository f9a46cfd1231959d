package source_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A script is an origin and its content, each step of which a test may replace.
type script struct {
	rev     source.Revision
	resolve func(context.Context) error
	open    func(context.Context) error
	verify  func() (source.Verification, error)
	write   func(io.Writer) (source.Report, error)
	secrets []string
	last    source.State // as given to Resolve
	next    source.State
	closed  int
}

func (s *script) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	if s.last = last; s.resolve != nil {
		if err := s.resolve(ctx); err != nil {
			return source.Revision{Inputs: s.rev.Inputs}, nil, err
		}
	}
	return s.rev, s.next, nil
}

func (s *script) Open(ctx context.Context, _ source.Revision) (source.Content, error) {
	if s.open != nil {
		if err := s.open(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *script) Verify(context.Context) (source.Verification, error) {
	if s.verify != nil {
		return s.verify()
	}
	return source.Verification{}, nil
}

func (s *script) WriteTo(_ context.Context, w io.Writer) (source.Report, error) {
	if s.write != nil {
		return s.write(w)
	}
	_, err := io.WriteString(w, "content of "+s.rev.ID)
	return source.Report{Message: "stored artifact for commit 'first'"}, err
}

func (s *script) Close() error      { s.closed++; return nil }
func (s *script) Secrets() []string { return s.secrets }

// at returns a script that is at a revision.
func at(id string) *script {
	_, hex, _ := strings.Cut(id, ":")
	return &script{rev: source.Revision{ID: id, File: hex + ".tar.gz"}}
}

// fails returns a script whose revision cannot be resolved.
func fails(err error) *script {
	return &script{resolve: func(context.Context) error { return err }}
}

// A rig is a reconciler whose every effect can be seen.
type rig struct {
	*source.Reconciler
	t      *testing.T
	dir    string
	clock  time.Time
	ledger *source.Ledger
	events []source.Event
}

func newRig(t *testing.T) *rig {
	r := &rig{t: t, dir: t.TempDir(), clock: time.Date(2026, 7, 22, 10, 0, 0, 5000, time.UTC)}
	r.ledger = &source.Ledger{Dir: t.TempDir()}
	now := func() time.Time { return r.clock }
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: r.dir, BaseURL: "store.example", KeepFor: time.Nanosecond, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	r.Reconciler = &source.Reconciler{
		Store: store, Load: r.ledger.Load, Save: r.ledger.Save, Now: now,
		Emit: func(e source.Event) { r.events = append(r.events, e) },
	}
	return r
}

// run reconciles obj and demands the outcome; each run comes a minute after the one before.
func (r *rig) run(obj source.Object, from source.Origin, want source.Outcome) error {
	r.t.Helper()
	r.events, r.clock = nil, r.clock.Add(time.Minute)
	result, err := r.Reconcile(r.t.Context(), obj, from)
	if result.Outcome != want {
		r.t.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, want)
	}
	return err
}

// reasons returns SEVERITY/REASON of the events of the last run.
func (r *rig) reasons() string {
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

// The settled object of reference A20.
func TestSettledStatus(t *testing.T) {
	r := newRig(t)
	g := repository()
	g.Metadata.Generation = 3
	g.Metadata.Annotations = map[string]string{"reconcile.fluxcd.io/requestedAt": "2026-07-22T10:00:00Z"}
	g.Spec.Ignore = new("/docs\n")
	r.run(g, at(revision1), source.Stored)
	got, err := json.MarshalIndent(g.Status, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	a := g.Artifact()
	want := fmt.Sprintf(`{
 "observedGeneration": 3,
 "conditions": [
  {
   "type": "Ready",
   "status": "True",
   "observedGeneration": 3,
   "lastTransitionTime": "2026-07-22T10:01:00Z",
   "reason": "Succeeded",
   "message": "stored artifact for revision '%[1]s'"
  },
  {
   "type": "ArtifactInStorage",
   "status": "True",
   "observedGeneration": 3,
   "lastTransitionTime": "2026-07-22T10:01:00Z",
   "reason": "Succeeded",
   "message": "stored artifact for revision '%[1]s'"
  }
 ],
 "artifact": {
  "path": "%[2]s",
  "url": "http://store.example/%[2]s",
  "revision": "%[1]s",
  "digest": "%[3]s",
  "lastUpdateTime": "2026-07-22T10:01:00Z",
  "size": 61
 },
 "lastHandledReconcileAt": "2026-07-22T10:00:00Z",
 "observedIgnore": "/docs\n"
}`, revision1, a.Path, a.Digest)
	if string(got) != want {
		t.Errorf("status is\n%s\nwant\n%s", got, want)
	}
}

// A life goes through the states of an object, one run a row. Each row starts
// from what the row before has saved.
func TestConditions(t *testing.T) {
	plain := func(*source.GitRepository) {}
	verified := func(g *source.GitRepository) {
		g.Spec.Verify = &source.GitRepositoryVerification{Mode: "HEAD"}
	}
	ignoring := func(g *source.GitRepository) { g.Spec.Ignore = new("*.md") }
	inputs := func(s *script, digest string) *script {
		s.rev.Inputs = []artifact.Artifact{{Revision: "r", Digest: digest}}
		return s
	}
	good := func(s *script) *script {
		s.verify = func() (source.Verification, error) {
			return source.Verification{Mode: "HEAD", Message: "verified signature of commit"}, nil
		}
		return s
	}
	refused := func(s *script) *script {
		s.verify = func() (source.Verification, error) {
			return source.Verification{}, &source.StepError{Reason: "InvalidCommitSignature", Err: source.ErrVerification}
		}
		return s
	}
	audited := func(s *script) *script {
		s.verify = func() (source.Verification, error) {
			return source.Verification{Level: "audit", Ignored: true}, nil
		}
		return s
	}
	retrusted := func(s *script) *script {
		s.rev.Reverify = true
		return s
	}
	unopened := func(s *script) *script {
		s.open = func(context.Context) error { return io.ErrUnexpectedEOF }
		return s
	}
	rows := []struct {
		name    string
		edit    func(*source.GitRepository)
		from    *script
		outcome source.Outcome
		want    string // conditions
		message string // of Reconciling, when there is one
		events  string
	}{
		{"first failure", plain, fails(fs.ErrNotExist), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed",
			"building artifact", "error/GitOperationFailed"},
		{"stalled", plain, fails(fmt.Errorf("bad: %w", source.ErrInvalid)), source.Stalled,
			"Ready=False/GitOperationFailed Stalled=True/GitOperationFailed FetchFailed=True/GitOperationFailed", "", "error/GitOperationFailed"},
		{"waiting", plain, fails(&source.StepError{Step: source.StepInclude, Reason: "NoArtifact", Err: source.ErrWaiting}), source.Waiting,
			"Ready=False/NoArtifact Reconciling=True/ProgressingWithRetry IncludeUnavailable=True/NoArtifact",
			"building artifact", "info/NoArtifact"},
		{"stored", plain, at(revision1), source.Stored, ready, "", "info/NewArtifact"},
		{"unchanged", plain, at(revision1), source.Unchanged, ready, "", "trace/ArtifactUpToDate"},
		{"resolve fails", plain, fails(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"recovered", plain, at(revision1), source.Unchanged, ready, "", "info/Succeeded"},
		{"new revision cannot be fetched", plain, unopened(at(revision2)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/GitOperationFailed"},
		{"still outdated", plain, fails(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"upstream is back where it was", plain, at(revision1), source.Unchanged, ready, "", "info/Succeeded"},
		{"new spec cannot be fetched", ignoring, unopened(at(revision1)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/NewConfiguration ArtifactInStorage=True/Succeeded",
			"building artifact: the spec differs from that of the artifact in storage", "error/GitOperationFailed"},
		{"new spec", ignoring, at(revision1), source.Stored, ready, "", "info/Succeeded"},
		{"new include", ignoring, unopened(inputs(at(revision1), "sha256:1")), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/IncludeChange ArtifactInStorage=True/Succeeded",
			"building artifact: included artifacts differ from those of the artifact in storage", "error/GitOperationFailed"},
		{"changed spec, but no answer", verified, fails(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed ArtifactOutdated=True/IncludeChange ArtifactInStorage=True/Succeeded",
			"processing object: new generation 2 -> 3", "error/GitOperationFailed"},
		{"verified", verified, good(at(revision1)), source.Stored,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "info/Succeeded"},
		{"not verified again", verified, refused(at(revision1)), source.Unchanged,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "trace/ArtifactUpToDate"},
		{"fetch fails", verified, unopened(at(revision2)), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed SourceVerified=True/Succeeded ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/GitOperationFailed"},
		{"refused", verified, refused(at(revision2)), source.Failed,
			"Ready=False/InvalidCommitSignature Reconciling=True/ProgressingWithRetry SourceVerified=False/InvalidCommitSignature ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/InvalidCommitSignature"},
		{"old revision is verified anew", verified, refused(at(revision1)), source.Failed,
			"Ready=False/InvalidCommitSignature Reconciling=True/ProgressingWithRetry SourceVerified=False/InvalidCommitSignature ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/InvalidCommitSignature"},
		{"nothing checked", verified, at(revision2), source.Failed,
			"Ready=False/VerificationError Reconciling=True/ProgressingWithRetry SourceVerified=False/VerificationError ArtifactOutdated=True/NewRevision ArtifactInStorage=True/Succeeded",
			"building artifact: new upstream revision '" + revision2 + "'", "error/VerificationError"},
		{"no longer asked for", plain, at(revision2), source.Stored, ready, "", "info/NewArtifact"},
		{"let pass", verified, audited(at(revision1)), source.Stored,
			"Ready=True/Succeeded SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded", "", "info/NewArtifact"},
		{"not let pass again", verified, refused(at(revision1)), source.Unchanged,
			"Ready=True/Succeeded SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded", "", "trace/ArtifactUpToDate"},
		{"let pass, then no answer", verified, fails(io.EOF), source.Failed,
			"Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed SourceVerified=Unknown/VerificationIgnored ArtifactInStorage=True/Succeeded",
			"reconciliation in progress", "error/GitOperationFailed"},
		{"other keys", verified, good(retrusted(at(revision1))), source.Stored,
			"Ready=True/Succeeded SourceVerified=True/Succeeded ArtifactInStorage=True/Succeeded", "", "info/Succeeded"},
	}
	r := newRig(t)
	for _, row := range rows {
		g := repository()
		row.edit(g)
		r.run(g, row.from, row.outcome)
		if c := g.Common().Condition(source.SourceVerifiedCondition); c.Status == "Unknown" && !strings.Contains(c.Message, "level 'audit'") {
			t.Errorf("%s: message of SourceVerified %q", row.name, c.Message)
		}
		if got := conditions(g); got != row.want {
			t.Errorf("%s: conditions\n%s\nwant\n%s", row.name, got, row.want)
		}
		if got := g.Common().Condition(source.ReconcilingCondition).Message; got != row.message {
			t.Errorf("%s: message of Reconciling %q, want %q", row.name, got, row.message)
		}
		if got := r.reasons(); got != row.events {
			t.Errorf("%s: events %s, want %s", row.name, got, row.events)
		}
		if row.from.closed != 0 != (row.from.open == nil && row.from.resolve == nil && row.outcome != source.Unchanged) {
			t.Errorf("%s: content closed %d times", row.name, row.from.closed)
		}
	}
}

func TestTransitionTimes(t *testing.T) {
	r := newRig(t)
	g := repository()
	foreign := source.Condition{Type: "Blessed", Status: "True", LastTransitionTime: r.clock, Reason: "Ritual", Message: "by hand"}
	times := func() map[string]time.Time {
		m := make(map[string]time.Time)
		for _, c := range g.Common().Conditions {
			m[c.Type] = c.LastTransitionTime
		}
		return m
	}
	r.Load, r.Save = nil, nil
	g.Status.Conditions = []source.Condition{foreign}
	r.run(g, at(revision1), source.Stored)
	stored := r.clock.Truncate(time.Second)
	r.run(g, fails(io.EOF), source.Failed)
	failed := r.clock.Truncate(time.Second)
	r.run(g, fails(io.ErrUnexpectedEOF), source.Failed)
	got := times()
	for kind, want := range map[string]time.Time{"Ready": failed, "FetchFailed": failed, "Reconciling": failed, "ArtifactInStorage": stored} {
		if !got[kind].Equal(want) {
			t.Errorf("%s turned at %v, want %v", kind, got[kind], want)
		}
	}
	if c := g.Common().Condition("FetchFailed"); c.Message != "unexpected EOF" {
		t.Errorf("message %q is that of an older failure", c.Message)
	}
	r.run(g, at(revision1), source.Unchanged)
	if got := times()["Ready"]; !got.Equal(r.clock.Truncate(time.Second)) {
		t.Errorf("Ready turned at %v", got)
	}
	if last := g.Common().Conditions[len(g.Common().Conditions)-1]; last != foreign {
		t.Errorf("foreign condition is %+v", last)
	}
}

// Saved before announced, announced before pruned.
func TestOrder(t *testing.T) {
	r := newRig(t)
	r.run(repository(), at(revision1), source.Stored)
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
		r.clock = r.clock.Add(time.Second) // so that the old one is out of date
		emit(e)
	}
	r.run(repository(), at(revision2), source.Stored)
	steps = append(steps, "end with old "+old())
	want := []string{"save with old 1 <nil>", "NewArtifact with old 1 <nil>", "end with old 0 <nil>"}
	if !slices.Equal(steps, want) {
		t.Errorf("steps %q, want %q", steps, want)
	}
}

func TestSaveFails(t *testing.T) {
	for name, next := range map[string]*script{"after success": at(revision2), "after failure": fails(io.EOF)} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			before := repository()
			r.run(before, at(revision1), source.Stored)
			r.Save = func(context.Context, source.Object, source.State) error { return io.ErrShortWrite }
			g := repository()
			g.Spec.Ignore = new("*.md")
			err := r.run(g, next, source.Failed)
			if !errors.Is(err, io.ErrShortWrite) || next.resolve != nil && !strings.Contains(err.Error(), "EOF") {
				t.Errorf("error %v", err)
			}
			if got, want := fmt.Sprint(g.Status, *g.Artifact()), fmt.Sprint(before.Status, *before.Artifact()); got != want && g.Status.ObservedIgnore != nil {
				t.Errorf("status claims %s; saved is %s", got, want)
			}
			if err := r.Store.Check(*g.Artifact()); err != nil || r.reasons() != "error/PatchOperationFailed" {
				t.Errorf("artifact %v, events %s", err, r.reasons())
			}
			r.Save = r.ledger.Save
			r.run(repository(), at(revision2), source.Stored)
		})
	}
}

// What is saved with a status goes with it: a failed run keeps the state of the last good one.
func TestState(t *testing.T) {
	r := newRig(t)
	first := at(revision1)
	first.next = source.State("etag 1")
	r.run(repository(), first, source.Stored)
	second := at(revision2)
	second.next = source.State("etag 2")
	second.open = func(context.Context) error { return io.EOF }
	r.run(repository(), second, source.Failed)
	third := at(revision2)
	r.run(repository(), third, source.Stored)
	if string(first.last) != "" || string(second.last) != "etag 1" || string(third.last) != "etag 1" {
		t.Errorf("states %q, %q, %q", first.last, second.last, third.last)
	}
}

func TestStorageFailures(t *testing.T) {
	block := func(name string) func(*rig) {
		return func(r *rig) {
			name := filepath.Join(r.dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, nil, 0o600)); err != nil {
				r.t.Fatal(err)
			}
		}
	}
	rows := []struct {
		name    string
		edit    func(*source.GitRepository)
		block   func(*rig)
		outcome source.Outcome
		reason  string
		saved   bool
	}{
		{"lock", nil, block(".store/object/gitrepository"), source.Failed, "AcquireLockFailed", false},
		{"put", nil, block("gitrepository/apps"), source.Failed, "ArchiveOperationFailed", true},
		{"point", func(g *source.GitRepository) { g.APIVersion = "source.headgate.dev/v1beta2" },
			block(".store/object/gitrepository/apps/sample/latest.tar.gz/x"), source.Failed, "SymlinkUpdateFailed", true},
		{"name that no store takes", func(g *source.GitRepository) { g.Metadata.Name = "con" }, nil, source.Stalled, "InvalidPath", false},
		{"name with a slash", func(g *source.GitRepository) { g.Metadata.Name = "../up" }, nil, source.Stalled, "InvalidPath", false},
		{"namespace of dots", func(g *source.GitRepository) { g.Metadata.Namespace = ".." }, nil, source.Stalled, "InvalidPath", false},
	}
	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			r := newRig(t)
			saved := false
			r.Save = func(context.Context, source.Object, source.State) error { saved = true; return nil }
			g := repository()
			if row.edit != nil {
				row.edit(g)
			}
			if row.block != nil {
				row.block(r)
			}
			err := r.run(g, at(revision1), row.outcome)
			c := g.Common().Condition(source.StorageOperationFailedCondition)
			if err == nil || c.Status != "True" || c.Reason != row.reason || g.Artifact() != nil || saved != row.saved {
				t.Errorf("error %v, condition %+v, artifact %+v, saved %v", err, c, g.Artifact(), saved)
			}
			if r.reasons() != "error/"+row.reason {
				t.Errorf("events %s", r.reasons())
			}
		})
	}
}

// A run that gets no lock keeps the artifact of the status.
func TestLockFailureKeepsArtifact(t *testing.T) {
	r := newRig(t)
	g := repository()
	r.run(g, at(revision1), source.Stored)
	locks := filepath.Join(r.dir, ".store", "object", "gitrepository")
	if err := errors.Join(os.RemoveAll(locks), os.WriteFile(locks, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	again := repository()
	r.run(again, at(revision2), source.Failed)
	if again.Artifact() == nil || again.Artifact().Path != g.Artifact().Path {
		t.Errorf("artifact %+v", again.Artifact())
	}
}

func TestPanics(t *testing.T) {
	boom := func(context.Context) error { panic("remote data") }
	rows := map[string]*script{
		"FetchFailed/resolve":            {resolve: boom},
		"FetchFailed/open":               {rev: at(revision1).rev, open: boom},
		"SourceVerified/verify":          {rev: at(revision1).rev, verify: func() (source.Verification, error) { panic("remote data") }},
		"StorageOperationFailed/writing": {rev: at(revision1).rev, write: func(io.Writer) (source.Report, error) { panic("remote data") }},
	}
	for name, from := range rows {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			g := repository()
			err := r.run(g, from, source.Failed)
			var caught *source.PanicError
			if !errors.As(err, &caught) || caught.Value != "remote data" || !strings.Contains(string(caught.Stack), "reconcile_test.go") {
				t.Errorf("error %v", err)
			}
			condition, _, _ := strings.Cut(name, "/")
			if c := g.Common().Condition(condition); !strings.Contains(c.Message, "remote data") {
				t.Errorf("conditions %s", conditions(g))
			}
			temp, _ := filepath.Glob(filepath.Join(r.dir, ".store/tmp/*"))
			if len(temp) != 0 {
				t.Errorf("files left behind: %v", temp)
			}
			r.run(g, at(revision1), source.Stored) // the lock is free
		})
	}
}

// An origin that moves on while it is fetched is resolved again at once, three
// times in all; what was found out before does not count any more.
func TestMoved(t *testing.T) {
	moved := fmt.Errorf("object a: %w", source.ErrMoved)
	for _, test := range []struct {
		name  string
		phase func(s *script, move func() error) // which fails when move does
		moves int
		want  source.Outcome
	}{
		{"not", func(*script, func() error) {}, 0, source.Stored},
		{"while it is resolved", func(s *script, move func() error) {
			s.resolve = func(context.Context) error { return move() }
		}, 2, source.Stored},
		{"while it is opened", func(s *script, move func() error) {
			s.open = func(context.Context) error { return move() }
		}, 2, source.Stored},
		{"while it is written", func(s *script, move func() error) {
			s.write = func(w io.Writer) (source.Report, error) {
				_, err := io.WriteString(w, "content of "+s.rev.ID)
				return source.Report{}, errors.Join(err, move())
			}
		}, 2, source.Stored},
		{"for ever", func(s *script, move func() error) {
			s.write = func(io.Writer) (source.Report, error) {
				return source.Report{}, &source.StepError{Step: source.StepFetch, Reason: "BucketOperationFailed", Err: move()}
			}
		}, 9, source.Failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, g, from := newRig(t), repository(), at(revision1)
			moves := 0
			test.phase(from, func() error {
				if moves == test.moves {
					return nil
				}
				moves++
				from.rev = at(revision2).rev
				return moved
			})
			err := r.run(g, from, test.want)
			if test.want == source.Failed {
				if !strings.Contains(err.Error(), "begun 3 times in this run: it changes faster than it can be fetched") {
					t.Error(err)
				}
				if moves != 3 || !errors.Is(err, source.ErrMoved) || from.closed != 3 || g.Artifact() != nil {
					t.Errorf("after %d moves, %d closed: %v", moves, from.closed, err)
				}
				if want := "Ready=False/BucketOperationFailed"; !strings.HasPrefix(conditions(g), want) {
					t.Errorf("conditions %s, want %s", conditions(g), want)
				}
				return
			}
			if moves != test.moves || g.Artifact().Revision != from.rev.ID || r.reasons() != "info/NewArtifact" {
				t.Errorf("after %d moves: revision %s, events %s", moves, g.Artifact().Revision, r.reasons())
			}
		})
	}
}

// Who ends the run does not want another try.
func TestMovedAndCancelled(t *testing.T) {
	r, from, tries := newRig(t), at(revision1), 0
	ctx, cancel := context.WithCancel(t.Context())
	from.resolve = func(context.Context) error {
		tries++
		cancel()
		return source.ErrMoved
	}
	if _, err := r.Reconcile(ctx, repository(), from); !errors.Is(err, context.Canceled) || tries != 1 {
		t.Errorf("%d tries, %v", tries, err)
	}
}

func TestTimeouts(t *testing.T) {
	stall := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for phase, from := range map[string]*script{
		"resolve": {resolve: stall},
		"fetch":   {rev: at(revision1).rev, open: stall},
	} {
		r := newRig(t)
		g := repository()
		g.Spec.Timeout = source.Duration(time.Millisecond)
		err := r.run(g, from, source.Failed)
		if want := phase + ": not done within 1ms, raise spec.timeout"; !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	cut := func(ctx context.Context) error { <-ctx.Done(); return io.ErrUnexpectedEOF }
	if err := source.Within(t.Context(), time.Millisecond, "x", cut); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("error %v tells not what happened", err)
	}
	r := newRig(t)
	g := repository()
	g.Spec.Timeout = 0 // no limit but the origin's own
	if err := r.run(g, fails(context.DeadlineExceeded), source.Failed); strings.Contains(err.Error(), "spec.timeout") {
		t.Errorf("error %v", err)
	}
}

// The end of the caller's context is recorded nowhere, whatever the run was doing.
func TestCancellation(t *testing.T) {
	r := newRig(t)
	r.run(repository(), at(revision1), source.Stored)
	r.events = nil
	try := func(doing string, ctx context.Context, from source.Origin) {
		t.Helper()
		result, err := r.Reconcile(ctx, repository(), from)
		if result.Outcome != "" || !errors.Is(err, io.ErrClosedPipe) || len(r.events) != 0 {
			t.Errorf("%s: outcome %q, error %v, events %s", doing, result.Outcome, err, r.reasons())
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	try("resolving", ctx, &script{resolve: func(ctx context.Context) error { cancel(io.ErrClosedPipe); return ctx.Err() }})
	unlock, err := r.Store.Lock(t.Context(), "gitrepository/apps/sample")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	try("waiting for the lock", ctx, at(revision2))
}
