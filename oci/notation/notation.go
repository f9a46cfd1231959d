package notation

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// maxSignatures bounds how many signatures of one subject are tried.
const maxSignatures = 32

// verifier implements [oci.Verifier].
type verifier struct {
	repo  *oci.Repository
	trust *trust
}

// New is the [oci.Technology] of the Notary Project.
func New(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
	switch {
	case t.Root.Name != "":
		return nil, fmt.Errorf("%w: spec.verify.trustedRootSecretRef is for provider cosign: remove it", source.ErrInvalid)
	case len(t.Identities) > 0:
		return nil, fmt.Errorf("%w: spec.verify.matchOIDCIdentity is for provider cosign: state trustedIdentities in %s", source.ErrInvalid, policyKey)
	case t.Keys.Name == "":
		return nil, fmt.Errorf("%w: spec.verify.secretRef is missing: provider notation needs a Secret with %s and certificates", source.ErrInvalid, policyKey)
	}
	trust, err := readTrust(t.Keys)
	if err != nil {
		return nil, fmt.Errorf("spec.verify.secretRef: %w", err)
	}
	return &verifier{r, trust}, nil
}

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] when
// no statement of the trust policy is for the repository, when there is no
// signature, and when none of them holds. They do not when a signature that
// might hold could not be read, or revocation could not be asked about.
func (v *verifier) Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error) {
	name := v.repo.Name()
	statement, err := v.trust.statement(name)
	if err != nil {
		return source.Verification{}, fmt.Errorf("%w: %w", source.ErrVerification, err)
	}
	if statement.skips() {
		return statement.skipped(), nil
	}
	judge, err := v.trust.judge(statement, v.repo.Web())
	if err != nil {
		return source.Verification{}, err
	}
	t := attempt.Tally{Subject: name + "@" + subject.Digest.String(), Unsigned: "has no signature: sign it with notation sign"}
	tried := 0
	for d, err := range v.repo.Referrers(ctx, subject, artifactType) {
		if err != nil {
			return source.Verification{}, fmt.Errorf("list signatures of %s@%s: %w", name, subject.Digest, err)
		}
		if tried == maxSignatures {
			t.Untried = fmt.Sprintf("it has more than %d signatures, of which the first %d were tried: delete those that do not count", maxSignatures, maxSignatures)
			break
		}
		tried++
		found, err := v.try(ctx, judge, d, subject)
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil { // what was found out without an answer says nothing
			return source.Verification{}, fmt.Errorf("verify signatures of %s@%s: %w", name, subject.Digest, context.Cause(ctx))
		}
		t.Add("signature "+d.Digest.String(), err)
	}
	return source.Verification{}, t.Err()
}

// try verifies the signature in the manifest d.
func (v *verifier) try(ctx context.Context, j *judge, d, subject ocispec.Descriptor) (source.Verification, error) {
	envelope, mediaType, err := readSignature(ctx, v.repo, d)
	if err != nil {
		return source.Verification{}, err
	}
	return j.verify(ctx, subject, envelope, mediaType)
}
