package notation

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// mode is the mode of every [source.Verification] here.
const mode = "notation"

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
	if statement.level.Name == trustpolicy.LevelSkip.Name {
		return source.Verification{
			Mode: mode, Level: statement.level.Name, Ignored: true,
			Message: fmt.Sprintf("no signature was looked for: statement '%s' of the trust policy is at level skip", statement.name),
		}, nil
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
		envelope, mediaType, err := readSignature(ctx, v.repo, d)
		if err == nil {
			var found source.Verification
			if found, err = judge.verify(ctx, subject, envelope, mediaType); err == nil {
				return found, nil
			}
		}
		if ctx.Err() != nil { // what was found out without an answer says nothing
			return source.Verification{}, fmt.Errorf("verify signatures of %s@%s: %w", name, subject.Digest, context.Cause(ctx))
		}
		t.Add("signature "+d.Digest.String(), err)
	}
	return source.Verification{}, t.Err()
}

// artifactType is that of manifests of signatures.
const artifactType = "application/vnd.cncf.notary.signature"

// maxSignature bounds the manifest and the envelope of a signature, each.
const maxSignature = 256 << 10

// readSignature returns the envelope of the signature whose manifest is d, and its media type.
func readSignature(ctx context.Context, r *oci.Repository, d ocispec.Descriptor) ([]byte, string, error) {
	_, manifest, err := r.Manifest(ctx, d)
	if err != nil {
		return nil, "", attempt.Unreadable(fmt.Errorf("its manifest: %w", err))
	}
	if len(manifest) > maxSignature {
		return nil, "", attempt.Refuse("its manifest has %d bytes, at most %d are allowed", len(manifest), maxSignature)
	}
	var m struct {
		Layers []ocispec.Descriptor `json:"layers"`
		Blobs  []ocispec.Descriptor `json:"blobs"` // of the artifact manifests that the specification had for a while
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return nil, "", attempt.Refuse("its manifest: %w", err)
	}
	layers := append(m.Layers, m.Blobs...)
	if len(layers) != 1 {
		return nil, "", attempt.Refuse("its manifest has %d layers: want one, the envelope", len(layers))
	}
	envelope, err := attempt.Blob(ctx, r, layers[0], maxSignature)
	if err != nil {
		return nil, "", fmt.Errorf("its envelope: %w", err)
	}
	return envelope, layers[0].MediaType, nil
}
