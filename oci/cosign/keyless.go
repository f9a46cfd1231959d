package cosign

import (
	"context"
	"errors"
	"fmt"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// readIdentities reads spec.verify.matchOIDCIdentity and the trusted root.
func (v *verifier) readIdentities(t oci.Trust) error {
	const field = "spec.verify.matchOIDCIdentity"
	if len(t.Identities) == 0 {
		return fmt.Errorf("%s: %w: nothing says whose signatures count: name issuer and subject there, or a Secret with public keys in spec.verify.secretRef; "+
			"to accept those of anybody, write the pattern .* for both", field, source.ErrInvalid)
	}
	for i, m := range t.Identities {
		if m.Issuer == "" || m.Subject == "" {
			return fmt.Errorf("%s[%d]: %w: issuer and subject are both required, the pattern .* matches any", field, i, source.ErrInvalid)
		}
		id, err := verify.NewShortCertificateIdentity("", m.Issuer, "", m.Subject)
		if err != nil {
			return fmt.Errorf("%s[%d]: %w: %w", field, i, source.ErrInvalid, err)
		}
		v.identities = append(v.identities, verify.WithCertificateIdentity(id))
	}
	if t.Root.Name == "" {
		return nil
	}
	material, err := readSecretRoot(t.Root)
	if err == nil {
		v.secretJudge, err = v.judge(material)
	}
	return err
}

// keyless returns the signer of the first signature of subject that is valid with the shared
// trusted root. If none is valid, it tries again if there is a newer root.
func (v *verifier) keyless(ctx context.Context, subject ocispec.Descriptor) (signer string, err error) {
	for used := (*root.TrustedRoot)(nil); ; {
		material, failed := v.sharedRoots.current(ctx, v.repo.Web(), used)
		if failed == nil && material == used {
			return "", err
		}
		if failed != nil {
			return "", failed
		}
		used = material
		judge, failed := v.judge(material)
		if failed != nil {
			return "", failed
		}
		if signer, err = v.attempt(ctx, judge, subject); !errors.Is(err, source.ErrVerification) {
			return signer, err
		}
	}
}

const rootEntry = "trusted_root.json"

// readSecretRoot reads the trusted root in s.
func readSecretRoot(s oci.Secret) (*root.TrustedRoot, error) {
	const field = "spec.verify.trustedRootSecretRef"
	data, ok := s.Data[rootEntry]
	if !ok {
		return nil, fmt.Errorf("%s: secret %s has no entry %s", field, s.Name, rootEntry)
	}
	material, err := readRoot(data)
	if err != nil {
		return nil, fmt.Errorf("%s: secret %s: entry %s: %w", field, s.Name, rootEntry, err)
	}
	return material, nil
}

// verifierOptions are the requirements for a keyless signature.
var verifierOptions = []verify.VerifierOption{
	verify.WithSignedCertificateTimestamps(1),
	verify.WithTransparencyLog(1),
	verify.WithObserverTimestamps(1),
	verify.WithoutStatementPredicate(),
}

// judge returns the judge that trusts v.identities and the authorities and logs of material.
func (v *verifier) judge(material root.TrustedMaterial) (judge, error) {
	by, err := verify.NewVerifier(material, verifierOptions...)
	if err != nil {
		return nil, err
	}
	return func(s *signature) (string, error) {
		if !s.keyless {
			return "", attempt.Refuse("it was made with a key, not with a certificate: spec.verify.secretRef can name a Secret with the public key")
		}
		entity, err := s.entity()
		if err != nil {
			return "", attempt.Refuse("%w", err)
		}
		result, err := by.Verify(entity, verify.NewPolicy(s.policy, v.identities...))
		if err != nil {
			return "", attempt.Refuse("%w", explain(err, entity))
		}
		return identityOf(*result.Signature.Certificate), nil
	}, nil
}

// identityOf returns the identity in a certificate.
func identityOf(c certificate.Summary) string {
	return fmt.Sprintf("%.200s (%.200s)", c.SubjectAlternativeName, c.Issuer)
}

// claimedIdentity returns the identity in the certificate of a signature, which need not be trusted.
func claimedIdentity(entity verify.SignedEntity) string {
	content, err := entity.VerificationContent()
	if err != nil || content.Certificate() == nil {
		return "an unknown identity"
	}
	c, err := certificate.SummarizeCertificate(content.Certificate())
	if err != nil {
		return "an unknown identity"
	}
	return identityOf(c)
}

// errorTexts maps parts of sigstore-go's error texts to our texts.
var errorTexts = []struct{ says, text string }{
	{"not enough verified log entries", "it comes with no entry of a trusted log"},
	{"integrated time outside certificate validity", "it was logged when its certificate was not valid yet, or no longer"},
	{"threshold not met for verified signed", "neither a trusted log nor a trusted timestamp authority says when it was made"},
	{"leaf certificate verification failed", "its certificate is not of a trusted authority, or was not valid when the signature was made"},
	{"unable to meet threshold", "its certificate is in no trusted certificate transparency log"},
	{"digest does not match any digest in statement", "it is the signature of something else"},
}

// explain rewrites an error of sigstore-go about a signature for messages.
func explain(err error, entity verify.SignedEntity) error {
	var stranger *verify.ErrNoMatchingCertificateIdentity
	if errors.As(err, &stranger) {
		return fmt.Errorf("it is by %s, which matches no entry of spec.verify.matchOIDCIdentity", claimedIdentity(entity))
	}
	text := err.Error()
	for _, m := range errorTexts {
		if strings.Contains(text, m.says) {
			return errors.New(m.text)
		}
	}
	return errors.New(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "failed to ", "cannot "))
}
