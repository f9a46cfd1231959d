package source_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

func TestEvent(t *testing.T) {
	r := newFixture(t)
	g := repository()
	g.Metadata.Annotations = map[string]string{
		"event.toolkit.fluxcd.io/team": "blue", "event.headgate.dev/shift": "night", "other.example.org/x": "y",
	}
	r.run(g, originAt(revision1), source.Stored)
	if len(r.events) != 1 {
		t.Fatalf("events %s", r.reasons())
	}
	got := r.events[0]
	want := source.Event{
		InvolvedObject: source.ObjectReference{APIVersion: "source.headgate.dev/v1", Kind: "GitRepository", Namespace: "apps", Name: "sample"},
		Severity:       "info",
		Timestamp:      r.clock.Truncate(time.Second),
		Message:        "stored artifact for commit 'first'",
		Reason:         "NewArtifact",
		Metadata: map[string]string{
			"source.toolkit.fluxcd.io/revision": revision1, "source.toolkit.fluxcd.io/digest": g.Artifact().Digest,
			"event.toolkit.fluxcd.io/team": "blue", "event.headgate.dev/shift": "night",
		},
		Controller: "headgate",
	}
	testenv.Equal(t, fmt.Sprint(got), fmt.Sprint(want), "event")
}

// A verification applies to the generation of the spec that required it: after a change, which may
// be a change of keys, the same revision is verified again.
func TestVerifiedAgain(t *testing.T) {
	r := newFixture(t)
	good := func() (source.Verification, error) { return source.Verification{Mode: "HEAD", Message: "signed"}, nil }
	bad := func() (source.Verification, error) { return source.Verification{}, source.ErrVerification }
	for i, run := range []struct {
		key        string
		from       *scriptedOrigin
		outcome    source.Outcome
		status     string
		generation int64
	}{
		{"a", &scriptedOrigin{verify: good}, source.Stored, "True", 1},
		{"a", &scriptedOrigin{verify: bad}, source.Unchanged, "True", 1}, // Verify is not called
		{"b", failingOrigin(io.EOF), source.Failed, "True", 1},
		{"b", &scriptedOrigin{verify: bad}, source.Failed, "False", 2},
		{"b", &scriptedOrigin{verify: good}, source.Stored, "True", 2},
		{"b", &scriptedOrigin{verify: bad}, source.Unchanged, "True", 2},
	} {
		g := repository()
		g.Spec.Verify = &source.GitRepositoryVerification{SecretRef: source.LocalReference{Name: run.key}}
		run.from.rev = originAt(revision1).rev
		r.run(g, run.from, run.outcome)
		if c := g.Common().Condition("SourceVerified"); c.Status != run.status || c.ObservedGeneration != run.generation {
			t.Errorf("run %d: condition %+v, want %s of generation %d", i, c, run.status, run.generation)
		}
		if g.Artifact() == nil {
			t.Errorf("run %d: the artifact is gone", i)
		}
	}
}

// Events about objects of the reference's group have the reference's spelling of the kind.
func TestEventSpelling(t *testing.T) {
	r := newFixture(t)
	for _, test := range []struct{ group, kind, want string }{
		{source.ReferenceGroup, "HelmRepository", "HelmRepository"},
		{source.ReferenceGroup, "", "HelmRepository"}, // object made in Go
		{source.Group, "PkgRepository", "PkgRepository"},
		{source.Group, "HelmRepository", "HelmRepository"},
		{source.Group, "", "PkgRepository"},
	} {
		var obj source.Object = &source.PkgRepository{Header: source.Header{APIVersion: test.group + "/v1", Metadata: source.Metadata{Name: "x"}}}
		source.Default(obj)
		if test.kind != "" {
			obj = decodeOne(t, "apiVersion: "+test.group+"/v1\nkind: "+test.kind+"\nmetadata: {name: x}\nspec: {url: \"https://h/x\"}\n")
		}
		if r.run(obj, failingOrigin(io.EOF), source.Failed); r.events[0].InvolvedObject.Kind != test.want {
			t.Errorf("%+v: kind %s", test, r.events[0].InvolvedObject.Kind)
		}
	}
}

// Messages of any length and content become bounded, printable and free of credentials.
func TestMessagesArePresentable(t *testing.T) {
	r := newFixture(t)
	text := "get https://user:hunter2@git.example.org/x?sig=hunter3: \x1b[31mno\n\xff token hunter4 " + strings.Repeat("é", 30000)
	from := failingOrigin(errors.New(text))
	from.secrets = []string{"hunter4"}
	g := repository()
	err := r.run(g, from, source.Failed)
	texts := []string{r.events[0].Message, g.Common().Condition("Ready").Message, g.Common().Condition("FetchFailed").Message}
	for _, text := range texts {
		if len(text) > 39000 || !utf8.ValidString(text) || !strings.HasSuffix(text, "é…") {
			t.Errorf("message of %d bytes ends in %q", len(text), text[len(text)-9:])
		}
	}
	for _, text := range append(texts, err.Error()) {
		if strings.Contains(text, "hunter") || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n") || !strings.Contains(text, "https://git.example.org/x") {
			t.Errorf("message begins %q", text[:80])
		}
	}
	var step *source.StepError
	if !errors.As(err, &step) || step.Step != source.StepResolve || step.Reason != "GitOperationFailed" {
		t.Errorf("error %+v", step)
	}
}

