package bucket_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A life is what happens to one object, step by step. After each its outcome,
// its status and its events are those of testdata/status (specification,
// "Bucket"; reference A2, A3 and A4).
type life struct {
	name  string
	steps []step
}

type step struct {
	name string
	do   func(r *scene, obj *source.Bucket) // before the object is reconciled
}

func held(keyContent ...string) func(*scene, *source.Bucket) {
	return func(r *scene, _ *source.Bucket) { r.holds(keyContent...) }
}

func changed(edit func(*source.BucketSpec)) func(*scene, *source.Bucket) {
	return func(_ *scene, obj *source.Bucket) { edit(&obj.Spec) }
}

func ignores(patterns string) func(*scene, *source.Bucket) {
	return changed(func(s *source.BucketSpec) { s.Ignore = &patterns })
}

func broke(d *testenv.Defect) func(*scene, *source.Bucket) {
	return func(r *scene, _ *source.Bucket) { r.s.Break(d) }
}

func all(do ...func(*scene, *source.Bucket)) func(*scene, *source.Bucket) {
	return func(r *scene, obj *source.Bucket) {
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

func hasty(s *source.BucketSpec)   { s.Timeout = source.Duration(time.Second) }
func patient(s *source.BucketSpec) { s.Timeout = source.Duration(time.Minute) }

func nothing(*scene, *source.Bucket) {}

var first = step{"one object", held("app.yaml", "one")}

var lives = []life{
	{"objects", []step{
		{"an empty bucket", nothing},
		first,
		{"nothing changed", nothing},
		{"another content", held("app.yaml", "two")},
		{"another object, and a directory marker", held("app.yaml", "two", "deploy/", "", "deploy/app.yaml", "three")},
		{"asked for by annotation", func(_ *scene, obj *source.Bucket) {
			obj.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
		{"one object less", held("deploy/app.yaml", "three")},
		{"no such bucket", changed(func(s *source.BucketSpec) { s.BucketName = "other" })},
	}},
	{"prefix and ignore", []step{
		{"a prefix", all(held("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three"), changed(func(s *source.BucketSpec) { s.Prefix = "deploy/" }))},
		{"ignore", ignores("*.txt")},
		{"nothing changed", nothing},
		{"ignore that ignores nothing more", ignores("*.txt\n*.md")},
		{"an ignore file", all(held("app.yaml", "one", "deploy/app.yaml", "two", "deploy/ignored.txt", "three", ".sourceignore", "*.yaml"), ignores(""))},
		{"the prefix of nothing", changed(func(s *source.BucketSpec) { s.Prefix = "nothing/" })},
	}},
	{"suspended", []step{
		first,
		{"suspended, and changed", all(held("app.yaml", "two"), changed(func(s *source.BucketSpec) { s.Suspend = true }))},
		{"resumed", changed(func(s *source.BucketSpec) { s.Suspend = false })},
	}},
	{"failures", []step{
		first,
		{"object that cannot be read", all(held("app.yaml", "two"), broke(of(testenv.GetObject, testenv.S3Failure(400, "InvalidObjectState", "The operation is not valid for the object's storage class"))))},
		{"forbidden", broke(testenv.S3Failure(403, "AccessDenied", "Access Denied"))},
		{"busy for a while", broke(slowDown("600"))},
		{"busy for longer than the interval", broke(slowDown("7200"))},
		{"mended", broke(nil)},
		{"endpoint that is none", changed(func(s *source.BucketSpec) { s.Endpoint = "no host at all" })},
		{"no Secret", all(changed(func(s *source.BucketSpec) { s.SecretRef = ref("absent") }), func(r *scene, obj *source.Bucket) { obj.Spec.Endpoint = r.s.Host })},
		{"well again", changed(func(s *source.BucketSpec) { s.SecretRef = ref("keys") })},
		{"keys without a secret key", func(r *scene, _ *source.Bucket) { r.secrets["keys"] = data("accesskey", "AKIA") }},
	}},
	{"keys", []step{
		first,
		{"key that is no path", held("app.yaml", "two", "a//b", "", "../up", "", "a\\b", "")},
		{"which is ignored", ignores("/a/\n/../\na\\\\b\nup")},
		{"key below a key", held("app.yaml", "two", "app.yaml/part", "")},
	}},
	{"moving", []step{
		first,
		{"objects that change all the time", func(r *scene, _ *source.Bucket) {
			r.holds("app.yaml", "two")
			r.s.Break(changing(r, testenv.GetObject, func(i int) (key, content string) { return "app.yaml", fmt.Sprint("change ", i) }))
		}},
		{"quiet at last", broke(nil)},
		{"objects that vanish", func(r *scene, _ *source.Bucket) {
			r.holds("app.yaml", "one", "b.yaml", "two")
			r.s.Break(changing(r, testenv.GetObject, func(int) (key, content string) { return "b.yaml", "" }))
		}},
	}},
	{"timeout", []step{
		{"listing that does not come", all(held("app.yaml", "one"), changed(hasty), broke(&testenv.Defect{Phase: testenv.ListObjects, Do: testenv.Stall, After: -1}))},
		{"all is well, with more time", all(broke(nil), changed(patient))},
		{"object that does not come", all(held("app.yaml", "two"), changed(hasty), broke(&testenv.Defect{Phase: testenv.GetObject, Do: testenv.Stall, After: 1}))},
	}},
	{"token service", []step{
		{"temporary keys", all(held("app.yaml", "one"), changed(withLDAP), changed(func(s *source.BucketSpec) { s.SecretRef = nil }), func(r *scene, obj *source.Bucket) { obj.Spec.STS.Endpoint = r.s.Base })},
		{"other password", func(r *scene, _ *source.Bucket) {
			r.secrets["ldap"] = data("username", "user", "password", "other")
		}},
		{"no endpoint", changed(func(s *source.BucketSpec) { s.STS.Endpoint = "" })},
		{"provider that is none", changed(func(s *source.BucketSpec) { s.STS.Provider = "unknown" })},
	}},
}

func withLDAP(s *source.BucketSpec) {
	s.STS = &source.BucketSTSSpec{Provider: "ldap", SecretRef: ref("ldap")}
}

// changing returns a defect that changes an object before a request is answered.
func changing(r *scene, phase testenv.Phase, change func(i int) (key, content string)) *testenv.Defect {
	var i atomic.Int64
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, q *http.Request, next http.Handler) {
		r.put(change(int(i.Add(1))))
		next.ServeHTTP(w, q)
	}}
}

func TestStatuses(t *testing.T) {
	for _, l := range lives {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := newScene(t, testenv.StoreConfig{AccessKey: "AKIA", SecretKey: canary, LDAPUsername: "user", LDAPPassword: canary})
			r.secrets["ldap"] = data("username", "user", "password", canary)
			obj := r.object(nil)
			var got strings.Builder
			for _, s := range l.steps {
				r.Now = r.Now.Add(time.Hour)
				s.do(r, obj)
				obj = &source.Bucket{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // the ledger knows
				result, err := r.run(obj)
				fmt.Fprintf(&got, "# %s\n%s", s.name, r.told(obj, result, err))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}

// told is all that a run tells, with the names of the files.
func (r *scene) told(obj *source.Bucket, result source.Result, err error) string {
	r.Helper()
	var names []string
	if obj.Artifact() != nil {
		names = r.Names(obj.Artifact())
	}
	told := r.Told(obj, result, err, "ignore "+r.JSON(obj.Status.ObservedIgnore), names)
	return strings.ReplaceAll(told, r.s.Host, "s3.example:9000")
}
