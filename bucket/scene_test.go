package bucket_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A scene reconciles Bucket objects of one S3 server with a real store and a
// real ledger. It knows all that the bucket held, at any time.
type scene struct {
	*testing.T
	s       *testenv.S3
	b       *testenv.S3Bucket
	dir     string // of the store
	store   *artifact.Store
	ledger  *source.Ledger
	env     source.Env
	secrets secrets // of env
	now     time.Time
	events  []source.Event // of the last run

	mu    sync.Mutex
	held  []map[string]string
	paged bool // the bucket changes between the pages of one listing, so that none tells how it was at one time
}

func newScene(t *testing.T, c testenv.S3Config) *scene {
	t.Helper()
	r := &scene{T: t, s: testenv.StartS3(t, c), dir: filepath.Join(t.TempDir(), "store"),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	r.b = r.s.Bucket("app")
	var err error
	config := artifact.StoreConfig{Dir: r.dir, BaseURL: "http://store.example", Now: func() time.Time { return r.now }}
	if r.store, err = artifact.OpenStore(config); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.store.Close() })
	r.ledger = &source.Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	r.secrets = secrets{"keys": data("accesskey", "AKIA", "secretkey", canary)}
	r.env = source.Env{Secrets: r.secrets, Cache: cache, Sources: &source.Inventory{Store: r.store}}
	return r
}

// holds makes contents, KEY, CONTENT, …, all that the bucket holds.
func (r *scene) holds(keyContent ...string) {
	contents := map[string]string{}
	for i := 0; i < len(keyContent); i += 2 {
		contents[keyContent[i]] = keyContent[i+1]
	}
	r.replace(contents)
}

func (r *scene) replace(contents map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Replace(contents)
	r.held = append(r.held, contents)
}

// put changes one object, and removes one whose content is to be "".
func (r *scene) put(key, content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if content == "" {
		r.b.Remove(key)
	} else {
		r.b.Put(key, content)
	}
	r.held = append(r.held, r.b.Contents())
}

// object returns an object with the keys of the server.
func (r *scene) object(edit func(*source.BucketSpec)) *source.Bucket {
	obj := following(r.s)
	obj.Spec.SecretRef = ref("keys")
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

// reconcile is run, and demands that what is published is what the bucket held at some time.
func (r *scene) reconcile(obj *source.Bucket) (source.Result, error) {
	r.Helper()
	result, err := r.run(obj)
	if obj.Artifact() != nil {
		r.whole(obj)
	}
	return result, err
}

// run runs the reconciler once. No run leaves goroutines behind, or shows a secret.
func (r *scene) run(obj *source.Bucket) (result source.Result, err error) {
	r.Helper()
	r.events = nil
	reconciler := source.Reconciler{
		Store: r.store, Load: r.ledger.Load, Save: r.ledger.Save, Now: func() time.Time { return r.now },
		Emit: func(e source.Event) { r.events = append(r.events, e) },
	}
	sourcetest.NoLeaks(r.T, func(ctx context.Context) {
		result, err = reconciler.Reconcile(ctx, obj, bucket.New(obj, r.env, providers))
	})
	r.noSecrets(obj, err)
	return result, err
}

// whole demands that the artifact is what the bucket held at some time.
func (r *scene) whole(obj *source.Bucket) {
	r.Helper()
	got := r.contents(obj.Artifact())
	same := func(held map[string]string) bool {
		held = maps.Clone(held)
		maps.DeleteFunc(held, func(key, _ string) bool { return strings.HasSuffix(key, "/") || strings.HasPrefix(key, "ignored/") })
		return maps.Equal(held, got)
	}
	if r.paged {
		for name, text := range got {
			if !slices.ContainsFunc(r.held, func(held map[string]string) bool { return held[name] == text && text != "" }) {
				r.Errorf("%s, %d bytes, never was so", name, len(text))
			}
		}
		return
	}
	if !slices.ContainsFunc(r.held, same) {
		r.Errorf("the artifact is none of the %d states the bucket had: %d files", len(r.held), len(got))
		for name, text := range got {
			r.Logf("%s: %d bytes, %.20q", name, len(text), text)
		}
	}
}

// noSecrets checks that no text of the last run shows a credential or a control character.
func (r *scene) noSecrets(obj *source.Bucket, failed error) {
	r.Helper()
	texts := []string{r.json(obj.Status), r.json(r.events)}
	if failed != nil {
		texts = append(texts, failed.Error())
		if strings.ContainsFunc(failed.Error(), func(c rune) bool { return c < ' ' || c == 0x7f }) {
			r.Errorf("error with control characters: %q", failed)
		}
	}
	for _, text := range texts {
		for _, secret := range append(r.s.Signatures(), secretForms...) {
			if at := strings.Index(text, secret); at >= 0 {
				r.Errorf("a secret shows: …%s", text[max(0, at-80):at+len(secret)])
			}
		}
	}
}

func (r *scene) json(v any) string {
	r.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		r.Fatal(err)
	}
	return string(text)
}

