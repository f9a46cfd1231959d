package oci_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A setup reconciles OCIRepository objects with a real store and a real ledger.
type setup struct {
	*testing.T
	*sourcetest.Rig
	g       *testenv.Registry
	secrets sourcetest.Secrets
	limits  artifact.Limits
	verify  map[string]oci.Technology // nil: technologies
	local   map[string]string         // directories that stand in for URLs
}

func newSetup(t *testing.T, c testenv.RegistryConfig) *setup {
	t.Helper()
	r := &setup{T: t, g: testenv.StartRegistry(t, c)}
	r.Rig = sourcetest.NewRig(t, func() []string { return append(r.g.Tokens(), secretForms...) })
	r.Stalls = r.g.Stalls
	r.limits.Temp = r.Store.Temp
	r.secrets = sourcetest.Secrets{"default/login": login(r.g.Host, canary), "default/keys": trusted(t)}
	if c.CA != nil {
		r.secrets["default/tls"] = source.Secret{Data: map[string][]byte{"ca.crt": c.CA.PEM()}}
	}
	return r
}

// object returns an object of the given name with credentials for the registry.
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

// secretForms are the canary as it may come to show.
var secretForms = []string{canary, url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte("user:" + canary))}

// stored reconciles obj and demands a new artifact.
func (r *setup) stored(obj *source.OCIRepository) {
	r.Helper()
	r.Stored(obj, r.origin(obj))
}

// refused reconciles obj, which has no artifact or the one that goes by before,
// and demands that it stays so, and an error that says all of says.
func (r *setup) refused(obj *source.OCIRepository, before *artifact.Artifact, reason string, says ...string) source.Result {
	r.Helper()
	return r.Refused(obj, r.origin(obj), before, reason, says...)
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

// technologies are what signatures are verified with.
var technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}

// signer is whom objects trust in these tests.
func signer(t testing.TB) *testenv.Cosign { return testenv.NewCosign(t, 1) }

// trusted is the Secret with the key of the signer.
func trusted(t testing.TB) source.Secret {
	return source.Secret{Data: map[string][]byte{"cosign.pub": signer(t).Public()}}
}

// signed asks for verification with the key of the signer.
func signed(s *source.OCIRepositorySpec) {
	s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
}

// dockerconfig returns what docker login writes for a host.
func dockerconfig(host, user, password string) string {
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	out, _ := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"auth": auth}}})
	return string(out)
}

func serve(phase testenv.Phase, h http.HandlerFunc) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, _ http.Handler) { h(w, r) }}
}

// without removes headers of the right answer.
func without(phase testenv.Phase, names ...string) *testenv.Defect {
	return &testenv.Defect{Phase: phase, Do: testenv.Serve, Handler: func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(&trimmed{w, names}, r)
	}}
}

type trimmed struct {
	http.ResponseWriter
	names []string
}

func (w *trimmed) WriteHeader(code int) {
	for _, name := range w.names {
		w.Header()[name] = nil
	}
	w.ResponseWriter.WriteHeader(code)
}

func manifestOf1(r *oci.Repository) error {
	_, _, err := r.Manifest(context.Background(), ocispec.Descriptor{Digest: digest.FromString("x")})
	return err
}

func tagsOf(r *oci.Repository) error { return last(r.Tags(context.Background())) }

// last returns the error that a list ends with.
func last[T any](list func(func(T, error) bool)) (err error) {
	for _, err = range list {
	}
	return err
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
