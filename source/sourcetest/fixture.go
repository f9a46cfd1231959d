package sourcetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime/pprof"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Fixture reconciles objects with a real store, a real ledger and a fixed clock, for tests of a
// kind beyond [Run]. Create it with [NewFixture]. It is not safe for concurrent use.
type Fixture struct {
	Dir    string // of the store
	Store  *artifact.Store
	Ledger *source.Ledger
	Now    time.Time      // initially a day of 2026
	Events []source.Event // of the last run

	// Stalls, if set, returns how often the upstream has begun to stall, and whether it is expected
	// to stall. A run then times out only at the stall, however slow the machine is.
	Stalls func() (count int, expected bool)

	t       TB
	secrets func() []string
	label   string // of goroutines started by runs, "" before the first run
}

// NewFixture returns a Fixture with an empty store. No output of a run may contain the current
// result of secrets.
func NewFixture(t TB, secrets func() []string) *Fixture {
	t.Helper()
	r := &Fixture{t: t, secrets: secrets, Dir: filepath.Join(t.TempDir(), "store"), Now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	var err error
	config := artifact.StoreConfig{Dir: r.Dir, BaseURL: "http://store.example", Now: func() time.Time { return r.Now }}
	if r.Store, err = artifact.OpenStore(config); err != nil {
		t.Fatalf("open store: %v", err)
	}
	opened := r.Store
	t.Cleanup(func() { opened.Close() })
	r.Ledger = &source.Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	return r
}

// Reconcile runs the reconciler once. It checks that no run leaves goroutines behind: at the end of
// the test, before earlier servers are closed, and after a cancelled run. It also checks that no
// output contains a secret, and that no error contains a control character.
func (r *Fixture) Reconcile(obj source.Object, from source.Origin) (source.Result, error) {
	r.t.Helper()
	return r.reconcile(r.t.Context(), obj, from)
}

func (r *Fixture) reconcile(ctx context.Context, obj source.Object, from source.Origin) (result source.Result, err error) {
	r.t.Helper()
	r.Events = nil
	reconciler := source.Reconciler{
		Store: r.Store, Load: r.Ledger.Load, Save: r.Ledger.Save, Now: func() time.Time { return r.Now },
		Emit: func(e source.Event) { r.Events = append(r.Events, e) },
	}
	if r.Stalls != nil {
		from = stallingOrigin{from, r.Stalls}
	}
	if r.label == "" {
		r.label = fmt.Sprintf("%s %p", r.t.Name(), r)
		r.t.Cleanup(func() { waitGoroutines(r.t, r.label) })
	}
	pprof.Do(ctx, pprof.Labels(labelKey, r.label), func(ctx context.Context) { result, err = reconciler.Reconcile(ctx, obj, from) })
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		waitGoroutines(r.t, r.label) // before the repaired upstream releases them
	}
	r.requireNoSecrets(obj, err)
	return result, err
}

func (r *Fixture) requireNoSecrets(obj source.Object, failed error) {
	r.t.Helper()
	texts := []string{r.JSON(statusOf(obj)), r.JSON(r.Events)}
	if failed != nil {
		texts = append(texts, failed.Error())
		if strings.ContainsFunc(failed.Error(), func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.t.Errorf("error with control characters: %q", failed)
		}
	}
	secrets := r.secrets()
	for _, text := range texts {
		for _, secret := range secrets {
			if at := strings.Index(text, secret); at >= 0 {
				r.t.Errorf("a secret shows: …%s", text[max(0, at-80):at+len(secret)])
			}
		}
	}
}

// MustStore reconciles obj and requires a new artifact.
func (r *Fixture) MustStore(obj source.Object, from source.Origin) {
	r.t.Helper()
	if result, err := r.Reconcile(obj, from); result.Outcome != source.Stored || err != nil {
		r.t.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, source.Stored)
	}
}

// MustRefuse reconciles obj, whose artifact is before, or nil for none. It requires that the artifact
// and the content of the store do not change, and that the error has at most 4 KiB, the reason, and
// all texts.
func (r *Fixture) MustRefuse(obj source.Object, from source.Origin, before *artifact.Artifact, reason string, texts ...string) source.Result {
	r.t.Helper()
	files := r.files()
	result, err := r.Reconcile(obj, from)
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || result.Outcome != source.Failed && result.Outcome != source.Stalled || step.Reason != reason {
		r.t.Fatalf("outcome %q, error %v (%+v); want a failure with reason %s", result.Outcome, err, step, reason)
	}
	for _, part := range texts {
		if !strings.Contains(err.Error(), part) {
			r.t.Errorf("error %q lacks %q", err, part)
		}
	}
	if len(err.Error()) > 4<<10 {
		r.t.Errorf("the error has %d bytes", len(err.Error()))
	}
	if now := r.files(); !slices.Equal(files, now) {
		r.t.Errorf("the store held %v, now %v", files, now)
	}
	r.requireUnchanged(obj, before)
	return result
}

// requireUnchanged requires that obj has the artifact before, and that the store has that artifact.
func (r *Fixture) requireUnchanged(obj source.Object, before *artifact.Artifact) {
	r.t.Helper()
	switch now := obj.Artifact(); {
	case before == nil && now != nil:
		r.t.Errorf("artifact %+v", now)
	case before != nil && (now == nil || r.JSON(now) != r.JSON(before)):
		r.t.Errorf("the artifact was %+v, is %+v", before, now)
	case before != nil:
		if err := r.Store.Check(*before); err != nil {
			r.t.Errorf("the artifact is no longer good: %v", err)
		}
	}
}

