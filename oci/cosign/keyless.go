package cosign

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/fulcio/certificate"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// identities are those whose keyless signatures are trusted. They implement [judge].
type identities struct {
	policy []verify.PolicyOption
	given  root.TrustedMaterial // the trusted root of a Secret; nil: the one that shared has
	shared *roots
	web    *http.Client
	used   *root.TrustedRoot // what this verification has of shared
}

// root returns what certificates, logs and timestamps are judged by.
func (ids *identities) root(ctx context.Context) (material root.TrustedMaterial, err error) {
	if ids.given != nil {
		return ids.given, nil
	}
	if ids.used == nil {
		ids.used, err = ids.shared.current(ctx, ids.web)
	}
	return ids.used, err
}

// renew implements [judge].
func (ids *identities) renew(ctx context.Context) bool {
	before := ids.used
	if before == nil {
		return false
	}
	ids.used = ids.shared.newer(ctx, ids.web, before)
	return ids.used != before
}

// identitiesOf reads spec.verify.matchOIDCIdentity and the trusted root.
func identitiesOf(t oci.Trust, shared *roots, r *oci.Repository) (func() judge, error) {
	const field = "spec.verify.matchOIDCIdentity"
	if len(t.Identities) == 0 {
		return nil, fmt.Errorf("%s: %w: nothing says whose signatures count: name issuer and subject there, or a Secret with public keys in spec.verify.secretRef; "+
			"to accept those of anybody, write the pattern .* for both", field, source.ErrInvalid)
	}
	var policy []verify.PolicyOption
	for i, m := range t.Identities {
		if m.Issuer == "" || m.Subject == "" {
			return nil, fmt.Errorf("%s[%d]: %w: issuer and subject are both required, the pattern .* matches any", field, i, source.ErrInvalid)
		}
		id, err := verify.NewShortCertificateIdentity("", m.Issuer, "", m.Subject)
		if err != nil {
			return nil, fmt.Errorf("%s[%d]: %w: %w", field, i, source.ErrInvalid, err)
		}
		policy = append(policy, verify.WithCertificateIdentity(id))
	}
	if t.Root.Name == "" {
		return func() judge { return &identities{policy: policy, shared: shared, web: r.Web()} }, nil
	}
	given, err := givenRoot(t.Root)
	return func() judge { return &identities{policy: policy, given: given} }, err
}

const rootEntry = "trusted_root.json"

// givenRoot reads the trusted root in s.
func givenRoot(s transport.Secret) (root.TrustedMaterial, error) {
	const field = "spec.verify.trustedRootSecretRef"
	data, ok := s.Data[rootEntry]
	if !ok {
		return nil, fmt.Errorf("%s: secret %s has no entry %s", field, s.Name, rootEntry)
	}
	if len(data) > maxRoot {
		return nil, fmt.Errorf("%s: secret %s: entry %s has %d bytes, more than the limit of %d", field, s.Name, rootEntry, len(data), maxRoot)
	}
	material, err := root.NewTrustedRootFromJSON(data)
	if err == nil {
		err = lightRoot(material)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: secret %s: entry %s: %w", field, s.Name, rootEntry, err)
	}
	return material, nil
}

// demands are what a keyless signature must come with.
var demands = []verify.VerifierOption{
	verify.WithSignedCertificateTimestamps(1),
	verify.WithTransparencyLog(1),
	verify.WithObserverTimestamps(1),
	verify.WithoutStatementPredicate(),
}

// signer implements [judge].
func (ids *identities) signer(ctx context.Context, s *signature, subject ocispec.Descriptor) (string, error) {
	if !s.keyless {
		return "", attempt.Refuse("it was made with a key, not with a certificate: spec.verify.secretRef can name a Secret with the public key")
	}
	material, err := ids.root(ctx)
	if err != nil {
		return "", err
	}
	v, err := verify.NewVerifier(material, demands...)
	if err != nil {
		return "", err
	}
	entity, err := s.entity()
	if err != nil {
		return "", attempt.Refuse("%w", err)
	}
	result, err := v.Verify(entity, verify.NewPolicy(s.policy(), ids.policy...))
	if err != nil {
		return "", attempt.Refuse("%w", explain(err, entity))
	}
	return name(*result.Signature.Certificate), nil
}

// name returns the identity in a certificate.
func name(c certificate.Summary) string {
	return fmt.Sprintf("%.200s (%.200s)", c.SubjectAlternativeName, c.Issuer)
}

// claimed returns the identity in the certificate of a signature.
func claimed(entity verify.SignedEntity) string {
	content, err := entity.VerificationContent()
	if err != nil || content.Certificate() == nil {
		return "somebody"
	}
	c, err := certificate.SummarizeCertificate(content.Certificate())
	if err != nil {
		return "somebody"
	}
	return name(c)
}

// means says in our words what sigstore-go says when a signature does not hold.
var means = []struct{ says, text string }{
	{"not enough verified log entries", "it comes with no entry of a trusted log"},
	{"integrated time outside certificate validity", "it was logged when its certificate was not valid yet, or no longer"},
	{"threshold not met for verified signed", "neither a trusted log nor a trusted timestamp authority says when it was made"},
	{"leaf certificate verification failed", "its certificate is not of a trusted authority, or was not valid when the signature was made"},
	{"unable to meet threshold", "its certificate is in no trusted certificate transparency log"},
	{"digest does not match any digest in statement", "it is the signature of something else"},
}

// explain returns what err says of a signature.
func explain(err error, entity verify.SignedEntity) error {
	var stranger *verify.ErrNoMatchingCertificateIdentity
	if errors.As(err, &stranger) {
		return fmt.Errorf("it is by %s, whom no entry of spec.verify.matchOIDCIdentity matches", claimed(entity))
	}
	text := err.Error()
	for _, m := range means {
		if strings.Contains(text, m.says) {
			return errors.New(m.text)
		}
	}
	return errors.New(strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "failed to ", "cannot "))
}
