package oci_test

import (
	"encoding/base64"
	"net/url"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A rig reconciles OCIRepository objects with a real store and a real ledger.
type rig struct {
	*testing.T
	*sourcetest.Rig
	g       *testenv.Registry
	secrets sourcetest.Secrets
	limits  artifact.Limits
	verify  map[string]oci.Technology // nil: technologies
	local   map[string]string         // directories that stand in for URLs
}

func newRig(t *testing.T, c testenv.RegistryConfig) *rig {
	t.Helper()
	r := &rig{T: t, g: testenv.StartRegistry(t, c)}
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
func (r *rig) object(name string, edit func(*source.OCIRepositorySpec)) *source.OCIRepository {
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
func (r *rig) reconcile(obj *source.OCIRepository) (source.Result, error) {
	r.Helper()
	return r.Reconcile(obj, r.origin(obj))
}

func (r *rig) origin(obj *source.OCIRepository) *oci.Origin {
	verify := r.verify
	if verify == nil {
		verify = technologies
	}
	return oci.New(obj, source.Env{Secrets: r.secrets, Limits: r.limits, Local: r.local}, verify)
}

// secretForms are the canary as it may come to show.
var secretForms = []string{canary, url.QueryEscape(canary), url.PathEscape(canary), base64.StdEncoding.EncodeToString([]byte("user:" + canary))}

// stored reconciles obj and demands a new artifact.
func (r *rig) stored(obj *source.OCIRepository) {
	r.Helper()
	r.Stored(obj, r.origin(obj))
}

// refused reconciles obj, which has no artifact or the one that goes by before,
// and demands that it stays so, and an error that says all of says.
func (r *rig) refused(obj *source.OCIRepository, before *artifact.Artifact, reason string, says ...string) source.Result {
	r.Helper()
	return r.Refused(obj, r.origin(obj), before, reason, says...)
}

// push publishes layers as team/app:latest.
func (r *rig) push(layers ...testenv.Blob) {
	r.Helper()
	r.g.Push("team/app", "latest", testenv.Manifest{Layers: layers})
}

// text returns a tree of one file.
func text(name, content string) fstest.MapFS {
	return fstest.MapFS{name: {Data: []byte(content), Mode: 0o644}}
}
