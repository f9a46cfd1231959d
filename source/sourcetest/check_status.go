package sourcetest

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"sync"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

func statusSurvivesJSON(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	stored := b.up.Object()
	if k.Drift != nil {
		k.Drift(stored) // so that there is something to observe
	}
	b.wantOf(stored, source.Stored)
	text := b.json(stored)
	read := b.up.Object()
	if err := json.Unmarshal(text, read); err != nil {
		t.Fatalf("read %s: %v", text, err)
	}
	if again := b.json(read); !bytes.Equal(text, again) {
		t.Errorf("%s came back as %s", text, again)
	}
	r := source.Reconciler{Store: b.store} // knows only what the document says
	if result, err := r.Reconcile(t.Context(), read, b.up.Origin(read)); result.Outcome != source.Unchanged {
		t.Errorf("outcome %q, error %v with the status read back; want %q", result.Outcome, err, source.Unchanged)
	}
}

func lostIsMadeAgain(t TB, k Kind) {
	damage := map[string]func(path string) error{
		"missing":   os.Remove,
		"truncated": func(path string) error { return os.Truncate(path, 7) },
	}
	for name, spoil := range damage {
		b := newBench(t, k)
		b.publish(sample())
		first := b.want(source.Stored)
		if err := spoil(filepath.Join(b.dir, filepath.FromSlash(first.Artifact().Path))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		second := b.want(source.Stored)
		if first.Artifact().Digest != second.Artifact().Digest {
			t.Errorf("%s: digest was %s, is %s", name, first.Artifact().Digest, second.Artifact().Digest)
		}
		if e, ok := b.event("ArtifactVerificationFailed"); !ok || e.Severity != "error" {
			t.Errorf("%s: event ArtifactVerificationFailed is %+v", name, e)
		}
		b.holds(second.Artifact(), sample())
		b.want(source.Unchanged)
	}
}

func suspendedIsLeftAlone(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	stored := b.want(source.Stored)
	b.publish(tree("a", "newer\n"))
	obj := b.up.Object()
	b.editSpec(obj, "suspend", true)
	before := b.up.Traffic()
	if result := b.wantOf(obj, source.Suspended); result.After != 0 {
		t.Errorf("next run of a suspended object after %v", result.After)
	}
	if now := b.up.Traffic(); now != before {
		t.Errorf("traffic of a suspended object went from %+v to %+v", before, now)
	}
	if len(b.events) != 0 || !reflect.DeepEqual(statusOf(stored), statusOf(obj)) {
		t.Errorf("suspended object: status %+v, events %+v", statusOf(obj), b.events)
	}
	b.want(source.Stored)
}

func requestIsAcknowledged(t TB, k Kind) {
	for _, key := range []string{"reconcile.fluxcd.io/requestedAt", "reconcile.headgate.dev/requestedAt"} {
		b := newBench(t, k)
		b.publish(sample())
		b.want(source.Stored)
		obj := b.up.Object()
		request := func(at string) {
			b.edit(obj, func(document map[string]any) {
				document["metadata"].(map[string]any)["annotations"] = map[string]string{key: at}
			})
		}
		request("first")
		b.wantOf(obj, source.Unchanged)
		if at := obj.Common().LastHandledReconcileAt; at != "first" {
			t.Errorf("%s: lastHandledReconcileAt is %q", key, at)
		}
		for _, f := range k.Failures {
			b.up.Break(f.Defect)
			obj = b.up.Object()
			request(string(f.Defect))
			b.reconcile(t.Context(), obj)
			if at := obj.Common().LastHandledReconcileAt; at != string(f.Defect) {
				t.Errorf("%s: lastHandledReconcileAt is %q after a failure", key, at)
			}
		}
	}
}

func runsAtOnce(t TB, k Kind) {
	b := newBench(t, k)
	b.publish(sample())
	const n = 4
	objects, outcomes := make([]source.Object, n), make(map[source.Outcome]int)
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		objects[i] = b.up.Object()
		wg.Go(func() {
			r := source.Reconciler{Store: b.store, Load: b.ledger.Load, Save: b.ledger.Save}
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
	b.holds(objects[0].Artifact(), sample())
}

// json returns the document of obj.
func (b *bench) json(obj source.Object) []byte {
	b.Helper()
	text, err := json.Marshal(obj)
	if err != nil {
		b.Fatalf("JSON of the object: %v", err)
	}
	return text
}

// sameArtifact reports whether two artifacts are recorded alike.
func sameArtifact(a, b *artifact.Artifact) bool { return reflect.DeepEqual(a, b) }
