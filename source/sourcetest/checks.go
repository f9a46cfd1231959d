package sourcetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

func resolveIsStable(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	origin := b.up.Origin(b.up.Object())
	before := b.up.Traffic().Content
	var first source.Revision
	var state source.State
	for i := range 3 { // without state, with state, and again
		rev, next, err := origin.Resolve(t.Context(), state)
		switch {
		case err != nil:
			t.Fatalf("resolve: %v", err)
		case i == 0:
			first = rev
		case rev.ID != first.ID || rev.File != first.File:
			t.Errorf("resolved %s (%s), then %s (%s)", first.ID, first.File, rev.ID, rev.File)
		}
		state = next
	}
	if first.ID == "" || first.File == "" {
		t.Errorf("revision %+v lacks ID or File", first)
	}
	if read := b.up.Traffic().Content - before; read != 0 && !k.ReadsContent {
		t.Errorf("resolve read %d units of content", read)
	}
}

func newContentIsNewRevision(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(tree("a", "one\n"))
	first := b.requireNewOutcome(source.Stored).Artifact()
	b.publish(tree("a", "two\n"))
	obj := b.requireNewOutcome(source.Stored)
	second := obj.Artifact()
	if first.Revision == second.Revision || first.Digest == second.Digest || first.Path == second.Path {
		t.Errorf("artifact of new content is %+v, that of the old one was %+v", second, first)
	}
	e, ok := b.event(cmp.Or(k.EventReason, "NewArtifact"))
	if !ok || e.Severity != "info" || e.Metadata["source.toolkit.fluxcd.io/revision"] != second.Revision ||
		e.Metadata["source.toolkit.fluxcd.io/digest"] != second.Digest {
		t.Errorf("event about the new artifact is %+v", e)
	}
	b.requireFiles(second, tree("a", "two\n"))
}

func sameTreeSameBytes(t TB, k Kind) {
	var first []byte
	for i := range 2 {
		b := newHarness(t, k)
		if i == 1 {
			b.publish(tree("other", "history\n"))
			b.requireNewOutcome(source.Stored)
		}
		b.publish(sample())
		served := b.served(b.requireNewOutcome(source.Stored).Artifact())
		if i == 1 && !bytes.Equal(first, served) {
			t.Errorf("two upstreams with one tree made artifacts of %d and %d bytes that differ", len(first), len(served))
		}
		first = served
	}
}

func readsBack(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	obj := b.requireNewOutcome(source.Stored)
	b.requireFiles(obj.Artifact(), sample())
	if a := obj.Artifact(); a.Size != int64(len(b.served(a))) || a.LastUpdateTime.IsZero() {
		t.Errorf("artifact of %d bytes is recorded as %+v", len(b.served(a)), a)
	}
}

func unchangedDoesNotFetch(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	first := b.requireNewOutcome(source.Stored)
	before := b.up.Traffic().Content
	second := b.requireNewOutcome(source.Unchanged)
	if read := b.up.Traffic().Content - before; read != 0 && !k.ReadsContent {
		t.Errorf("unchanged upstream served %d units of content", read)
	}
	if !sameArtifact(first.Artifact(), second.Artifact()) {
		t.Errorf("artifact changed from %+v to %+v", first.Artifact(), second.Artifact())
	}
	if e, ok := b.event("ArtifactUpToDate"); !ok || e.Severity != "trace" {
		t.Errorf("event ArtifactUpToDate is %+v", e)
	}
	if before, now := b.JSON(first), b.JSON(second); before != now {
		t.Errorf("document changed from %s to %s", before, now)
	}
}

func driftFetches(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	first := b.requireNewOutcome(source.Stored)
	obj := b.up.Object()
	k.Drift(obj)
	b.requireOutcome(obj, source.Stored)
	if obj.Head().Metadata.Generation != first.Head().Metadata.Generation+1 {
		t.Errorf("generation %d, after a change of the spec %d", first.Head().Metadata.Generation, obj.Head().Metadata.Generation)
	}
	again := b.up.Object()
	k.Drift(again)
	b.requireOutcome(again, source.Unchanged)
	b.requireNewOutcome(source.Stored) // drift back
}

