package notation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// maxSignatures bounds how many signatures of one subject are tried.
const maxSignatures = 32

// maxReasons bounds how many of them an error tells of.
const maxReasons = 3

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
	var t tally
	for d, err := range v.repo.Referrers(ctx, subject, artifactType) {
		if err != nil {
			return source.Verification{}, fmt.Errorf("list signatures of %s@%s: %w", name, subject.Digest, err)
		}
		if t.tried == maxSignatures {
			t.more = true
			break
		}
		t.tried++
		found, err := v.try(ctx, judge, d, subject)
		if err == nil {
			return found, nil
		}
		if ctx.Err() != nil { // what was found out without an answer says nothing
			return source.Verification{}, fmt.Errorf("verify signatures of %s@%s: %w", name, subject.Digest, context.Cause(ctx))
		}
		t.add(d, err)
	}
	return source.Verification{}, t.verdict(name + "@" + subject.Digest.String())
}

// try verifies the signature in the manifest d.
func (v *verifier) try(ctx context.Context, j *judge, d, subject ocispec.Descriptor) (source.Verification, error) {
	envelope, mediaType, err := readSignature(ctx, v.repo, d)
	if err != nil {
		return source.Verification{}, err
	}
	return j.verify(ctx, subject, envelope, mediaType)
}

// A tally counts the signatures that were tried.
type tally struct {
	tried   int
	more    bool // than were tried
	reasons []string
	unread  error // why a signature could not be read
}

// A refusal says why a signature does not count.
type refusal struct{ error }

// refuse returns a refusal.
func refuse(format string, args ...any) error { return refusal{fmt.Errorf(format, args...)} }

// add notes that the signature d does not hold.
func (t *tally) add(d ocispec.Descriptor, err error) {
	err = fmt.Errorf("signature %s: %w", d.Digest, err)
	var r refusal
	if !errors.As(err, &r) {
		t.unread = err
	}
	t.reasons = append(t.reasons, clip(err.Error()))
}

// verdict returns the error of a subject of which no signature holds.
func (t *tally) verdict(subject string) error {
	switch {
	case t.unread != nil:
		return fmt.Errorf("verify signatures of %s: %w", subject, t.unread)
	case t.tried == 0:
		return fmt.Errorf("%w: %s has no signature: sign it with notation sign", source.ErrVerification, subject)
	}
	texts := t.reasons[:min(len(t.reasons), maxReasons)]
	switch left := len(t.reasons) - maxReasons; {
	case t.more:
		texts = append(texts, fmt.Sprintf("it has more than %d signatures, of which the first %d were tried: delete those that do not count", maxSignatures, maxSignatures))
	case left > 0:
		texts = append(texts, fmt.Sprintf("and %d more do not hold", left))
	}
	return fmt.Errorf("%w: no signature of %s holds: %s", source.ErrVerification, subject, strings.Join(texts, "; "))
}
