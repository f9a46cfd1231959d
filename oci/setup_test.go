package oci_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// A setup reconciles OCIRepository objects with a real store and a real ledger.
type setup struct {
	*testing.T
	*sourcetest.Fixture
	g       *testenv.Registry
	secrets sourcetest.Secrets
	limits  artifact.Limits
	verify  map[string]oci.Technology // nil: technologies
	local   map[string]string         // local directories by URL
}

func newSetup(t *testing.T, c testenv.RegistryConfig) *setup {
	t.Helper()
	r := &setup{T: t, g: testenv.StartRegistry(t, c)}
	r.Fixture = sourcetest.NewFixture(t, func() []string { return append(r.g.Tokens(), secretForms...) })
	r.Stalls = r.g.Stalls
	r.limits.Temp = r.Store.Temp
	r.secrets = sourcetest.Secrets{"default/login": dockerLogin(r.g.Host, canary), "default/keys": trusted(t)}
	if c.CA != nil {
		r.secrets["default/tls"] = source.Secret{Data: map[string][]byte{"ca.crt": c.CA.PEM()}}
	}
	return r
}

// object returns an object with the given name and credentials for the registry.
func (r *setup) object(name string, edit func(*source.OCIRepositorySpec)) *source.OCIRepository {
	obj := repository(r.g)
	obj.Metadata.Name = name
	obj.Spec.SecretRef = &source.LocalReference{Name: "login"}
	if !obj.Spec.Insecure {
		obj.Spec.CertSecretRef = &source.LocalReference{Name: "tls"}
	}
	if edit != nil {
		edit(&obj.Spec)
	}
	return obj
}

// reconcile runs the reconciler once.
func (r *setup) reconcile(obj *source.OCIRepository) (source.Result, error) {
	r.Helper()
	return r.Reconcile(obj, r.origin(obj))
}

func (r *setup) origin(obj *source.OCIRepository) *oci.Origin {
	verify := r.verify
	if verify == nil {
		verify = technologies
	}
	return oci.New(obj, source.Env{Secrets: r.secrets, Limits: r.limits, Local: r.local}, verify)
}

// secretForms are the encodings of the canary that must not appear in texts.
var secretForms = []string{canary, url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte("user:" + canary))}

// mustStore reconciles obj and checks that it has a new artifact.
func (r *setup) mustStore(obj *source.OCIRepository) {
	r.Helper()
	r.MustStore(obj, r.origin(obj))
}

// mustRefuse reconciles obj and checks that this fails with reason and an error that contains
// all of texts, and that the artifact of obj is still before, which may be nil.
func (r *setup) mustRefuse(obj *source.OCIRepository, before *artifact.Artifact, reason string, texts ...string) source.Result {
	r.Helper()
	return r.MustRefuse(obj, r.origin(obj), before, reason, texts...)
}

// push publishes layers as team/app:latest.
func (r *setup) push(layers ...testenv.Blob) {
	r.Helper()
	r.g.Push("team/app", "latest", testenv.Manifest{Layers: layers})
}

// text returns a tree of one file.
func text(name, content string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}}
}

// technologies are the technologies for verifying signatures.
var technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}

// signer returns the signer that objects trust in these tests.
func signer(t testing.TB) *testenv.Cosign { return testenv.NewCosign(t, 1) }

// trusted returns the Secret with the key of the signer.
func trusted(t testing.TB) source.Secret {
	return source.Secret{Data: map[string][]byte{"cosign.pub": signer(t).Public()}}
}

// signed changes a spec to require verification with the key of the signer.
func signed(s *source.OCIRepositorySpec) {
	s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
}

// dockerconfig returns a configuration for host in the format of docker login.
func dockerconfig(host, user, password string) string {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	out, _ := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": auth}}})
	return string(out)
}

func serve(phase testenv.Phase, h http.HandlerFunc) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { h(w, r) }}
}

// without returns a defect that removes headers from the correct response.
func without(phase testenv.Phase, names ...string) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&headerFilter{w, names}, r)
	}}
}

type headerFilter struct {
	http.ResponseWriter
	names []string
}

func (w *headerFilter) WriteHeader(code int) {
	for _, name := range w.names {
		w.Header()[name] = nil
	}
	w.ResponseWriter.WriteHeader(code)
}

func fetchManifest(r *oci.Repository) error {
	_, _, err := r.Manifest(context.Background(), ocispec.Descriptor{Digest: digest.FromString("x")})
	return err
}

func listTags(r *oci.Repository) error { return last(r.Tags(context.Background())) }

// last returns the last error of a list, or nil.
func last[T any](list func(func(T, error) bool)) (err error) {
	for _, err = range list {
	}
	return err
}

var must = testenv.Must

var update = flag.Bool("update", false, "rewrite the expectations in testdata/status")

// A history is a sequence of changes to one object. After each step, outcome, status and
// events must be those in testdata/status (specification,
// "OCIRepository"; reference A2, A3 and A4).
type history struct {
	name  string
	steps []step
}

type step struct {
	name string
	do   func(r *setup, obj *source.OCIRepository) // called before the object is reconciled
}

// pushed publishes a tree of one file under a tag.
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
		{"tag that is not told", both(pushed("latest", "one"), both(changed(shortTimeout), broke(&testenv.Defect{Phase: testenv.HeadManifest, Do: testenv.Stall})))},
		{"manifest that does not come", broke(&testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Stall, After: -1})},
		{"layer that does not come", broke(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall, After: -1})},
		{"all is well, with more time", both(broke(nil), changed(func(s *source.OCIRepositorySpec) { s.Timeout = source.Duration(time.Minute) }))},
		{"new manifest that does not come", both(pushed("latest", "two"), both(changed(shortTimeout), broke(&testenv.Defect{Phase: testenv.GetManifest, Do: testenv.Stall, After: -1})))},
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
				obj.Metadata.Generation = 0 // set by the ledger
				result, err := r.reconcile(obj)
				fmt.Fprintf(&got, "# %s\n%s", s.name, r.describeRun(obj, result, err))
			}
			sourcetest.Golden(t, filepath.Join("testdata", "status", strings.ReplaceAll(l.name, " ", "-")+".txt"), got.String(), *update)
		})
	}
}

// describeRun returns the result, status and events of a run, with the annotations of the artifact.
func (r *setup) describeRun(obj *source.OCIRepository, result source.Result, err error) string {
	r.Helper()
	s := &obj.Status
	observed := fmt.Sprintf("layerSelector %s, ignore %s", r.JSON(s.ObservedLayerSelector), r.JSON(s.ObservedIgnore))
	var notes map[string]string
	if s.Artifact != nil {
		notes = s.Artifact.Metadata
	}
	return strings.ReplaceAll(r.DescribeRun(obj, result, err, observed, notes), r.g.Host, "registry.example:5000")
}
