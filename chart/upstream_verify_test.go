package chart

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A notary is a technology whose signatures are a list of digests. Its keys are good or better.
type notary struct {
	signed map[string]bool
	asked  []ocispec.Descriptor
}

func (n *notary) technology(_ *oci.Repository, t oci.Trust) (oci.Verifier, error) {
	if key := string(t.Keys.Data["key.pub"]); key != "good" && key != "better" {
		return nil, fmt.Errorf("secret %s: key.pub: no key", t.Keys.Name)
	}
	return n, nil
}

func (n *notary) Verify(_ context.Context, d ocispec.Descriptor) (source.Verification, error) {
	n.asked = append(n.asked, d)
	if !n.signed[d.Digest.String()] {
		return source.Verification{}, fmt.Errorf("%w: no signature", source.ErrVerification)
	}
	return source.Verification{Mode: "notation", Signer: "ann"}, nil
}

// TestRegistryVerification verifies and fetches by one digest, though the tag moves on in between.
func TestRegistryVerification(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	b, pushed := newRegistry(t, g, "1.0.0", "2.0.0")
	n := &notary{signed: map[string]bool{pushed["1.0.0"].Digest.String(): true}}
	b.s.technologies["notation"] = n.technology
	secrets := b.s.env.Secrets.(sourcetest.Secrets)
	secrets["default/keys"] = source.Secret{Data: map[string][]byte{"key.pub": []byte("good")}}
	trust := &source.OCIRepositoryVerification{Provider: "notation", SecretRef: ref("keys")}
	u := b.open()
	o, err := u.find(t.Context(), "app", "1.0.0")
	if err != nil {
		t.Fatal(err)
	}
	g.Push("team/app", "1.0.0", chartImage(testenv.ChartArchive(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 1.0.0\n", "app/evil": ""})))
	v, err := u.verify(t.Context(), o, trust)
	if err != nil || v.Signer != "ann" || v.Message == "" || len(n.asked) != 1 || n.asked[0].Digest != pushed["1.0.0"].Digest {
		t.Error(v, err, n.asked)
	}
	a, err := u.fetch(t.Context(), o)
	if err != nil || !bytes.Equal(b.drain(a), archive(t, "app", "1.0.0")) {
		t.Error(err)
	}
	if v, err := u.verify(t.Context(), o, nil); err != nil || v != (source.Verification{}) {
		t.Error(v, err)
	}
	if o, err = u.find(t.Context(), "app", "2.0.0"); err != nil {
		t.Fatal(err)
	}
	_, err = u.verify(t.Context(), o, trust)
	b.fails(err, source.StepVerify, "ChartVerificationError", false, "chart app 2.0.0: verification failed: no signature")

	before, err := u.trusts(t.Context(), trust)
	if again, _ := u.trusts(t.Context(), trust); err != nil || before == "" || before != again {
		t.Error(before, again, err)
	}
	secrets["default/keys"].Data["key.pub"] = []byte("better")
	if after, err := u.trusts(t.Context(), trust); err != nil || after == before {
		t.Error(after, err)
	}
	if print, err := u.trusts(t.Context(), nil); err != nil || print != "" {
		t.Error(print, err)
	}
	for says, trust := range map[string]*source.OCIRepositoryVerification{
		`spec.verify.provider "cosign": this program verifies with notation`: {SecretRef: ref("keys")},
		"spec.verify.secretRef: secret default/missing":                      {Provider: "notation", SecretRef: ref("missing")},
	} {
		_, err := u.trusts(t.Context(), trust)
		b.fails(err, source.StepVerify, "VerificationError", trust.Provider == "", says)
		_, err = u.verify(t.Context(), o, trust)
		b.fails(err, source.StepVerify, "VerificationError", trust.Provider == "", says)
	}
}

// TestMixedProvenance takes the provenance file from the registry that an index leads to.
func TestMixedProvenance(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann := newKey(t, now, 0)
	data := archive(t, "app", "1.0.0")
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	c := testenv.StartCharts(t, testenv.ChartsConfig{})
	c.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: data, URLs: []string{g.URL("team/app:1.0.0")}})
	b := newBench(t, c.URL(), c)
	b.s.env.Sources = objects{namedRepository("team", g.URL("team"), "")}
	b.repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: *ref("ring")}
	b.s.env.Secrets.(sourcetest.Secrets)["default/ring"] = source.Secret{Data: map[string][]byte{"ann": public(t, ann, true)}}
	good := signText(t, ann, now, statement("app", "1.0.0", data))
	for says, layers := range map[string][]testenv.Blob{
		"":                            {{MediaType: provType, Data: good}},
		"there is no provenance file": nil,
		"about chart \"other\"":       {{MediaType: provType, Data: signText(t, ann, now, statement("other", "1.0.0", data))}},
	} {
		g.Push("team/app", "1.0.0", chartImage(data, layers...))
		u := b.open()
		o, err := u.find(t.Context(), "app", "*")
		if err != nil {
			t.Fatal(err)
		}
		_, err = u.verify(t.Context(), o, nil)
		if says != "" {
			b.fails(err, source.StepVerify, "ChartVerificationError", false, says)
		} else if err != nil {
			t.Error(err)
		}
	}
}
