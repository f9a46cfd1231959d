package chart_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

const (
	pulled   = "Ready=True/ChartPullSucceeded ArtifactInStorage=True/ChartPullSucceeded"
	verified = "Ready=True/ChartPullSucceeded SourceVerified=True/Succeeded ArtifactInStorage=True/ChartPullSucceeded"
)

// A repository over HTTP may ask for provenance files; a chart then is verified
// although it asks for nothing itself, for as long as that stands.
func TestProvenanceLife(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	ann, bob := chart.NewKey(t, at, 0), chart.NewKey(t, at, 0)
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	signed := func(version string, archive []byte) {
		server.PutFile("app-"+version+".tgz.prov", chart.SignText(t, ann, at, chart.Statement("app", version, archive)))
	}
	first := server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	w := newWorkshop(t)
	ring := func(data []byte) { w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": data}} }
	repo := w.indexed(server)
	c := made("PkgRepository/src", "app", nil)
	want := func(conditions, message string) {
		t.Helper()
		if got := conditionsOf(c); got != conditions {
			t.Errorf("conditions %s", got)
		}
		if got := c.Status.Condition("SourceVerified").Message; !strings.HasPrefix(got, message) {
			t.Errorf("SourceVerified says %q", got)
		}
	}
	w.run(c, source.Stored)
	want(pulled, "")
	before := *c.Artifact()

	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "ring"}}
	w.fails(c, &before, source.Failed, "VerificationError", "apps/ring")
	want("Ready=False/VerificationError Reconciling=True/ProgressingWithRetry SourceVerified=False/VerificationError ArtifactInStorage=True/ChartPullSucceeded", "spec.verify.secretRef of the PkgRepository")
	ring(chart.PublicKeys(t, ann, true))
	w.fails(c, &before, source.Failed, "ChartVerificationError", "there is no provenance file")
	want("Ready=False/ChartVerificationError Reconciling=True/ProgressingWithRetry BuildFailed=True/ChartVerificationError SourceVerified=False/ChartVerificationError ArtifactInStorage=True/ChartPullSucceeded", "chart app 1.0.0")
	signed("1.0.0", first)
	if result := w.run(c, source.Stored); result.Why != "the artifact was not verified as the spec asks now" || result.Verification.Mode != "provenance" {
		t.Errorf("%+v", result)
	}
	want(verified, "verified provenance of chart app in version 1.0.0 with key")
	w.run(c, source.Unchanged)
	want(verified, "verified provenance")

	ring(chart.PublicKeys(t, bob, true))
	w.fails(c, &before, source.Failed, "ChartVerificationError", "none of the trusted keys")
	ring(append(chart.PublicKeys(t, bob, false), chart.PublicKeys(t, ann, false)...))
	w.run(c, source.Stored)
	want(verified, "verified provenance")
	ring(chart.PublicKeys(t, ann, false))
	if result := w.run(c, source.Stored); result.Why != "the trusted keys changed" {
		t.Errorf("%+v", result)
	}

	server.Put(testenv.ChartVersion{Name: "app", Version: "1.1.0"})
	w.refresh(repo, source.Stored)
	before = *c.Artifact()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "there is no provenance file")
	server.Remove("app", "1.1.0")
	w.refresh(repo, source.Stored)
	w.run(c, source.Stored) // what was refused is gone, and what stays was verified before that
	want(verified, "verified provenance")

	repo.Spec.Verify = nil
	w.run(c, source.Unchanged)
	want(pulled, "")
}

// What a chart in a registry asks for is verified by the digest that is fetched.
func TestSignedCharts(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	key, other := testenv.NewCosign(t, 1), testenv.NewCosign(t, 2)
	w := newWorkshop(t)
	w.technologies = map[string]oci.Technology{"cosign": cosign.New(cosign.Config{})}
	w.pushed(g)
	keys := func(texts ...[]byte) {
		data := map[string][]byte{}
		for i, text := range texts {
			data[string(rune('a'+i))+".pub"] = text
		}
		w.secrets["apps/keys"] = source.Secret{Data: data}
	}
	keys(key.Public())
	publish := func(version string) {
		subject := push(g, version, archived(t, version))
		key.Sign(g, "team/app", subject, subject.Digest)
	}
	publish("1.0.0")
	c := made("PkgRepository/src", "app", func(s *source.PkgChartSpec) {
		s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
	})
	w.run(c, source.Stored)
	if got := conditionsOf(c); got != verified {
		t.Errorf("conditions %s", got)
	}
	w.run(c, source.Unchanged)
	before := *c.Artifact()

	push(g, "1.1.0", archived(t, "1.1.0"))
	g.Reset()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "is not signed")
	if n := g.Count(testenv.GetBlob); n != 0 {
		t.Errorf("%d blobs were asked for before the chart was verified", n)
	}
	publish("1.1.0")
	w.run(c, source.Stored)

	keys(other.Public())
	before = *c.Artifact()
	w.fails(c, &before, source.Failed, "ChartVerificationError", "1.1.0")
	keys(other.Public(), key.Public())
	w.run(c, source.Stored)

	c.Spec.Verify.Provider = "notation"
	before = *c.Artifact()
	w.fails(c, &before, source.Stalled, "VerificationError", "this program verifies with cosign")
	c.Spec.Verify, c.Metadata.Generation = nil, 4
	w.run(c, source.Unchanged)
	if got := conditionsOf(c); got != pulled {
		t.Errorf("conditions %s", got)
	}
}

// spec.verify is for registries: over HTTP it is refused, and not passed over.
func TestVerifyOverHTTP(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	w := newWorkshop(t)
	w.indexed(server)
	c := made("PkgRepository/src", "app", func(s *source.PkgChartSpec) {
		s.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
	})
	w.fails(c, nil, source.Stalled, "VerificationError", "type oci")
}

// A key that changes between looking up and verifying is no verdict.
func TestKeysThatChangeMeanwhile(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	ann, bob := chart.NewKey(t, at, 0), chart.NewKey(t, at, 0)
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	server.PutFile("app-1.0.0.tgz.prov", chart.SignText(t, ann, at, chart.Statement("app", "1.0.0", archive)))
	w := newWorkshop(t)
	w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": chart.PublicKeys(t, bob, false)}}
	w.indexed(server).Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "ring"}}
	o := w.origin(made("PkgRepository/src", "app", nil))
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil || rev.Verify != "provenance" {
		t.Fatal(rev, err)
	}
	w.secrets["apps/ring"] = source.Secret{Data: map[string][]byte{"keys": chart.PublicKeys(t, ann, false)}}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Verify(t.Context()); err == nil || !strings.Contains(err.Error(), "the keys changed") {
		t.Errorf("error %v", err)
	}
}

// What became another version between looking up and opening is looked up again.
func TestVersionsThatMove(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	w := newWorkshop(t)
	w.pushed(g)
	push(g, "1.0.0", archived(t, "1.0.0"))
	c := made("PkgRepository/src", "app", nil)
	rev, _, err := w.origin(c).Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	push(g, "1.1.0", archived(t, "1.1.0"))
	if _, err := w.origin(c).Open(t.Context(), rev); !errors.Is(err, source.ErrMoved) {
		t.Errorf("error %v", err)
	}
}