func ignoreFiles(t TB, k Kind) {
	b := newHarness(t, k)
	published := tree(
		"a.tmp", "", "keep.tmp", "", "a.log", "", "sub/x.tmp", "", "sub/a.log", "", "sub/deep/b.log", "",
		k.IgnoreFile, "*.tmp\n!keep.tmp\n",
	)
	want := tree("keep.tmp", "", "a.log", "", "sub/a.log", "", "sub/deep/b.log", "")
	if k.IgnoreNested {
		published["sub/"+k.IgnoreFile] = &fstest.MapFile{Data: []byte("*.log\n"), Mode: 0o644}
		delete(want, "sub/a.log")
		delete(want, "sub/deep/b.log")
	}
	b.publish(published)
	b.requireFiles(b.requireNewOutcome(source.Stored).Artifact(), want)
}

// failures checks two runs for every failure: a first run, after which there is no artifact, and a
// run with a newer revision to fetch, after which the earlier artifact is unchanged. A request to
// reconcile counts as handled even if the run failed.
func failures(t TB, k Kind) {
	for _, f := range k.Failures {
		b := newHarness(t, k)
		b.publish(sample())
		b.up.Break(f.Defect)
		obj := b.up.Object()
		b.requireFailure(obj, f)
		if a, url := obj.Artifact(), obj.Common().URL; a != nil || url != "" {
			t.Errorf("%s: artifact %+v, url %q", f.Defect, a, url)
		}
		if files := b.files(); len(files) != 0 {
			t.Errorf("%s: the store holds %v", f.Defect, files)
		}
		repaired := b.repair(f)
		content, files := b.served(repaired.Artifact()), b.files()

		newer := sample()
		newer["README.md"].Data = []byte("# newer sample\n")
		b.publish(newer)
		b.up.Break(f.Defect)
		obj = b.up.Object()
		b.request(obj, 0, string(f.Defect))
		b.requireFailure(obj, f)
		b.requireAcknowledged(obj, string(f.Defect))
		b.requireKept(string(f.Defect), repaired, obj)
		if obj.Artifact() != nil && !bytes.Equal(content, b.served(obj.Artifact())) {
			t.Errorf("%s: the artifact is served with other bytes", f.Defect)
		}
		if now := b.files(); !slices.Equal(files, now) {
			t.Errorf("%s: the store held %v, now %v", f.Defect, files, now)
		}
		b.repair(f)
		b.requireRecovery(f)
	}
}

// requireFailure reconciles obj and checks that the run ends as f says.
func (b *harness) requireFailure(obj source.Object, f Failure) {
	b.Helper()
	result, err := b.run(obj)
	var step *source.StepError
	if result.Outcome != f.Outcome || !errors.As(err, &step) {
		b.Fatalf("%s: outcome %q, error %v; want %q and a *StepError", f.Defect, result.Outcome, err, f.Outcome)
	}
	if stalled := f.Outcome == source.Stalled; stalled != errors.Is(err, source.ErrInvalid) || stalled != (result.After == 0) {
		b.Errorf("%s: outcome %q, next run after %v, error %v", f.Defect, f.Outcome, result.After, err)
	}
	b.requireReported(obj.Common(), f)
}

// requireReported checks that status and events report the failure.
func (b *harness) requireReported(status *source.Status, f Failure) {
	b.Helper()
	wantStatus, going := "True", source.ReconcilingCondition
	if f.Condition == source.SourceVerifiedCondition {
		wantStatus = "False"
	}
	if f.Outcome == source.Stalled {
		going = source.StalledCondition
	}
	c := status.Condition(f.Condition)
	if c.Status != wantStatus || c.Reason != f.Reason || !strings.Contains(c.Message, f.Message) {
		b.Errorf("%s: condition %s is %+v; want status %s, reason %s and %q in the message", f.Defect, f.Condition, c, wantStatus, f.Reason, f.Message)
	}
	if ready := status.Condition(source.ReadyCondition); ready.Status != "False" || ready.Reason != f.Reason {
		b.Errorf("%s: condition Ready is %+v; want False with reason %s", f.Defect, ready, f.Reason)
	}
	if status.Condition(going).Status != "True" {
		b.Errorf("%s: no condition %s in %+v", f.Defect, going, status.Conditions)
	}
	if e, ok := b.event(f.Reason); !ok || e.Message != c.Message {
		b.Errorf("%s: event %s is %+v", f.Defect, f.Reason, e)
	}
}

