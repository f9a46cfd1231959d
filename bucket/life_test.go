package bucket_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// TestMain runs many tests in parallel, because they mostly wait for retries and timeouts.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "6")
	testenv.Main(m)
}

// A lifecycle is a sequence of changes to one object. After each step, outcome, status
// and events must be those in testdata/status (specification,
// "Bucket"; reference A2, A3 and A4).
type lifecycle struct {
	name  string
	steps []step
}

type step struct {
	name string
	do   func(r *bucketHistory, obj *source.Bucket) // called before the object is reconciled
}

func withObjects(keyContent ...string) func(*bucketHistory, *source.Bucket) {
	return func(r *bucketHistory, _ *source.Bucket) { r.setContent(keyContent...) }
}

func changed(edit func(*source.BucketSpec)) func(*bucketHistory, *source.Bucket) {
	return func(_ *bucketHistory, obj *source.Bucket) { edit(&obj.Spec) }
}

func ignores(patterns string) func(*bucketHistory, *source.Bucket) {
	return changed(func(s *source.BucketSpec) { s.Ignore = &patterns })
}

func broke(d *testenv.Defect) func(*bucketHistory, *source.Bucket) {
	return func(r *bucketHistory, _ *source.Bucket) { r.s.Break(d) }
}

func all(do ...func(*bucketHistory, *source.Bucket)) func(*bucketHistory, *source.Bucket) {
	return func(r *bucketHistory, obj *source.Bucket) {
		for _, do := range do {
			do(r, obj)
		}
	}
}

func slowDown(seconds string) *testenv.Defect {
	d := testenv.S3Failure(503, "SlowDown", "Please reduce your request rate.")
	d.Header.Set("Retry-After", seconds)
	return d
}

func shortTimeout(s *source.BucketSpec) { s.Timeout = source.Duration(time.Second) }
func longTimeout(s *source.BucketSpec)  { s.Timeout = source.Duration(time.Minute) }

func nothing(*bucketHistory, *source.Bucket) {}

var first = step{"one object", withObjects("app.yaml", "one")}

var lifecycles = []lifecycle{
	{"objects", []step{
		{"an empty bucket", nothing},
		first,
		{"nothing changed", nothing},
		{"another content", withObjects("app.yaml", "two")},
		{"another object, and a directory marker", withObjects("app.yaml", "two", "deploy/", "", "deploy/app.yaml", "three")},
		{"asked for by annotation", func(_ *bucketHistory, obj *source.Bucket) {
			obj.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"one object less", withObjects("deploy/app.yaml", "three")},
		{"no such bucket", changed(func(s *source.BucketSpec) { s.BucketName = "other" })},
	}},
	{"prefix and ignore", []step{
		{"a prefix", all(withObjects("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three"), changed(func(s *source.BucketSpec) { s.Prefix = "deploy/" }))},
		{"ignore", ignores("*.txt")},
		{"nothing changed", nothing},
		{"ignore that ignores nothing more", ignores("*.txt\n*.md")},
		{"an ignore file", all(withObjects("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three", ".sourceignore", "*.yaml"), ignores(""))},
		{"the prefix of nothing", changed(func(s *source.BucketSpec) { s.Prefix = "nothing/" })},
	}},
	{"suspended", []step{
		first,
		{"suspended, and changed", all(withObjects("app.yaml", "two"), changed(func(s *source.BucketSpec) { s.Suspend = true }))},
		{"resumed", changed(func(s *source.BucketSpec) { s.Suspend = false })},
	}},
	{"failures", []step{
		first,
		{"object that cannot be read", all(withObjects("app.yaml", "two"), broke(inPhase(testenv.GetObject, testenv.S3Failure(400, "InvalidObjectState", "The operation is not valid for the object's storage class"))))},
		{"forbidden", broke(testenv.S3Failure(403, "AccessDenied", "Access Denied"))},
		{"busy for a while", broke(slowDown("600"))},
		{"busy for longer than the interval", broke(slowDown("7200"))},
		{"mended", broke(nil)},
		{"endpoint that is none", changed(func(s *source.BucketSpec) { s.Endpoint = "no host at all" })},
		{"no Secret", all(changed(func(s *source.BucketSpec) { s.SecretRef = ref("absent") }), func(r *bucketHistory, obj *source.Bucket) { obj.Spec.Endpoint = r.s.Host })},
		{"well again", changed(func(s *source.BucketSpec) { s.SecretRef = ref("keys") })},
		{"keys without a secret key", func(r *bucketHistory, _ *source.Bucket) {
			r.secrets["default/keys"] = sourcetest.Secret("accesskey", "AKIA")
		}},
	}},
	{"keys", []step{
		first,
		{"key that is no path", withObjects("app.yaml", "two", "a//b", "", "../up", "", "a\\b", "")},
		{"which is ignored", ignores("/a/\n/../\na\\\\b\nup")},
		{"key below a key", withObjects("app.yaml", "two", "app.yaml/part", "")},
	}},
	{"moving", []step{
		first,
		{"objects that change all the time", func(r *bucketHistory, _ *source.Bucket) {
			r.setContent("app.yaml", "two")
			r.s.Break(changing(r, testenv.GetObject, func(i int) (key, content string) { return "app.yaml", fmt.Sprint("change ", i) }))
		}},
		{"quiet at last", broke(nil)},
		{"objects that vanish", func(r *bucketHistory, _ *source.Bucket) {
			r.setContent("app.yaml", "one", "b.yaml", "two")
			r.s.Break(changing(r, testenv.GetObject, func(int) (key, content string) { return "b.yaml", "" }))
		}},
	}},
	{"timeout", []step{
		{"listing that does not come", all(withObjects("app.yaml", "one"), changed(shortTimeout), broke(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Stall, After: -1}))},
		{"all is well, with more time", all(broke(nil), changed(longTimeout))},
		{"object that does not come", all(withObjects("app.yaml", "two"), changed(shortTimeout), broke(&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Stall, After: 1}))},
	}},
	{"token service", []step{
		{"temporary keys", all(withObjects("app.yaml", "one"), changed(withLDAP), changed(func(s *source.BucketSpec) { s.SecretRef = nil }), func(r *bucketHistory, obj *source.Bucket) { obj.Spec.STS.Endpoint = r.s.Base })},
		{"other password", func(r *bucketHistory, _ *source.Bucket) {
			r.secrets["default/ldap"] = sourcetest.Secret("username", "user", "password", "other")
		}},
		{"no endpoint", changed(func(s *source.BucketSpec) { s.STS.Endpoint = "" })},
		{"provider that is none", changed(func(s *source.BucketSpec) { s.STS.Provider = "unknown" })},
	}},
}