// An object with nothing to store has no conditions and no artifact (reference A12).
func TestStatic(t *testing.T) {
	r := newFixture(t)
	stored, static := repository(), repository()
	r.run(stored, originAt(revision1), source.Stored)
	r.run(static, new(scriptedOrigin), source.Unchanged)
	if c := conditions(static); c != "" || static.Artifact() != nil || static.Status.URL != "" || len(r.events) != 0 {
		t.Errorf("conditions %q, artifact %+v, events %s", c, static.Artifact(), r.reasons())
	}
}

// The URLs in a status change with the address of the store and the version of the document.
func TestReaddress(t *testing.T) {
	r := newFixture(t)
	beta := func() *source.GitRepository {
		g := repository()
		g.APIVersion = "source.headgate.dev/v1beta2"
		return g
	}
	old := repository()
	r.run(old, originAt(revision1), source.Stored)
	g := beta()
	r.run(g, originAt(revision1), source.Unchanged)
	if want := "http://store.example/gitrepository/apps/sample/latest.tar.gz"; g.Status.URL != want || old.Status.URL != "" {
		t.Errorf("status.url %q, want %q", g.Status.URL, want)
	}
	var err error
	if r.Store, err = artifact.OpenStore(artifact.StoreConfig{Dir: r.dir, BaseURL: "https://moved.example/files"}); err != nil {
		t.Fatal(err)
	}
	defer r.Store.Close()
	g = beta()
	r.run(g, originAt(revision1), source.Unchanged)
	if want := "https://moved.example/files/"; !strings.HasPrefix(g.Status.URL, want) || !strings.HasPrefix(g.Artifact().URL, want) {
		t.Errorf("status.url %q, artifact %q", g.Status.URL, g.Artifact().URL)
	}
	rec := httptest.NewRecorder()
	r.Store.Handler().ServeHTTP(rec, httptest.NewRequest("GET", strings.TrimPrefix(g.Status.URL, "https://moved.example/files"), nil))
	if rec.Code != http.StatusOK || rec.Body.String() != "content of "+revision1 {
		t.Errorf("status.url serves %d %q", rec.Code, rec.Body)
	}
	again := repository()
	if r.run(again, originAt(revision1), source.Unchanged); again.Status.URL != "" {
		t.Errorf("status.url %q under v1", again.Status.URL)
	}
}

func TestLostArtifact(t *testing.T) {
	r := newFixture(t)
	g := repository()
	r.run(g, originAt(revision1), source.Stored)
	file := filepath.Join(r.dir, filepath.FromSlash(g.Artifact().Path))
	must(t, os.Remove(file))
	r.reasons()
	r.run(repository(), originAt(revision1), source.Stored)
	if got := r.reasons(); strings.Contains(got, "error/") || strings.Contains(got, "info/") {
		t.Errorf("events %s about an artifact that consumers know", got)
	}
	must(t, os.WriteFile(file, []byte("damaged"), 0o600))
	r.run(repository(), originAt(revision1), source.Stored)
	if got := r.reasons(); !strings.Contains(got, "error/ArtifactVerificationFailed") || strings.Contains(got, "info/") {
		t.Errorf("events %s", got)
	}
	must(t, os.Remove(file))
	lost := repository()
	r.run(lost, failingOrigin(io.EOF), source.Failed)
	if got := conditions(lost); lost.Artifact() != nil || got != "Ready=False/GitOperationFailed Reconciling=True/ProgressingWithRetry FetchFailed=True/GitOperationFailed" {
		t.Errorf("artifact %+v, conditions %s", lost.Artifact(), got)
	}
	testenv.Equal(t, lost.Common().Condition("Reconciling").Message, "building artifact: disappeared from storage", "message of Reconciling")
	testenv.Equal(t, r.reasons(), "error/GitOperationFailed", "events")
	r.run(repository(), originAt(revision1), source.Stored)
	testenv.Equal(t, r.reasons(), "info/NewArtifact", "events")
}

// A saved status that cannot be read is reported by an event and written again.
func TestUnreadableStatus(t *testing.T) {
	r := newFixture(t)
	r.run(repository(), originAt(revision1), source.Stored)
	r.Load = func(context.Context, source.Object) (source.State, error) { return nil, io.ErrUnexpectedEOF }
	r.run(repository(), originAt(revision1), source.Stored)
	testenv.Equal(t, r.reasons(), "error/ReadOperationFailed info/NewArtifact", "events")
	g := repository()
	g.Spec.Suspend = true
	testenv.ErrorIs(t, r.run(g, originAt(revision1), source.Suspended), io.ErrUnexpectedEOF, "suspended")
}