// requireKept checks that the published artifact is still the same.
func (b *harness) requireKept(defect string, before, now source.Object) {
	b.Helper()
	if !sameArtifact(before.Artifact(), now.Artifact()) || before.Common().URL != now.Common().URL {
		b.Errorf("%s: the artifact was %+v, is %+v", defect, before.Artifact(), now.Artifact())
	}
	if now.Common().Condition(source.ArtifactInStorageCondition).Status != "True" {
		b.Errorf("%s: condition ArtifactInStorage is gone", defect)
	}
}

// repair repairs the upstream and checks that its new content is stored.
func (b *harness) repair(f Failure) source.Object {
	b.Helper()
	b.up.Break("")
	obj := b.requireNewOutcome(source.Stored)
	if _, ok := b.event(cmp.Or(b.kind.EventReason, "NewArtifact")); !ok {
		b.Errorf("%s: no event about the new artifact after it was mended", f.Defect)
	}
	return obj
}

// requireRecovery checks that the end of a failure is reported even if nothing is new.
func (b *harness) requireRecovery(f Failure) {
	b.Helper()
	b.up.Break(f.Defect)
	result, err := b.run(b.up.Object())
	b.up.Break("")
	if err == nil {
		return // the defect is in content that the run did not need
	}
	b.requireNewOutcome(source.Unchanged)
	if e, ok := b.event(cmp.Or(b.kind.EventReason, "Succeeded")); !ok || e.Severity != "info" {
		b.Errorf("%s: event about the recovery after %+v is %+v", f.Defect, result, e)
	}
}

func forgedIsNotStored(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(tree("a", "one\n"))
	b.up.Break(Signed)
	stored := b.requireNewOutcome(source.Stored)
	if c := stored.Common().Condition(source.SourceVerifiedCondition); c.Status != "True" || c.Reason != "Succeeded" || c.Message == "" {
		t.Errorf("condition SourceVerified is %+v", c)
	}
	b.requireNewOutcome(source.Unchanged)
	files := b.files()
	b.publish(tree("a", "two\n"))
	b.up.Break(Forged)
	obj := b.up.Object()
	result, err := b.run(obj)
	if c := obj.Common().Condition(source.SourceVerifiedCondition); result.Outcome != source.Failed || c.Status != "False" || err == nil {
		t.Errorf("outcome %q, error %v, condition SourceVerified %+v", result.Outcome, err, c)
	}
	b.requireKept(string(Forged), stored, obj)
	if now := b.files(); !slices.Equal(files, now) {
		t.Errorf("the store held %v, now %v", files, now)
	}
	b.up.Break("")
	b.requireNewOutcome(source.Stored)
}

func hostileNames(t TB, k Kind) {
	for _, name := range k.Hostile {
		b := newHarness(t, k)
		b.publish(fstest.MapFS{name: {Data: []byte("hostile\n"), Mode: 0o644}, "good": {Data: []byte("good\n"), Mode: 0o644}})
		obj := b.up.Object()
		result, err := b.run(obj)
		switch {
		case result.Outcome == source.Stored:
			b.requireSafeNames(name, obj.Artifact())
		case err == nil || obj.Artifact() != nil || len(b.files()) != 0:
			t.Errorf("%q: outcome %q, error %v, artifact %+v, files %v", name, result.Outcome, err, obj.Artifact(), b.files())
		}
		b.publish(tree("good", "good\n"))
		b.requireNewOutcome(source.Stored)
	}
}

// requireSafeNames checks that every name in an artifact stays below the directory of its extraction.
func (b *harness) requireSafeNames(hostile string, a *artifact.Artifact) {
	b.Helper()
	r, err := gzip.NewReader(bytes.NewReader(b.served(a)))
	if err != nil {
		b.Fatalf("artifact: %v", err)
	}
	for archive := tar.NewReader(r); ; {
		h, err := archive.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			b.Fatalf("artifact: %v", err)
		}
		if h.Name == hostile || !filepath.IsLocal(h.Name) || strings.ContainsAny(h.Name, "\\\x00") ||
			h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeDir {
			b.Errorf("%q: the artifact has an entry %q of type %q", hostile, h.Name, h.Typeflag)
		}
	}
}