// stored reconciles obj and demands a new artifact of what the bucket holds now.
func (r *scene) stored(obj *source.Bucket) {
	r.Helper()
	if result, err := r.reconcile(obj); result.Outcome != source.Stored || err != nil {
		r.Fatalf("outcome %q, error %v; want %q", result.Outcome, err, source.Stored)
	}
}

// refused reconciles obj, which has no artifact or the one that goes by before,
// and demands that it stays so, and an error that says all of says.
func (r *scene) refused(obj *source.Bucket, before *artifact.Artifact, reason string, says ...string) source.Result {
	r.Helper()
	files := r.files()
	result, err := r.reconcile(obj)
	step, ok := errors.AsType[*source.StepError](err)
	if !ok || result.Outcome != source.Failed && result.Outcome != source.Stalled || step.Reason != reason {
		r.Fatalf("outcome %q, error %v (%+v); want a failure with reason %s", result.Outcome, err, step, reason)
	}
	for _, part := range says {
		if !strings.Contains(err.Error(), part) {
			r.Errorf("error %q lacks %q", err, part)
		}
	}
	if len(err.Error()) > 4<<10 {
		r.Errorf("the error has %d bytes", len(err.Error()))
	}
	if now := r.files(); !slices.Equal(files, now) {
		r.Errorf("the store held %v, now %v", files, now)
	}
	switch now := obj.Artifact(); {
	case before == nil && now != nil:
		r.Errorf("artifact %+v", now)
	case before != nil && (now == nil || r.json(now) != r.json(before)):
		r.Errorf("the artifact was %+v, is %+v", before, now)
	case before != nil:
		if err := r.store.Check(*before); err != nil {
			r.Errorf("the artifact is no longer good: %v", err)
		}
	}
	return result
}

// files lists all that lies in the store, temporary files included, locks aside.
func (r *scene) files() (list []string) {
	r.Helper()
	err := fs.WalkDir(os.DirFS(r.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(d.Name(), "lock") {
			list = append(list, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.Fatal(err)
	}
	return list
}

// names lists the files of an artifact.
func (r *scene) names(a *artifact.Artifact) []string {
	r.Helper()
	return slices.Sorted(maps.Keys(r.contents(a)))
}

// contents returns the files of an artifact by name.
func (r *scene) contents(a *artifact.Artifact) map[string]string {
	r.Helper()
	in, err := r.store.Open(*a)
	if err != nil {
		r.Fatal(err)
	}
	defer in.Close()
	tree, err := artifact.Read(in, artifact.Limits{})
	if err != nil {
		r.Fatal(err)
	}
	defer tree.Close()
	files := map[string]string{}
	err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		files[name] = string(text)
		return err
	})
	if err != nil {
		r.Fatal(err)
	}
	return files
}
