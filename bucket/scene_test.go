package bucket_test

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

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
	*sourcetest.Rig
	s       *testenv.Store
	b       *testenv.StoreBucket
	env     source.Env
	secrets secrets // of env

	mu    sync.Mutex
	held  []map[string]string
	paged bool // the bucket changes between the pages of one listing, so that none tells how it was at one time
}

func newScene(t *testing.T, c testenv.StoreConfig) *scene {
	t.Helper()
	r := &scene{T: t, s: testenv.StartS3(t, c)}
	r.Rig = sourcetest.NewRig(t, func() []string { return append(r.s.Issued(), secretForms()...) })
	r.Stalls = r.s.Stalls
	r.b = r.s.Bucket("app")
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cache.Close() })
	r.secrets = secrets{"keys": data("accesskey", "AKIA", "secretkey", canary)}
	r.env = source.Env{Secrets: r.secrets, Cache: cache, Sources: &source.Inventory{Store: r.Store}}
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
	obj := aws.following(r.s)
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

// run runs the reconciler once.
func (r *scene) run(obj *source.Bucket) (source.Result, error) {
	r.Helper()
	return r.Reconcile(obj, r.origin(obj))
}

func (r *scene) origin(obj *source.Bucket) *bucket.Origin {
	return bucket.New(obj, r.env, providers)
}

// whole demands that the artifact is what the bucket held at some time.
func (r *scene) whole(obj *source.Bucket) {
	r.Helper()
	got := r.Contents(obj.Artifact())
	r.mu.Lock()
	defer r.mu.Unlock()
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

// stored reconciles obj and demands a new artifact of what the bucket holds now.
func (r *scene) stored(obj *source.Bucket) {
	r.Helper()
	r.Stored(obj, r.origin(obj))
	r.whole(obj)
}

// refused reconciles obj, which has no artifact or the one that goes by before,
// and demands that it stays so, and an error that says all of says.
func (r *scene) refused(obj *source.Bucket, before *artifact.Artifact, reason string, says ...string) source.Result {
	r.Helper()
	result := r.Refused(obj, r.origin(obj), before, reason, says...)
	if obj.Artifact() != nil {
		r.whole(obj)
	}
	return result
}