func TestPruneFails(t *testing.T) {
	r := newFixture(t)
	dir := filepath.Join(r.dir, "gitrepository", "apps", "sample")
	emit := r.Emit
	r.Emit = func(e source.Event) {
		emit(e)
		if e.Reason == "NewArtifact" { // from here on, the artifacts cannot be listed
			if err := errors.Join(os.RemoveAll(dir), os.WriteFile(dir, nil, 0o600)); err != nil {
				t.Error(err)
			}
		}
	}
	r.run(repository(), originAt(revision1), source.Stored)
	testenv.Equal(t, r.reasons(), "info/NewArtifact error/GarbageCollectionFailed", "events")
}

// headgate's own annotation takes precedence over the reference's.
func TestRequests(t *testing.T) {
	r := newFixture(t)
	g := repository()
	g.Metadata.Annotations = map[string]string{"reconcile.fluxcd.io/requestedAt": "1", "reconcile.headgate.dev/requestedAt": "2"}
	r.run(g, originAt(revision1), source.Stored)
	testenv.Equal(t, g.Status.LastHandledReconcileAt, "2", "lastHandledReconcileAt")
}

// A reconciler without ledger, clock and Emit keeps the status only in the object.
func TestBareReconciler(t *testing.T) {
	r := source.Reconciler{Store: newFixture(t).Store}
	g := repository()
	for _, want := range []source.Outcome{source.Stored, source.Unchanged} {
		result, err := r.Reconcile(t.Context(), g, originAt(revision1))
		if err != nil || result.Outcome != want || result.After != time.Hour {
			t.Errorf("result %+v, error %v; want %q", result, err, want)
		}
	}
	if _, err := r.Reconcile(t.Context(), g, failingOrigin(io.EOF)); err == nil || g.Artifact() == nil {
		t.Errorf("error %v, artifact %+v", err, g.Artifact())
	}
}

// A minimalObject is a minimal kind of another package: without words and without a status of its
// own.
type minimalObject struct {
	source.Header
	common source.Status
}

func (m *minimalObject) Head() *source.Header         { return &m.Header }
func (m *minimalObject) Common() *source.Status       { return &m.common }
func (m *minimalObject) Artifact() *artifact.Artifact { return m.common.Artifact }
func (m *minimalObject) Interval() time.Duration      { return time.Hour }
func (m *minimalObject) Plan() source.Plan            { return source.Plan{} }
func (m *minimalObject) Drift(source.Revision) string { return "" }
func (m *minimalObject) Observe(source.Revision)      {}

func TestMinimalKind(t *testing.T) {
	r := newFixture(t)
	obj := new(minimalObject)
	obj.Kind, obj.Metadata.Name = "Minimal", "sample"
	unknownStep := failingOrigin(&source.StepError{Step: "dance", Err: io.EOF})
	r.run(obj, unknownStep, source.Failed)
	testenv.Equal(t, conditions(obj), "Ready=False/Failed Reconciling=True/ProgressingWithRetry FetchFailed=True/Failed", "conditions")
	r.Load, r.Save = nil, nil
	r.run(obj, originAt(revision1), source.Stored)
	if e := r.events[0]; e.InvolvedObject.Namespace != "default" || !strings.HasPrefix(obj.Artifact().Path, "minimal/default/sample/") {
		t.Errorf("event %+v, artifact %+v", e, obj.Artifact())
	}
	testenv.Equal(t, obj.common.Condition("Ready").Message, "stored artifact: revision '"+revision1+"'", "message")
	r.Save = func(context.Context, source.Object, source.State) error { return io.ErrShortWrite }
	r.run(obj, originAt(revision2), source.Failed)
	testenv.Equal(t, obj.Artifact().Revision, revision1, "artifact")
}

// A retryAfterError is an error of an upstream that says when to retry.
type retryAfterError time.Duration

func (retryAfterError) Error() string               { return "busy" }
func (e retryAfterError) RetryAfter() time.Duration { return time.Duration(e) }

func TestRetryAfter(t *testing.T) {
	for _, c := range []struct {
		err   error
		after time.Duration
	}{
		{retryAfterError(10 * time.Minute), 10 * time.Minute},
		{retryAfterError(time.Millisecond), 750 * time.Millisecond},
		{retryAfterError(-time.Hour), 750 * time.Millisecond},
		{retryAfterError(24 * time.Hour), time.Hour}, // limited to the interval
		{fmt.Errorf("list: %w", retryAfterError(time.Minute)), time.Minute},
		{fmt.Errorf("%w: %w", source.ErrWaiting, retryAfterError(time.Minute)), 30 * time.Second},
		{fmt.Errorf("%w: %w", source.ErrInvalid, retryAfterError(time.Minute)), 0},
	} {
		result, err := newFixture(t).Reconcile(t.Context(), repository(), failingOrigin(c.err))
		if err == nil || result.After != c.after {
			t.Errorf("%v, %v: next run after %v, want %v", c.err, err, result.After, c.after)
		}
	}
}
