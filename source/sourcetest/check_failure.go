package sourcetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// failures checks, for every failure, a first run: there is nothing to keep, and nothing appears.
func failures(t TB, k Kind) {
	for _, f := range k.Failures {
		b := newBench(t, k)
		b.publish(sample())
		b.up.Break(f.Defect)
		obj := b.up.Object()
		b.fails(obj, f)
		if a, url := obj.Artifact(), obj.Common().URL; a != nil || url != "" {
			t.Errorf("%s: artifact %+v, url %q", f.Defect, a, url)
		}
		if files := b.files(); len(files) != 0 {
			t.Errorf("%s: the store holds %v", f.Defect, files)
		}
		b.recovers(f)
	}
}

// failureKeepsArtifact checks, for every failure, a run that had a newer revision to fetch.
func failureKeepsArtifact(t TB, k Kind) {
	for _, f := range k.Failures {
		b := newBench(t, k)
		b.publish(tree("a", "one\n"))
		good := b.want(source.Stored)
		content, files := b.served(good.Artifact()), b.files()
		b.publish(sample())
		b.up.Break(f.Defect)
		obj := b.up.Object()
		b.fails(obj, f)
		b.kept(string(f.Defect), good, obj)
		if obj.Artifact() != nil && !bytes.Equal(content, b.served(obj.Artifact())) {
			t.Errorf("%s: the artifact is served with other bytes", f.Defect)
		}
		if now := b.files(); !slices.Equal(files, now) {
			t.Errorf("%s: the store held %v, now %v", f.Defect, files, now)
		}
		b.recovers(f)
	}
}

// fails reconciles obj and checks that the run ends as f says.
func (b *bench) fails(obj source.Object, f Failure) {
	b.Helper()
	result, err := b.reconcile(b.Context(), obj)
	var step *source.StepError
	if result.Outcome != f.Outcome || !errors.As(err, &step) {
		b.Fatalf("%s: outcome %q, error %v; want %q and a *StepError", f.Defect, result.Outcome, err, f.Outcome)
	}
	if stalled := f.Outcome == source.Stalled; stalled != errors.Is(err, source.ErrInvalid) || stalled != (result.After == 0) {
		b.Errorf("%s: outcome %q, next run after %v, error %v", f.Defect, f.Outcome, result.After, err)
	}
	b.failed(obj.Common(), f)
}

// failed checks that status and events tell of the failure.
func (b *bench) failed(status *source.Status, f Failure) {
	b.Helper()
	bad, going := "True", source.ReconcilingCondition
	if f.Condition == source.SourceVerifiedCondition {
		bad = "False"
	}
	if f.Outcome == source.Stalled {
		going = source.StalledCondition
	}
	c := status.Condition(f.Condition)
	if c.Status != bad || c.Reason != f.Reason || !strings.Contains(c.Message, f.Message) {
		b.Errorf("%s: condition %s is %+v; want status %s, reason %s and %q in the message", f.Defect, f.Condition, c, bad, f.Reason, f.Message)
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

// kept checks that the artifact published before is the one published now.
func (b *bench) kept(defect string, before, now source.Object) {
	b.Helper()
	if !sameArtifact(before.Artifact(), now.Artifact()) || before.Common().URL != now.Common().URL {
		b.Errorf("%s: the artifact was %+v, is %+v", defect, before.Artifact(), now.Artifact())
	}
	if now.Common().Condition(source.ArtifactInStorageCondition).Status != "True" {
		b.Errorf("%s: condition ArtifactInStorage is gone", defect)
	}
}

// recovers mends the upstream and checks that all is well again.
func (b *bench) recovers(f Failure) {
	b.Helper()
	b.up.Break("")
	b.want(source.Stored)
	if _, ok := b.event(cmp.Or(b.kind.Said, "NewArtifact")); !ok {
		b.Errorf("%s: no event about the new artifact after it was mended", f.Defect)
	}
	b.up.Break(f.Defect)
	result, err := b.reconcile(b.Context(), b.up.Object())
	b.up.Break("")
	if err == nil {
		return // the defect is in content, which the run did not need
	}
	b.want(source.Unchanged)
	if e, ok := b.event(cmp.Or(b.kind.Said, "Succeeded")); !ok || e.Severity != "info" {
		b.Errorf("%s: event about the recovery after %+v is %+v", f.Defect, result, e)
	}
}

func forgedIsNotStored(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(tree("a", "one\n"))
	b.up.Break(Signed)
	good := b.want(source.Stored)
	if c := good.Common().Condition(source.SourceVerifiedCondition); c.Status != "True" || c.Reason != "Succeeded" || c.Message == "" {
		t.Errorf("condition SourceVerified is %+v", c)
	}
	b.want(source.Unchanged)
	files := b.files()
	b.publish(tree("a", "two\n"))
	b.up.Break(Forged)
	obj := b.up.Object()
	result, err := b.reconcile(t.Context(), obj)
	if c := obj.Common().Condition(source.SourceVerifiedCondition); result.Outcome != source.Failed || c.Status != "False" || err == nil {
		t.Errorf("outcome %q, error %v, condition SourceVerified %+v", result.Outcome, err, c)
	}
	b.kept(string(Forged), good, obj)
	if now := b.files(); !slices.Equal(files, now) {
		t.Errorf("the store held %v, now %v", files, now)
	}
	b.up.Break("")
	b.want(source.Stored)
}

func hostileNames(t TB, k Kind) {
	for _, name := range k.Hostile {
		b := newBench(t, k)
		b.publish(fstest.MapFS{name: {Data: []byte("hostile\n"), Mode: 0o644}, "good": {Data: []byte("good\n"), Mode: 0o644}})
		obj := b.up.Object()
		result, err := b.reconcile(t.Context(), obj)
		switch {
		case result.Outcome == source.Stored:
			b.namesAreSafe(name, obj.Artifact())
		case err == nil || obj.Artifact() != nil || len(b.files()) != 0:
			t.Errorf("%q: outcome %q, error %v, artifact %+v, files %v", name, result.Outcome, err, obj.Artifact(), b.files())
		}
		b.publish(tree("good", "good\n"))
		b.want(source.Stored)
	}
}

// namesAreSafe checks that every name in an artifact stays below the directory it is extracted to.
func (b *bench) namesAreSafe(hostile string, a *artifact.Artifact) {
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