func statusSurvivesJSON(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	stored := b.up.Object()
	if k.Drift != nil {
		k.Drift(stored) // so that the status records something
	}
	b.requireOutcome(stored, source.Stored)
	text := b.JSON(stored)
	read := b.up.Object()
	if err := json.Unmarshal([]byte(text), read); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	if again := b.JSON(read); text != again {
		t.Errorf("%s came back as %s", text, again)
	}
	r := source.Reconciler{Store: b.Store} // without ledger: the state is only in the document
	if result, err := r.Reconcile(t.Context(), read, b.up.Origin(read)); result.Outcome != source.Unchanged {
		t.Errorf("outcome %q, error %v with the status read back; want %q", result.Outcome, err, source.Unchanged)
	}
}

func lostArtifactIsRestored(t TB, k Kind) {
	damage := map[string]func(path string) error{
		"missing":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 7) },
	}
	for name, spoil := range damage {
		b := newHarness(t, k)
		b.publish(sample())
		first := b.requireNewOutcome(source.Stored)
		if err := spoil(filepath.Join(b.Dir, filepath.FromSlash(first.Artifact().Path))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		second := b.requireNewOutcome(source.Stored)
		if first.Artifact().Digest != second.Artifact().Digest {
			t.Errorf("%s: digest was %s, is %s", name, first.Artifact().Digest, second.Artifact().Digest)
		}
		if e, ok := b.event("ArtifactVerificationFailed"); ok != (name == "truncated") || ok && e.Severity != "error" { // a new volume lacks all artifacts
			t.Errorf("%s: event ArtifactVerificationFailed is %+v, %t", name, e, ok)
		}
		b.requireFiles(second.Artifact(), sample())
		b.requireNewOutcome(source.Unchanged)
	}
}

func suspendedIsLeftAlone(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	stored := b.requireNewOutcome(source.Stored)
	b.publish(tree("a", "newer\n"))
	obj := b.up.Object()
	if k.Suspend != nil {
		k.Suspend(obj)
	} else {
		b.editSpec(obj, "suspend", true)
	}
	before := b.up.Traffic()
	if result := b.requireOutcome(obj, source.Suspended); result.After != 0 {
		t.Errorf("next run of a suspended object after %v", result.After)
	}
	if now := b.up.Traffic(); now != before {
		t.Errorf("traffic of a suspended object went from %+v to %+v", before, now)
	}
	if len(b.Events) != 0 || !reflect.DeepEqual(statusOf(stored), statusOf(obj)) {
		t.Errorf("suspended object: status %+v, events %+v", statusOf(obj), b.Events)
	}
	b.requireNewOutcome(source.Stored)
}

func requestIsAcknowledged(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	b.requireNewOutcome(source.Stored)
	for i, key := range requestKeys {
		obj := b.up.Object()
		b.request(obj, i, key)
		b.requireOutcome(obj, source.Unchanged)
		b.requireAcknowledged(obj, key)
	}
}

// requestKeys are the annotations that request a reconciliation.
var requestKeys = []string{"reconcile.fluxcd.io/requestedAt", "reconcile.headgate.dev/requestedAt"}

// request requests a reconciliation of obj with one of the annotations.
func (b *harness) request(obj source.Object, key int, at string) {
	b.Helper()
	b.edit(obj, func(document map[string]any) {
		document["metadata"].(map[string]any)["annotations"] = map[string]string{requestKeys[key]: at}
	})
}

// requireAcknowledged checks that the status acknowledges a request.
func (b *harness) requireAcknowledged(obj source.Object, want string) {
	b.Helper()
	if at := obj.Common().LastHandledReconcileAt; at != want {
		b.Errorf("lastHandledReconcileAt is %q, want %q", at, want)
	}
}

