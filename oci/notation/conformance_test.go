package notation_test

import (
	"context"
	"io/fs"
	"net/http"
	"testing"
	"testing/fstest"
	"time"

	"github.com/notaryproject/notation-core-go/signature/cose"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/notation"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

const unsigned sourcetest.Defect = "no signature"

// An upstream is a repository whose artifacts are signed, in a registry
// without the referrers API, for the conformance suite.
type upstream struct {
	t      *testing.T
	g      *testenv.Registry
	signer *identity
	tree   fstest.MapFS
	defect sourcetest.Defect
}

func (u *upstream) Publish(tree fstest.MapFS) error {
	u.tree = tree
	layer := testenv.TarGzip(u.t, tree)
	subject := u.g.Push(repository, "latest", testenv.Manifest{Layers: []testenv.Blob{layer}})
	u.g.PushIndex(repository, fallback(subject), testenv.Index{}) // whatever was attached before
	claimed := subject
	switch u.defect {
	case unsigned:
		return nil
	case sourcetest.Forged:
		claimed = u.g.Push(repository, "", testenv.Manifest{})
	}
	u.g.Push(repository, "", testenv.Manifest{ArtifactType: artifactType, Subject: &subject,
		Layers: []testenv.Blob{{MediaType: cose.MediaTypeEnvelope, Data: u.signer.sign(u.t, claimed, cose.MediaTypeEnvelope, nil)}}})
	return nil
}

// fallback is the tag that stands in for the referrers of subject.
func fallback(subject ocispec.Descriptor) string {
	return subject.Digest.Algorithm().String() + "-" + subject.Digest.Encoded()
}

func (u *upstream) Break(d sourcetest.Defect) <-chan struct{} {
	u.defect = d
	if u.tree != nil {
		u.Publish(u.tree)
	}
	return u.g.Break(map[sourcetest.Defect]*testenv.Defect{
		sourcetest.Gone:       {Status: http.StatusNotFound},
		sourcetest.StallFetch: {Phase: testenv.GetBlob, Do: testenv.Stall, After: 20},
	}[d])
}

func (u *upstream) Object() source.Object {
	r := &source.OCIRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "OCIRepository", Metadata: source.Metadata{Name: "app", Namespace: "default"}},
		Spec:   source.OCIRepositorySpec{URL: u.g.URL(repository), Insecure: true, Interval: source.Duration(time.Hour), Timeout: source.Duration(time.Minute)},
	}
	switch u.defect {
	case sourcetest.Signed, sourcetest.Forged, unsigned:
		r.Spec.Verify = &source.OCIRepositoryVerification{Provider: "notation", SecretRef: &source.LocalReference{Name: "trust"}}
	}
	return r
}

func (u *upstream) Origin(obj source.Object) source.Origin {
	return oci.New(obj.(*source.OCIRepository), source.Env{Secrets: u}, map[string]oci.Technology{"notation": notation.New})
}

// Secret implements [source.Secrets].
func (u *upstream) Secret(_ context.Context, _, name string) (source.Secret, error) {
	if name != "trust" {
		return source.Secret{}, fs.ErrNotExist
	}
	return secretOf(secret(u.signer.issuer.pem(), level("strict"))).Secret, nil
}

func (u *upstream) PullSecrets(context.Context, string, string) ([]source.Secret, error) {
	return nil, nil
}

func (u *upstream) Traffic() sourcetest.Traffic {
	return sourcetest.Traffic{Requests: u.g.Count(), Content: int64(u.g.Count(testenv.GetBlob))}
}

func (u *upstream) Secrets() []string { return nil }

func TestConformance(t *testing.T) {
	refused := func(d sourcetest.Defect, message string) sourcetest.Failure {
		return sourcetest.Failure{Defect: d, Outcome: source.Failed, Condition: "SourceVerified", Reason: "VerificationError", Message: message}
	}
	sourcetest.Run(t, sourcetest.Kind{
		Name: "OCIRepository",
		Open: func(sourcetest.TB) sourcetest.Upstream {
			signer := newSigner(t, authority(t, "team"), "signer", nil)
			return &upstream{t: t, g: testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true}), signer: signer}
		},
		Drift: func(obj source.Object) {
			ignore := "/nothing-of-that-name\n"
			obj.(*source.OCIRepository).Spec.Ignore = &ignore
		},
		Failures: []sourcetest.Failure{
			{Defect: sourcetest.Gone, Outcome: source.Failed, Condition: "FetchFailed", Reason: "OCIArtifactPullFailed", Message: "404"},
			refused(sourcetest.Forged, "integrity: it is the signature of"), refused(unsigned, "has no signature: sign it"),
		},
		Verifies:     true,
		Stalls:       []sourcetest.Defect{sourcetest.StallFetch},
		IgnoreFile:   ".sourceignore",
		IgnoreNested: true,
	})
}