// files lists all files in the store, including temporary files, but without locks.
func (r *Fixture) files() (list []string) {
	r.t.Helper()
	err := fs.WalkDir(os.DirFS(r.Dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(d.Name(), "lock") {
			list = append(list, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.t.Fatalf("list store: %v", err)
	}
	return list
}

// Contents returns the files of an artifact by name.
func (r *Fixture) Contents(a *artifact.Artifact) map[string]string {
	r.t.Helper()
	files := map[string]string{}
	in, err := r.Store.Open(*a)
	if err != nil {
		r.t.Fatalf("open artifact: %v", err)
	}
	defer in.Close()
	tree, err := artifact.Read(in, artifact.Limits{})
	if err != nil {
		r.t.Fatalf("read artifact: %v", err)
	}
	defer tree.Close()
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		r.t.Fatalf("read artifact: %v", err)
	}
	return files
}

// Names lists the files of an artifact.
func (r *Fixture) Names(a *artifact.Artifact) []string {
	r.t.Helper()
	return slices.Sorted(maps.Keys(r.Contents(a)))
}

// JSON returns v as JSON; it fails the test if v cannot be encoded.
func (r *Fixture) JSON(v any) string {
	r.t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		r.t.Fatalf("JSON of %T: %v", v, err)
	}
	return string(text)
}

// statusOf returns the status of obj, including the part of its own kind.
func statusOf(obj source.Object) any {
	return reflect.ValueOf(obj).Elem().FieldByName("Status").Interface()
}

// A stallingOrigin is an origin whose upstream is expected to stall. If a step times out before the
// stall, the machine is slow and the step is repeated.
type stallingOrigin struct {
	source.Origin
	stalls func() (count int, expected bool)
}

// Resolve implements [source.Origin].
func (o stallingOrigin) Resolve(ctx context.Context, last source.State) (rev source.Revision, now source.State, err error) {
	o.untilStalled(ctx, func() error {
		rev, now, err = o.Origin.Resolve(ctx, last)
		return err
	})
	return rev, now, err
}

// Open implements [source.Origin].
func (o stallingOrigin) Open(ctx context.Context, rev source.Revision) (c source.Content, err error) {
	o.untilStalled(ctx, func() error {
		c, err = o.Origin.Open(ctx, rev)
		return err
	})
	return c, err
}

// Secrets returns the secrets of the origin.
func (o stallingOrigin) Secrets() []string {
	if from, ok := o.Origin.(interface{ Secrets() []string }); ok {
		return from.Secrets()
	}
	return nil
}

// untilStalled repeats do while it times out before the upstream stalls.
func (o stallingOrigin) untilStalled(ctx context.Context, do func() error) {
	before, _ := o.stalls()
	for errors.Is(do(), context.DeadlineExceeded) && ctx.Err() == nil {
		if count, expected := o.stalls(); !expected || count > before {
			return
		}
	}
}

// Secrets maps NAMESPACE/NAME to secrets. No service account has any.
type Secrets map[string]source.Secret

// Secret implements [source.Secrets]. The error for a missing secret is [fs.ErrNotExist].
func (m Secrets) Secret(_ context.Context, namespace, name string) (source.Secret, error) {
	if s, ok := m[namespace+"/"+name]; ok {
		return s, nil
	}
	return source.Secret{}, fmt.Errorf("no such secret: %w", fs.ErrNotExist)
}

// PullSecrets implements [source.Secrets].
func (Secrets) PullSecrets(context.Context, string, string) ([]source.Secret, error) { return nil, nil }

// Secret returns a Secret with the data KEY, VALUE, …
func Secret(keyValue ...string) source.Secret {
	s := source.Secret{Data: map[string][]byte{}}
	for i := 0; i < len(keyValue); i += 2 {
		s.Data[keyValue[i]] = []byte(keyValue[i+1])
	}
	return s
}

// NoLeaks calls do and waits until no goroutine started by it runs code outside the standard
// library, which keeps idle connections for some time. It fails the test after a minute.
func NoLeaks(t TB, do func(ctx context.Context)) {
	t.Helper()
	label := fmt.Sprintf("%s %p", t.Name(), &do)
	pprof.Do(t.Context(), pprof.Labels(labelKey, label), do)
	waitGoroutines(t, label)
}

// labelKey is the key of the goroutine label, which goroutines inherit.
const labelKey = "sourcetest"

// waitGoroutines waits until no goroutine with the label is left.
func waitGoroutines(t TB, label string) {
	t.Helper()
	deadline, pause := time.After(time.Minute), time.Millisecond
	for left := stacks(label); left != ""; left = stacks(label) {
		select {
		case <-time.After(pause): // increasing, because the check is expensive
			pause = min(2*pause, 100*time.Millisecond)
		case <-deadline:
			t.Errorf("goroutines are left behind:\n%s", left)
			return
		}
	}
}

// nonStandardFrame matches a frame outside the standard library, whose packages have no
// dot in the first element of their path.
var nonStandardFrame = regexp.MustCompile(`(?m)^#\t[^\t]*\t[^\t/]*\.[^\t/]*/`)

// stacks returns the stacks with the label that have a frame outside the standard library.
func stacks(label string) string {
	var profile, left strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
		return err.Error()
	}
	for stack := range strings.SplitSeq(profile.String(), "\n\n") {
		if strings.Contains(stack, strconv.Quote(label)) && nonStandardFrame.MatchString(stack) {
			left.WriteString(stack + "\n\n")
		}
	}
	return left.String()
}
