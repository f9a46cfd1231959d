package sourcetest

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http/httptest"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A harness is one upstream with the environment of a program that uses it.
type harness struct {
	*Fixture
	TB
	kind Kind
	up   Upstream
}

func newHarness(t TB, k Kind) *harness {
	t.Helper()
	up := k.Open(t)
	return &harness{NewFixture(t, up.Secrets), t, k, up}
}

// maxWait is how long to wait for an expected event; only failing tests wait that long.
const maxWait = time.Minute

// tree returns a tree of text files, NAME, CONTENT, …
func tree(nameContent ...string) fstest.MapFS {
	t := make(fstest.MapFS)
	for i := 0; i < len(nameContent); i += 2 {
		t[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1]), Mode: 0o644}
	}
	return t
}

// sample returns a tree with all relevant shapes: nested directories, an empty file, an executable,
// and a file larger than one buffer.
func sample() fstest.MapFS {
	t := tree(
		"README.md", "# sample\n",
		"deploy/app.yaml", "kind: Deployment\n",
		"deploy/base/kustomization.yaml", "resources: []\n",
		"deploy/base/empty", "",
		"large", strings.Repeat("0123456789abcdef\n", 5000),
	)
	t["bin/run.sh"] = &fstest.MapFile{Data: []byte("#!/bin/sh\n"), Mode: 0o755}
	return t
}

// publish makes tree the content of the upstream.
func (b *harness) publish(tree fstest.MapFS) {
	b.Helper()
	if err := b.up.Publish(tree); err != nil {
		b.Fatalf("publish: %v", err)
	}
}

// run reconciles obj once.
func (b *harness) run(obj source.Object) (source.Result, error) {
	b.Helper()
	return b.Reconcile(obj, b.up.Origin(obj))
}

// requireNewOutcome reconciles a fresh object and demands the outcome.
func (b *harness) requireNewOutcome(outcome source.Outcome) source.Object {
	b.Helper()
	obj := b.up.Object()
	b.requireOutcome(obj, outcome)
	return obj
}

// requireOutcome reconciles obj and requires the outcome. After a success, it also checks the properties
// that always hold.
func (b *harness) requireOutcome(obj source.Object, outcome source.Outcome) source.Result {
	b.Helper()
	result, err := b.run(obj)
	success := outcome == source.Stored || outcome == source.Unchanged
	if result.Outcome != outcome || success && err != nil {
		b.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, outcome)
	}
	if !success {
		return result
	}
	status := obj.Common()
	for _, kind := range []string{source.ReadyCondition, source.ArtifactInStorageCondition} {
		if c := status.Condition(kind); c.Status != "True" || !strings.Contains(c.Message, obj.Artifact().Revision) {
			b.Errorf("condition %s is %+v; want True with the revision %s in its message", kind, c, obj.Artifact().Revision)
		}
	}
	for _, kind := range []string{source.ReconcilingCondition, source.StalledCondition, source.FetchFailedCondition,
		source.StorageOperationFailedCondition, source.ArtifactOutdatedCondition} {
		if c := status.Condition(kind); c.Status != "" {
			b.Errorf("condition %+v after success", c)
		}
	}
	if generation := obj.Head().Metadata.Generation; status.ObservedGeneration != generation {
		b.Errorf("observedGeneration %d, generation %d", status.ObservedGeneration, generation)
	}
	if result.After != obj.Interval() {
		b.Errorf("next run after %v; want the interval %v", result.After, obj.Interval())
	}
	if err := b.Store.Check(*obj.Artifact()); err != nil {
		b.Errorf("artifact in the status: %v", err)
	}
	return result
}

// event returns the event of the last run with the given reason.
func (b *harness) event(reason string) (source.Event, bool) {
	i := slices.IndexFunc(b.Events, func(e source.Event) bool { return e.Reason == reason })
	if i < 0 {
		return source.Event{}, false
	}
	return b.Events[i], true
}

// edit changes the document of obj as a user would.
func (b *harness) edit(obj source.Object, change func(document map[string]any)) {
	b.Helper()
	var document map[string]any
	err := json.Unmarshal([]byte(b.JSON(obj)), &document)
	if err == nil {
		change(document)
		err = json.Unmarshal([]byte(b.JSON(document)), obj)
	}
	if err != nil {
		b.Fatalf("edited object: %v", err)
	}
}

// editSpec sets one field of the spec of obj.
func (b *harness) editSpec(obj source.Object, field string, value any) {
	b.Helper()
	b.edit(obj, func(document map[string]any) { document["spec"].(map[string]any)[field] = value })
}

// served returns the artifact as the store's handler serves it.
func (b *harness) served(a *artifact.Artifact) []byte {
	b.Helper()
	rec := httptest.NewRecorder()
	b.Store.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/"+a.Path, nil))
	if rec.Code != 200 {
		b.Fatalf("GET /%s: status %d", a.Path, rec.Code)
	}
	return rec.Body.Bytes()
}

// sameArtifact reports whether two artifacts are equal.
func sameArtifact(a, b *artifact.Artifact) bool { return reflect.DeepEqual(a, b) }

// requireFiles checks that the artifact has the files of want and no others, except ignore files.
func (b *harness) requireFiles(a *artifact.Artifact, want fstest.MapFS) {
	b.Helper()
	r, err := b.Store.Open(*a)
	if err != nil {
		b.Fatalf("open artifact: %v", err)
	}
	defer r.Close()
	got, err := b.read(r)
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	subtree, err := fs.Sub(got, path.Join(".", b.kind.Dir))
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	seen := 0
	err = fs.WalkDir(subtree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == b.kind.IgnoreFile {
			return err
		}
		file := want[name]
		if file == nil {
			b.Errorf("artifact holds %s, which is not to be in it", name)
			return nil
		}
		seen++
		b.requireSameFile(subtree, name, file)
		return nil
	})
	if err != nil {
		b.Fatalf("read artifact: %v", err)
	}
	if seen != len(want) {
		b.Errorf("artifact holds %d of %d files", seen, len(want))
	}
}

// read returns the files of an artifact.
func (b *harness) read(r io.Reader) (fs.FS, error) {
	if b.kind.Read != nil {
		return b.kind.Read(r)
	}
	tree, err := artifact.Read(r, artifact.Limits{})
	if err == nil {
		b.Cleanup(func() { tree.Close() })
	}
	return tree, err
}

// requireSameFile compares one file of an artifact with the published file.
func (b *harness) requireSameFile(got fs.FS, name string, want *fstest.MapFile) {
	b.Helper()
	data, err := fs.ReadFile(got, name)
	if err != nil || !bytes.Equal(data, want.Data) {
		b.Errorf("%s has %d bytes (error %v), which are not the %d bytes published", name, len(data), err, len(want.Data))
	}
	info, err := fs.Stat(got, name)
	if err != nil {
		b.Errorf("stat: %v", err)
		return
	}
	if executable := info.Mode()&0o100 != 0; executable != (want.Mode&0o100 != 0) && !b.kind.LosesModes {
		b.Errorf("%s has mode %v, published was %v", name, info.Mode(), want.Mode)
	}
}