func withLDAP(s *source.BucketSpec) {
	s.STS = &source.BucketSTSSpec{Provider: "ldap", SecretRef: ref("ldap")}
}

// changing returns a defect that changes an object before a request is answered.
func changing(r *bucketHistory, phase testenv.Phase, change func(i int) (key, content string)) *testenv.Defect {
	var i atomic.Int64
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		r.put(change(int(i.Add(1))))
		next.ServeHTTP(w, q)
	}}
}

func TestStatuses(t *testing.T) {
	t.Parallel()
	for _, l := range lifecycles {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := newBucketHistory(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
			r.secrets["default/ldap"] = sourcetest.Secret("username", "user", "password", canary)
			obj := r.object(nil)
			var got strings.Builder
			for _, s := range l.steps {
				r.Now = r.Now.Add(time.Hour)
				s.do(r, obj)
				obj = &source.Bucket{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // set by the ledger
				result, err := r.run(obj)
				fmt.Fprintf(&got, "# %s\n%s", s.name, r.describeRun(obj, result, err))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}

// describeRun returns the result, status and events of a run, with the names of the files.
func (r *bucketHistory) describeRun(obj *source.Bucket, result source.Result, err error) string {
	r.Helper()
	var names []string
	if obj.Artifact() != nil {
		names = r.Names(obj.Artifact())
	}
	description := r.DescribeRun(obj, result, err, "ignore "+r.JSON(obj.Status.ObservedIgnore), names)
	return strings.ReplaceAll(description, r.s.Host, "s3.example:9000")
}

// A bucketHistory reconciles Bucket objects of one S3 server with a real store and a
// real ledger. It records all contents that the bucket has had.
type bucketHistory struct {
	*testing.T
	*sourcetest.Fixture
	s       *testenv.Store
	b       *testenv.StoreBucket
	env     source.Env
	secrets sourcetest.Secrets // of env

	mu     sync.Mutex
	states []map[string]string
	paged  bool // the bucket changes between the pages of a listing, so a listing may mix several states
}

func newBucketHistory(t *testing.T, c testenv.StoreConfig) *bucketHistory {
	t.Helper()
	r := &bucketHistory{T: t, s: testenv.StartS3(t, c)}
	r.Fixture = sourcetest.NewFixture(t, func() []string { return append(r.s.Issued(), secretForms()...) })
	r.Stalls = r.s.Stalls
	r.b = r.s.Bucket("app")
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { cache.Close() })
	r.secrets = sourcetest.Secrets{"default/keys": sourcetest.Secret("accesskey", "AKIA", "secretkey", canary)}
	r.env = source.Env{Secrets: r.secrets, Cache: cache, Sources: &source.Inventory{Store: r.Store}}
	return r
}

// setContent replaces the content of the bucket by objects KEY, CONTENT, …
func (r *bucketHistory) setContent(keyContent ...string) {
	contents := map[string]string{}
	for i := 0; i < len(keyContent); i += 2 {
		contents[keyContent[i]] = keyContent[i+1]
	}
	r.replace(contents)
}

func (r *bucketHistory) replace(contents map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.b.Replace(contents)
	r.states = append(r.states, contents)
}

// put changes one object, or removes it if content is "".
func (r *bucketHistory) put(key, content string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if content == "" {
		r.b.Remove(key)
	} else {
		r.b.Put(key, content)
	}
	r.states = append(r.states, r.b.Contents())
}

// object returns an object with the keys of the server.
func (r *bucketHistory) object(edit func(*source.BucketSpec)) *source.Bucket {
	obj := aws.following(r.s)
	obj.Spec.SecretRef = ref("keys")
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

// reconcile calls run, and checks that the artifact is a state the bucket has had.
func (r *bucketHistory) reconcile(obj *source.Bucket) (source.Result, error) {
	r.Helper()
	result, err := r.run(obj)
	if obj.Artifact() != nil {
		r.requireConsistent(obj)
	}
	return result, err
}

// run runs the reconciler once.
func (r *bucketHistory) run(obj *source.Bucket) (source.Result, error) {
	r.Helper()
	return r.Reconcile(obj, r.origin(obj))
}

func (r *bucketHistory) origin(obj *source.Bucket) *bucket.Origin {
	return bucket.New(obj, r.env, providers)
}

// requireConsistent checks that the artifact is a state the bucket has had. If r.paged is set, it
// only checks each object separately.
func (r *bucketHistory) requireConsistent(obj *source.Bucket) {
	r.Helper()
	got := r.Contents(obj.Artifact())
	r.mu.Lock()
	defer r.mu.Unlock()
	matches := func(held map[string]string) bool {
		held = maps.Clone(held)
		maps.DeleteFunc(held, func(key, _ string) bool { return strings.HasSuffix(key, "/") || strings.HasPrefix(key, "ignored/") })
		return maps.Equal(held, got)
	}
	if r.paged {
		for name, text := range got {
			if !slices.ContainsFunc(r.states, func(held map[string]string) bool { return held[name] == text && text != "" }) {
				r.Errorf("%s, %d bytes, never was so", name, len(text))
			}
		}
		return
	}
	if !slices.ContainsFunc(r.states, matches) {
		r.Errorf("the artifact is none of the %d states the bucket had: %d files", len(r.states), len(got))
		for name, text := range got {
			r.Logf("%s: %d bytes, %.20q", name, len(text), text)
		}
	}
}

// TestFleetListsOnce checks that objects that read one bucket at the same time share a
// listing, whatever they ignore, unless they have other keys or another prefix.
func TestFleetListsOnce(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(i int, s *source.BucketSpec)
		want int
	}{
		"the same":       {func(int, *source.BucketSpec) {}, 1},
		"other rules":    {func(i int, s *source.BucketSpec) { s.Ignore = &[]string{"a", "b"}[i%2] }, 1},
		"another Secret": {func(i int, s *source.BucketSpec) { s.SecretRef = ref([]string{"keys", "others"}[i%2]) }, 2},
		"another prefix": {func(i int, s *source.BucketSpec) { s.Prefix = []string{"", "a"}[i%2] }, 3}, // one looks for .sourceignore
	} {
		t.Run(name, func(t *testing.T) {
			r := newBucketHistory(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary})
			r.secrets["default/others"] = r.secrets["default/keys"]
			r.setContent("a", "1", "b", "2", "c", "3")
			r.env.Share, r.env.Since, r.env.Reuse = new(source.Share), time.Now(), new(source.Connections)
			t.Cleanup(r.env.Reuse.Close)
			objects := make([]*source.Bucket, 6)
			if name == "another prefix" {
				objects = objects[:2]
			}
			var all sync.WaitGroup
			for i := range objects {
				objects[i] = r.object(func(s *source.BucketSpec) { c.edit(i, s) })
				objects[i].Metadata.Name = fmt.Sprint("app-", i)
				all.Go(func() {
					if _, err := (&source.Reconciler{Store: r.Store}).Reconcile(t.Context(), objects[i], r.origin(objects[i])); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			lists := 0
			for _, q := range r.s.Requests() {
				if q.Phase == testenv.ListObjects {
					lists++
				}
			}
			testenv.Equal(t, lists, c.want, "lists")
			for i, obj := range objects {
				want := 3
				if name != "the same" && name != "another Secret" {
					want = []int{2, 2}[i%2]
					if name == "another prefix" {
						want = []int{3, 1}[i%2]
					}
				}
				testenv.Equal(t, len(r.Contents(obj.Artifact())), want, "object %d: files", i)
			}
		})
	}
}