func runsAtOnce(t TB, k Kind) {
	b := newHarness(t, k)
	b.publish(sample())
	const n = 4
	objects, outcomes := make([]source.Object, n), make(map[source.Outcome]int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		objects[i] = b.up.Object()
		wg.Go(func() {
			r := source.Reconciler{Store: b.Store, Load: b.Ledger.Load, Save: b.Ledger.Save}
			result, err := r.Reconcile(t.Context(), objects[i], b.up.Origin(objects[i]))
			if err != nil {
				t.Errorf("run %d: %v", i, err)
			}
			mu.Lock()
			defer mu.Unlock()
			outcomes[result.Outcome]++
		})
	}
	wg.Wait()
	if want := map[source.Outcome]int{source.Stored: 1, source.Unchanged: n - 1}; !maps.Equal(outcomes, want) {
		t.Fatalf("outcomes %v, want %v", outcomes, want)
	}
	for _, obj := range objects[1:] {
		if !sameArtifact(objects[0].Artifact(), obj.Artifact()) {
			t.Errorf("one run published %+v, another %+v", objects[0].Artifact(), obj.Artifact())
		}
	}
	b.requireFiles(objects[0].Artifact(), sample())
}

func stallObeysCancellation(t TB, k Kind) {
	for _, defect := range k.Stalls {
		b, stored := newStall(t, k)
		files := b.files()
		met := b.up.Break(defect)
		obj := b.up.Object()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := b.reconcileInBackground(ctx, obj)
		select {
		case <-met:
		case run := <-ended:
			t.Fatalf("%s: the run ended before it: %+v, %v", defect, run.result, run.err)
		case <-time.After(maxWait):
			t.Fatalf("%s: not met within %v", defect, maxWait)
		}
		cancel()
		run := b.await(ended, defect)
		if !reflect.ValueOf(run.result).IsZero() || !errors.Is(run.err, context.Canceled) {
			t.Errorf("%s: cancelled run gave %+v, %v", defect, run.result, run.err)
		}
		if len(b.Events) != 0 || b.JSON(stored) != b.JSON(obj) {
			t.Errorf("%s: cancelled run recorded %s, events %+v", defect, b.JSON(obj), b.Events)
		}
		if now := b.files(); !slices.Equal(files, now) {
			t.Errorf("%s: the store held %v, now %v", defect, files, now)
		}
		b.up.Break("")
		b.requireNewOutcome(source.Stored)
	}
}

func stallObeysTimeout(t TB, k Kind) {
	for _, defect := range k.Stalls {
		b, stored := newStall(t, k)
		b.up.Break(defect)
		obj := b.up.Object()
		if k.ShortenTimeout == nil {
			b.editSpec(obj, "timeout", "250ms")
		} else {
			k.ShortenTimeout(b.up)
		}
		run := b.await(b.reconcileInBackground(t.Context(), obj), defect)
		if run.result.Outcome != source.Failed || !errors.Is(run.err, context.DeadlineExceeded) || !strings.Contains(run.err.Error(), "spec.timeout") {
			t.Errorf("%s: outcome %q, error %v; want a failure that names spec.timeout", defect, run.result.Outcome, run.err)
		}
		b.requireKept(string(defect), stored, obj)
		b.up.Break("")
		b.requireNewOutcome(source.Stored)
	}
}

// newStall returns a harness with an artifact and newer content to fetch.
func newStall(t TB, k Kind) (*harness, source.Object) {
	t.Helper()
	b := newHarness(t, k)
	b.publish(tree("a", "one\n"))
	stored := b.requireNewOutcome(source.Stored)
	b.publish(sample())
	return b, stored
}

// A runResult is the result of a run in the background.
type runResult struct {
	result source.Result
	err    error
}

// reconcileInBackground reconciles obj in another goroutine.
func (b *harness) reconcileInBackground(ctx context.Context, obj source.Object) <-chan runResult {
	ended := make(chan runResult, 1)
	go func() {
		result, err := b.reconcile(ctx, obj, b.up.Origin(obj))
		ended <- runResult{result, err}
	}()
	return ended
}

// await waits for a run to end.
func (b *harness) await(ended <-chan runResult, defect Defect) runResult {
	b.Helper()
	select {
	case run := <-ended:
		return run
	case <-time.After(maxWait):
		b.Fatalf("%s: the run did not end within %v", defect, maxWait)
		return runResult{}
	}
}
