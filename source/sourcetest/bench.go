package sourcetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing/fstest"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A bench is one upstream with all that a program around it has: a store, a
// ledger and somebody who listens to events.
type bench struct {
	TB
	kind   Kind
	up     Upstream
	dir    string
	store  *artifact.Store
	ledger *source.Ledger

	mu     sync.Mutex
	events []source.Event // of the last run
}

func newBench(t TB, k Kind) *bench {
	t.Helper()
	if k.patience == 0 {
		k.patience = 30 * time.Second
	}
	b := &bench{TB: t, kind: k, up: k.Open(t), dir: filepath.Join(t.TempDir(), "store")}
	var err error
	if b.store, err = artifact.OpenStore(artifact.StoreConfig{Dir: b.dir}); err != nil {
		t.Fatalf("open store: %v", err)
	}
	t.Cleanup(func() { b.store.Close() })
	b.ledger = &source.Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	return b
}

// tree returns a tree of text files, NAME, CONTENT, …
func tree(nameContent ...string) fstest.MapFS {
	t := make(fstest.MapFS)
	for i := 0; i < len(nameContent); i += 2 {
		t[nameContent[i]] = &fstest.MapFile{Data: []byte(nameContent[i+1]), Mode: 0o644}
	}
	return t
}

// sample returns a tree with the shapes that matter: nested directories, an
// empty file, an executable, and a file that does not fit into one buffer.
func sample() fstest.MapFS {
	t := tree(
		"README.md", "# sample\n",
		"deploy/app.yaml", "kind: Deployment\n",
		"deploy/base/kustomization.yaml", "resources: []\n",
		"deploy/base/empty", "",
		"large", strings.Repeat("0123456789abcdef\n", 20000),
	)
	t["bin/run.sh"] = &fstest.MapFile{Data: []byte("#!/bin/sh\n"), Mode: 0o755}
	return t
}

// publish makes tree the content of the upstream.
func (b *bench) publish(tree fstest.MapFS) {
	b.Helper()
	if err := b.up.Publish(tree); err != nil {
		b.Fatalf("publish: %v", err)
	}
}

// reconcile runs the reconciler once. Whatever else a check looks at, no run
// may show a secret, and the status in memory is the one that was saved.
func (b *bench) reconcile(ctx context.Context, obj source.Object) (source.Result, error) {
	b.Helper()
	b.mu.Lock()
	b.events = nil
	b.mu.Unlock()
	r := source.Reconciler{
		Store: b.store, Load: b.ledger.Load, Save: b.ledger.Save,
		Emit: func(e source.Event) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.events = append(b.events, e)
		},
	}
	result, err := r.Reconcile(ctx, obj, b.up.Origin(obj))
	b.noSecrets(obj, err)
	return result, err
}

// want reconciles a fresh object and demands the outcome.
func (b *bench) want(outcome source.Outcome) source.Object {
	b.Helper()
	obj := b.up.Object()
	b.wantOf(obj, outcome)
	return obj
}

// wantOf reconciles obj and demands the outcome.
func (b *bench) wantOf(obj source.Object, outcome source.Outcome) source.Result {
	b.Helper()
	result, err := b.reconcile(b.Context(), obj)
	if result.Outcome != outcome {
		b.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, outcome)
	}
	good := outcome == source.Stored || outcome == source.Unchanged
	if good && err != nil {
		b.Fatalf("outcome %q with error %v", outcome, err)
	}
	if good {
		b.ready(obj, result)
	}
	return result
}

// ready checks what holds after every success.
func (b *bench) ready(obj source.Object, result source.Result) {
	b.Helper()
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
	if err := b.store.Check(*obj.Artifact()); err != nil {
		b.Errorf("artifact in the status: %v", err)
	}
}

// noSecrets checks that nothing a run left behind shows a secret.
func (b *bench) noSecrets(obj source.Object, err error) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	shown := map[string]any{"status": statusOf(obj), "events": b.events}
	if err != nil {
		shown["error"] = err.Error()
	}
	for where, v := range shown {
		text, failed := json.Marshal(v)
		if failed != nil {
			b.Errorf("JSON of %s: %v", where, failed)
		}
		for _, secret := range b.up.Secrets() {
			if at := bytes.Index(text, []byte(secret)); at >= 0 {
				b.Errorf("secret shows in %s: …%s", where, text[max(0, at-80):at+len(secret)])
			}
		}
	}
}

// statusOf returns the status of obj, the part of its own kind included.
func statusOf(obj source.Object) any {
	return reflect.ValueOf(obj).Elem().FieldByName("Status").Interface()
}

// event returns the last run's event with the given reason.
func (b *bench) event(reason string) (source.Event, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.events {
		if e.Reason == reason {
			return e, true
		}
	}
	return source.Event{}, false
}

// edit changes the document of obj as a person would.
func (b *bench) edit(obj source.Object, change func(document map[string]any)) {
	b.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		b.Fatalf("JSON of the object: %v", err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		b.Fatalf("JSON of the object: %v", err)
	}
	change(document)
	if text, err = json.Marshal(document); err == nil {
		err = json.Unmarshal(text, obj)
	}
	if err != nil {
		b.Fatalf("edited object: %v", err)
	}
}

// editSpec sets one field of the spec of obj.
func (b *bench) editSpec(obj source.Object, field string, value any) {
	b.Helper()
	b.edit(obj, func(document map[string]any) { document["spec"].(map[string]any)[field] = value })
}

// files lists the artifacts in the store, and what else lies there.
func (b *bench) files() []string {
	b.Helper()
	var list []string
	err := fs.WalkDir(os.DirFS(b.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && !strings.HasPrefix(d.Name(), ".") {
			list = append(list, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatalf("list store: %v", err)
	}
	return list
}

// served returns the artifact as the store's handler serves it.
func (b *bench) served(a *artifact.Artifact) []byte {
	b.Helper()
	rec := httptest.NewRecorder()
	b.store.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/"+a.Path, nil))
	if rec.Code != 200 {
		b.Fatalf("GET /%s: status %d", a.Path, rec.Code)
	}
	return rec.Body.Bytes()
}
