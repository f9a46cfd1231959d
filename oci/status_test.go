package oci_test

import (
	"flag"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A history is what happens to one object, step by step. After each its outcome,
// its status and its events are those of testdata/status (specification,
// "OCIRepository"; reference A2, A3 and A4).
type history struct {
	name  string
	steps []step
}

type step struct {
	name string
	do   func(r *setup, obj *source.OCIRepository) // before the object is reconciled
}

// pushes publishes a tree of one file under a tag.
func pushed(tag, content string) func(*setup, *source.OCIRepository) {
	return func(r *setup, _ *source.OCIRepository) { r.publish(tag, content) }
}

// publish pushes an artifact with annotations and two layers, signed.
func (r *setup) publish(tag, content string) ocispec.Descriptor {
	layer := testenv.TarPlain(r, text("app.yaml", content))
	notes := testenv.TarPlain(r, text("notes.md", content))
	notes.MediaType = "application/vnd.example.notes"
	d := r.g.Push("team/app", tag, testenv.Manifest{Layers: []testenv.Blob{layer, notes}, Annotations: map[string]string{
		ocispec.AnnotationSource: "https://git.example.com/team/app", ocispec.AnnotationRevision: "main@sha1:" + content,
	}})
	signer(r).Sign(r.g, "team/app", d, d.Digest)
	return d
}

func changed(edit func(*source.OCIRepositorySpec)) func(*setup, *source.OCIRepository) {
	return func(_ *setup, obj *source.OCIRepository) { edit(&obj.Spec) }
}

func broke(d *testenv.Defect) func(*setup, *source.OCIRepository) {
	return func(r *setup, _ *source.OCIRepository) { r.g.Break(d) }
}

func both(a, b func(*setup, *source.OCIRepository)) func(*setup, *source.OCIRepository) {
	return func(r *setup, obj *source.OCIRepository) { a(r, obj); b(r, obj) }
}

func busy(seconds string) *testenv.Defect {
	return &testenv.Defect{Status: 429, Header: http.Header{"Retry-After": {seconds}}}
}

func nothing(*setup, *source.OCIRepository) {}

var first = step{"published", pushed("latest", "one")}

var histories = []history{
	{"latest", []step{
		{"nothing is there", nothing},
		first,
		{"nothing changed", nothing},
		{"published anew", pushed("latest", "two")},
		{"asked for by annotation", func(_ *setup, obj *source.OCIRepository) {
			obj.Metadata.Annotations = map[string]string{"reconcile.headgate.dev/requestedAt": "now"}
		}},
	}},
	{"digest", []step{
		{"pinned", func(r *setup, obj *source.OCIRepository) {
			obj.Spec.Ref = &source.OCIRepositoryRef{Digest: r.publish("1.0.0", "one").Digest.String(), Tag: "other", SemVer: "*"}
		}},
		{"registry gone", broke(&testenv.Defect{Status: 500})},
		{"digest that is none", changed(func(s *source.OCIRepositorySpec) { s.Ref.Digest = "sha256:abc" })},
	}},
	{"semver", []step{
		{"range", both(pushed("1.0.0", "one"), changed(func(s *source.OCIRepositorySpec) {
			s.Ref = &source.OCIRepositoryRef{SemVer: "1.x", SemVerFilter: `^1\.\d+\.\d+$`, Tag: "other"}
		}))},
		{"higher version, and higher ones that the filter leaves out", both(pushed("1.1.0", "two"), pushed("1.9.0-rc.1", "three"))},
		{"nothing in range", changed(func(s *source.OCIRepositorySpec) { s.Ref.SemVer = "3.x" })},
		{"range that is none", changed(func(s *source.OCIRepositorySpec) { s.Ref.SemVer = "one" })},
		{"filter that is none", changed(func(s *source.OCIRepositorySpec) { s.Ref.SemVer, s.Ref.SemVerFilter = "1.x", "(" })},
	}},
	{"selector and ignore", []step{
		first,
		{"other layer, copied", changed(func(s *source.OCIRepositorySpec) {
			s.LayerSelector = &source.OCILayerSelector{MediaType: "application/vnd.example.notes", Operation: source.LayerCopy}
		})},
		{"extracted", changed(func(s *source.OCIRepositorySpec) { s.LayerSelector.Operation = source.LayerExtract })},
		{"ignore", changed(func(s *source.OCIRepositorySpec) { ignore := "*.txt"; s.Ignore = &ignore })},
		{"no such layer", changed(func(s *source.OCIRepositorySpec) { s.LayerSelector.MediaType = "application/absent" })},
		{"no selector, which is the first layer", changed(func(s *source.OCIRepositorySpec) { s.LayerSelector = nil })},
	}},
	{"suspended", []step{
		first,
		{"suspended, and published anew", both(pushed("latest", "two"), changed(func(s *source.OCIRepositorySpec) { s.Suspend = true }))},
		{"resumed", changed(func(s *source.OCIRepositorySpec) { s.Suspend = false })},
	}},
	{"failures", []step{
		first,
		{"layer broken of what is new", both(pushed("latest", "two"), broke(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.End, After: 99}))},
		{"forbidden", broke(&testenv.Defect{Status: 403})},
		{"busy for a while", broke(busy("600"))},
		{"busy for longer than the interval", broke(busy("7200"))},
		{"mended", broke(nil)},
		{"URL that is none", changed(func(s *source.OCIRepositorySpec) { s.URL = "https://example.com/team/app" })},
		{"no Secret", both(changed(func(s *source.OCIRepositorySpec) { s.URL = ""; s.SecretRef.Name = "absent" }), func(r *setup, obj *source.OCIRepository) { obj.Spec.URL = r.g.URL("team/app") })},
		{"well again", changed(func(s *source.OCIRepositorySpec) { s.SecretRef.Name = "login" })},
	}},
	{"timeout", []step{
		{"tag that is not told", both(pushed("latest", "one"), both(changed(hasty), broke(&testenv.Defect{Phase: testenv.HeadManifest, Do: testenv.Stall})))},
		{"manifest that does not come", broke(&testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Stall, After: -1})},
		{"layer that does not come", broke(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall, After: -1})},
		{"all is well, with more time", both(broke(nil), changed(func(s *source.OCIRepositorySpec) { s.Timeout = source.Duration(time.Minute) }))},
		{"new manifest that does not come", both(pushed("latest", "two"), both(changed(hasty), broke(&testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Stall, After: -1})))},
	}},
	{"verify", []step{
		{"signed", both(pushed("latest", "one"), changed(signed))},
		{"nothing changed", nothing},
		{"not signed", func(r *setup, _ *source.OCIRepository) {
			r.g.Untag("team/app", testenv.SignatureTag(r.publish("latest", "two")))
		}},
		{"no keys", func(r *setup, _ *source.OCIRepository) { delete(r.secrets, "default/keys") }},
		{"signed at last", func(r *setup, _ *source.OCIRepository) {
			r.secrets["default/keys"] = trusted(r)
			r.publish("latest", "two")
		}},
		{"not to be verified", changed(func(s *source.OCIRepositorySpec) { s.Verify = nil })},
		{"unknown technology", changed(func(s *source.OCIRepositorySpec) { signed(s); s.Verify.Provider = "unknown" })},
	}},
}

func TestStatuses(t *testing.T) {
	for _, l := range histories {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			r := newSetup(t, testenv.RegistryConfig{Username: "user", Password: canary})
			obj := r.object("app", nil)
			var got strings.Builder
			for _, s := range l.steps {
				r.Now = r.Now.Add(time.Hour)
				s.do(r, obj)
				obj = &source.OCIRepository{Header: obj.Header, Spec: obj.Spec}
				obj.Metadata.Generation = 0 // the ledger knows
				result, err := r.reconcile(obj)
				fmt.Fprintf(&got, "# %s\n%s", s.name, r.told(obj, result, err))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}

// told is all that a run tells, with the annotations of the artifact.
func (r *setup) told(obj *source.OCIRepository, result source.Result, err error) string {
	r.Helper()
	s := &obj.Status
	observed := fmt.Sprintf("layerSelector %s, ignore %s", r.JSON(s.ObservedLayerSelector), r.JSON(s.ObservedIgnore))
	var notes map[string]string
	if s.Artifact != nil {
		notes = s.Artifact.Metadata
	}
	return strings.ReplaceAll(r.Told(obj, result, err, observed, notes), r.g.Host, "registry.example:5000")
}
