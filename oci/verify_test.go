package oci_test

import (
	"context"
	"fmt"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// A listTechnology is a technology whose signatures are a list of digests. The key that
// it believes in is "good".
type listTechnology struct {
	signed map[string]bool // by digest
	level  string
	trusts []oci.Trust // that it was given
	asked  []ocispec.Descriptor
}

func (n *listTechnology) technology(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
	n.trusts = append(n.trusts, t)
	if key := string(t.Keys.Data["key.pub"]); key != "good" && key != "better" {
		return nil, fmt.Errorf("secret %s: key.pub: no key", t.Keys.Name)
	}
	return n, nil
}

func (n *listTechnology) Verify(ctx context.Context, d ocispec.Descriptor) (source.Verification, error) {
	n.asked = append(n.asked, d)
	switch {
	case n.level == "stall":
		<-ctx.Done()
		return source.Verification{}, ctx.Err()
	case n.level == "nothing":
		return source.Verification{}, nil
	case n.level == "audit":
		return source.Verification{Mode: "notation", Level: n.level, Ignored: true}, nil
	case !n.signed[d.Digest.String()]:
		return source.Verification{}, fmt.Errorf("%w: no signature", source.ErrVerification)
	}
	return source.Verification{Mode: "notation", Signer: "ann"}, nil
}

// withSignature returns a setup with a signed artifact, and an object that asks for its verification.
func withSignature(t *testing.T) (*setup, *listTechnology, *source.OCIRepository) {
	r := newSetup(t, testenv.RegistryConfig{})
	d := r.g.Push("team/app", "latest", files(t, "a", "one"))
	n := &listTechnology{signed: map[string]bool{d.Digest.String(): true}}
	r.verify = map[string]oci.Technology{"notation": n.technology}
	r.secrets["default/keys"] = source.Secret{Data: map[string][]byte{"key.pub": []byte("good")}}
	return r, n, r.object("app", func(s *source.OCIRepositorySpec) {
		s.Verify = &source.OCIRepositoryVerification{Provider: "notation", SecretRef: ref("keys")}
	})
}

func TestVerification(t *testing.T) {
	r, n, obj := withSignature(t)
	index := r.g.PushIndex("team/app", "latest", testenv.Index{Manifests: []ocispec.Descriptor{r.g.Push("team/app", "", files(t, "a", "two"))}})
	n.signed = map[string]bool{index.Digest.String(): true} // not what it leads to
	result := r.want(obj, source.Stored)
	if result.Verification.Signer != "ann" || len(n.asked) != 1 || n.asked[0].Digest != index.Digest || n.asked[0].Size != index.Size || n.asked[0].MediaType != index.MediaType {
		t.Errorf("%+v, asked for %+v", result.Verification, n.asked)
	}
	c := obj.Common().Condition(source.SourceVerifiedCondition)
	if c.Status != "True" || c.Reason != "Succeeded" || c.Message != "verified signature of revision latest@"+index.Digest.String() {
		t.Errorf("%+v", c)
	}
	r.want(obj, source.Unchanged)
	for _, change := range []func(){
		func() { r.secrets["default/keys"].Data["key.pub"] = []byte("better") },
		func() { r.secrets["default/keys"].Data["more.pub"] = []byte("good") },
		func() {
			r.secrets["default/root"] = source.Secret{}
			obj.Spec.Verify.TrustedRootSecretRef = ref("root")
		},
		func() { obj.Spec.Verify.MatchOIDCIdentity = []source.OIDCIdentityMatch{{Issuer: "a", Subject: "b"}} },
	} {
		change()
		r.want(obj, source.Stored)
		r.want(obj, source.Unchanged)
	}
	last := n.trusts[len(n.trusts)-1]
	if last.Keys.Name != "default/keys" || last.Root.Name != "default/root" || len(last.Identities) != 1 {
		t.Errorf("trust %+v", last)
	}
}

func TestVerificationLetsPass(t *testing.T) {
	r, n, obj := withSignature(t)
	n.level = "audit"
	r.want(obj, source.Stored)
	c := obj.Common().Condition(source.SourceVerifiedCondition)
	if c.Status != "Unknown" || c.Reason != "VerificationIgnored" || obj.Common().Condition(source.ReadyCondition).Status != "True" {
		t.Errorf("%+v", obj.Common().Conditions)
	}
	r.want(obj, source.Unchanged)
}

func TestUnverified(t *testing.T) {
	for name, row := range map[string]struct {
		change  func(*setup, *listTechnology, *source.OCIRepository)
		outcome source.Outcome
		says    string
	}{
		"unsigned":        {func(_ *setup, n *listTechnology, _ *source.OCIRepository) { clear(n.signed) }, source.Failed, "no signature"},
		"nothing checked": {func(_ *setup, n *listTechnology, _ *source.OCIRepository) { n.level = "nothing" }, source.Failed, "nothing to verify"},
		"stall": {func(r *setup, n *listTechnology, obj *source.OCIRepository) {
			n.level = "stall"
			r.Stalls = func() (int, bool) { return len(n.asked), true }
			hasty(&obj.Spec)
		}, source.Failed, "verify: not done within"},
		"no such Secret": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) { delete(r.secrets, "default/keys") }, source.Failed, "spec.verify.secretRef: secret default/keys"},
		"no such root": {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) {
			obj.Spec.Verify.TrustedRootSecretRef = ref("root")
		}, source.Failed, "spec.verify.trustedRootSecretRef: secret default/root"},
		"bad key": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) {
			r.secrets["default/keys"].Data["key.pub"] = []byte("worse")
		}, source.Failed, "no key"},
		"unknown technology":  {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) { obj.Spec.Verify.Provider = "gpg" }, source.Stalled, `spec.verify.provider "gpg": this program verifies with notation`},
		"the default":         {func(_ *setup, _ *listTechnology, obj *source.OCIRepository) { obj.Spec.Verify.Provider = "" }, source.Stalled, `spec.verify.provider "cosign"`},
		"no technology known": {func(r *setup, _ *listTechnology, _ *source.OCIRepository) { r.verify = map[string]oci.Technology{} }, source.Stalled, "this program verifies with none"},
	} {
		t.Run(name, func(t *testing.T) {
			r, n, obj := withSignature(t)
			row.change(r, n, obj)
			if result := r.refused(obj, nil, "VerificationError", row.says); result.Outcome != row.outcome {
				t.Errorf("outcome %s", result.Outcome)
			}
			if c := obj.Common().Condition(source.SourceVerifiedCondition); c.Status != "False" || c.Reason != "VerificationError" {
				t.Errorf("%+v", c)
			}
			if n := r.g.Count(testenv.GetBlob); n != 0 {
				t.Errorf("%d blobs were asked for", n)
			}
		})
	}
}

// opened returns what o is at now.
func opened(t *testing.T, o *oci.Origin) source.Content {
	t.Helper()
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c
}

// TestKeysChangeMeanwhile changes keys between Resolve and Verify: those of Resolve
// count, whose fingerprint the state has, and the next run verifies again.
func TestKeysChangeMeanwhile(t *testing.T) {
	r, n, obj := withSignature(t)
	o := r.origin(obj)
	_, state, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c := opened(t, o)
	r.secrets["default/keys"] = source.Secret{Data: map[string][]byte{"key.pub": []byte("better")}}
	if v, err := c.Verify(t.Context()); err != nil || v.Signer != "ann" || string(n.trusts[0].Keys.Data["key.pub"]) != "good" {
		t.Error(v, err)
	}
	if rev, _, err := o.Resolve(t.Context(), state); err != nil || !rev.Reverify {
		t.Error(rev, err)
	}
}
