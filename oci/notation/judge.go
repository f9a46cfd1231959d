package notation

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-go"
	notationverifier "github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// A judge verifies envelopes by one statement of a trust policy.
type judge struct {
	statement
	verifier  notation.Verifier
	inquirers map[trustpolicy.ValidationType]*inquirer // by the check that asks
}

// judge returns the judge of a statement. It asks about revocation with web.
func (t *trust) judge(s statement, web *http.Client) (*judge, error) {
	signers, stamps, err := inquirers(t, web)
	if err != nil {
		return nil, err
	}
	v, err := notationverifier.NewWithOptions(t.policy, t, nil, notationverifier.VerifierOptions{
		RevocationCodeSigningValidator: signers, RevocationTimestampingValidator: stamps,
	})
	if err != nil {
		return nil, fmt.Errorf("secret %s: %s: %w", t.secret, policyKey, err)
	}
	return &judge{s, v, map[trustpolicy.ValidationType]*inquirer{
		trustpolicy.TypeRevocation: signers, trustpolicy.TypeAuthenticTimestamp: stamps,
	}}, nil
}

// verify verifies an envelope for subject. Errors are refusals, unless only the
// answer about revocation is missing.
func (j *judge) verify(ctx context.Context, subject ocispec.Descriptor, envelope []byte, mediaType string) (source.Verification, error) {
	if err := checkEnvelope(envelope, mediaType); err != nil {
		return source.Verification{}, err
	}
	for _, q := range j.inquirers {
		q.cause = "" // what was found of another signature
	}
	outcome, err := j.verifier.Verify(ctx, subject, envelope, notation.VerifierVerifyOptions{
		ArtifactReference: reference(j.repository), SignatureMediaType: mediaType,
	})
	if err != nil {
		return source.Verification{}, j.why(outcome, subject, err)
	}
	for _, a := range outcome.EnvelopeContent.SignerInfo.SignedAttributes.ExtendedAttributes {
		if a.Critical {
			return source.Verification{}, attempt.Refuse("its critical attribute %.80q is not known", fmt.Sprint(a.Key))
		}
	}
	return j.verified(outcome, subject), nil
}

// why says which check refused a signature.
func (j *judge) why(outcome *notation.VerificationOutcome, subject ocispec.Descriptor, err error) error {
	if outcome == nil {
		return attempt.Refuse("%w", err)
	}
	for _, r := range outcome.VerificationResults {
		switch {
		case r.Error == nil || r.Action != trustpolicy.ActionEnforce:
		case j.unanswered(r) != "": // it may hold, once there is an answer
			return fmt.Errorf("%s: %s", r.Type, j.text(r))
		default:
			return attempt.Refuse("%s: %s", r.Type, j.text(r))
		}
	}
	content := outcome.EnvelopeContent
	if content == nil {
		return attempt.Refuse("%w", err)
	}
	if plugin, err := content.SignerInfo.ExtendedAttribute(notationverifier.HeaderVerificationPlugin); err == nil {
		return attempt.Refuse("it asks for the verification plugin %.80q, and plugins are not run", fmt.Sprint(plugin.Value))
	}
	if signed := target(content); signed.Digest != subject.Digest {
		return attempt.Refuse("integrity: it is the signature of %.80q", signed.Digest)
	} else if signed.Size != subject.Size || signed.MediaType != subject.MediaType {
		return attempt.Refuse("integrity: it is the signature of %d bytes of type %.80q, not of %d bytes of type %.80q", signed.Size, signed.MediaType, subject.Size, subject.MediaType)
	}
	return attempt.Refuse("%w", err)
}

// target returns what an envelope signs.
func target(content *signature.EnvelopeContent) ocispec.Descriptor {
	var payload struct {
		Target ocispec.Descriptor `json:"targetArtifact"`
	}
	_ = json.Unmarshal(content.Payload.Content, &payload) // what cannot be read is no digest
	return payload.Target
}

// text says what a check found.
func (j *judge) text(r *notation.ValidationResult) string {
	text := r.Error.Error()
	if cause := j.unanswered(r); cause != "" {
		text += ": " + cause
	}
	return attempt.Clip(text)
}

// unanswered returns why revocation is not known, "" when r is not about that.
func (j *judge) unanswered(r *notation.ValidationResult) string {
	if q := j.inquirers[r.Type]; q != nil {
		return q.cause
	}
	return ""
}

// verified describes an envelope that holds as far as the level enforces it.
func (j *judge) verified(outcome *notation.VerificationOutcome, subject ocispec.Descriptor) source.Verification {
	v := source.Verification{Mode: mode, Level: j.level.Name, Ignored: !j.enforces(trustpolicy.TypeAuthenticity)}
	signer, authentic := "", true
	if chain := outcome.EnvelopeContent.SignerInfo.CertificateChain; len(chain) > 0 {
		signer = attempt.Clip(chain[0].Subject.String())
	}
	var failed []string
	for _, r := range outcome.VerificationResults {
		if r.Error == nil {
			continue
		}
		authentic = authentic && r.Type != trustpolicy.TypeAuthenticity
		failed = append(failed, fmt.Sprintf("%s: %s", r.Type, j.text(r)))
	}
	if authentic {
		v.Signer = signer
		v.Message = fmt.Sprintf("verified signature of '%s' by '%s' at level %s", subject.Digest, signer, j.level.Name)
	} else {
		v.Ignored = true
		v.Message = fmt.Sprintf("nobody trusted vouches for the signature of '%s' at level %s", subject.Digest, j.level.Name)
	}
	if checks := j.lenient(); checks != "" {
		v.Message += ", which does not enforce " + checks
	}
	if len(failed) > 0 {
		v.Message += "; " + strings.Join(failed, "; ")
	}
	return v
}
