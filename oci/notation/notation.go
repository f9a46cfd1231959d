package notation

import (
	"context"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	"github.com/notaryproject/notation-go"
	notationverifier "github.com/notaryproject/notation-go/verifier"
	"github.com/notaryproject/notation-go/verifier/trustpolicy"
	"github.com/notaryproject/tspclient-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	gocose "github.com/veraison/go-cose"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// mode is the mode of every [source.Verification] of this package.
const mode = "notation"

// maxSignatures is the maximum number of signatures of one subject that are checked.
const maxSignatures = 32

// verifier implements [oci.Verifier].
type verifier struct {
	repo  *oci.Repository
	trust *trust
}

// New returns a verifier of Notary Project signatures. It is an [oci.Technology].
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

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] if
// no statement of the trust policy applies to the repository, or if there is no valid
// signature. They do not if a signature that may be valid could not be read, or if its
// revocation status is unknown.
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
	t := attempt.Failures{Subject: name + "@" + subject.Digest.String(), Unsigned: "has no signature: sign it with notation sign"}
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
		if ctx.Err() != nil { // then err is not about the signature
			return source.Verification{}, fmt.Errorf("verify signatures of %s@%s: %w", name, subject.Digest, context.Cause(ctx))
		}
		t.Add("signature "+d.Digest.String(), err)
	}
	return source.Verification{}, t.Err()
}

// artifactType is the artifact type of signature manifests.
const artifactType = "application/vnd.cncf.notary.signature"

// maxSignature is the maximum size of a signature's manifest, and of its envelope, in bytes.
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
		Blobs  []ocispec.Descriptor `json:"blobs"` // in artifact manifests of a draft of the specification
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

// A judge verifies envelopes by one statement of a trust policy.
type judge struct {
	statement
	verifier   notation.Verifier
	revocation map[trustpolicy.ValidationType]*revocationChecker // by the check that uses it
}

// judge returns the judge of a statement. It uses web to check revocation.
func (t *trust) judge(s statement, web *http.Client) (*judge, error) {
	signers, stamps, err := revocationCheckers(t, web)
	if err != nil {
		return nil, err
	}
	v, err := notationverifier.NewWithOptions(t.policy, t, nil, notationverifier.VerifierOptions{
		RevocationCodeSigningValidator: signers, RevocationTimestampingValidator: stamps,
	})
	if err != nil {
		return nil, fmt.Errorf("secret %s: %s: %w", t.secret, policyKey, err)
	}
	return &judge{s, v, map[trustpolicy.ValidationType]*revocationChecker{
		trustpolicy.TypeRevocation: signers, trustpolicy.TypeAuthenticTimestamp: stamps,
	}}, nil
}

// verify verifies an envelope for subject. Errors are refusals, unless only the
// revocation status is unknown.
func (j *judge) verify(ctx context.Context, subject ocispec.Descriptor, envelope []byte, mediaType string) (source.Verification, error) {
	if err := checkEnvelope(envelope, mediaType); err != nil {
		return source.Verification{}, err
	}
	for _, q := range j.revocation {
		q.cause = "" // clear the result of the previous signature
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

// why returns the error of the check that refused a signature.
func (j *judge) why(outcome *notation.VerificationOutcome, subject ocispec.Descriptor, err error) error {
	if outcome == nil {
		return attempt.Refuse("%w", err)
	}
	for _, r := range outcome.VerificationResults {
		switch {
		case r.Error == nil || r.Action != trustpolicy.ActionEnforce:
		case j.revocationUnknown(r) != "": // the signature may be valid
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

// target returns the descriptor that an envelope signs, or a zero one if it cannot be decoded.
func target(content *signature.EnvelopeContent) ocispec.Descriptor {
	var payload struct {
		Target ocispec.Descriptor `json:"targetArtifact"`
	}
	_ = json.Unmarshal(content.Payload.Content, &payload) // on error the digest is ""
	return payload.Target
}

// text returns the error of a check as text.
func (j *judge) text(r *notation.ValidationResult) string {
	text := r.Error.Error()
	if cause := j.revocationUnknown(r); cause != "" {
		text += ": " + cause
	}
	return attempt.Clip(text)
}

// revocationUnknown returns why the revocation status is unknown; it returns "" if it is known or r
// is about another check.
func (j *judge) revocationUnknown(r *notation.ValidationResult) string {
	if q := j.revocation[r.Type]; q != nil {
		return q.cause
	}
	return ""
}

// verified returns the result for an envelope that passed all checks that the level enforces.
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
		v.Message = fmt.Sprintf("no trusted identity vouches for the signature of '%s' at level %s", subject.Digest, j.level.Name)
	}
	if checks := j.unenforced(); checks != "" {
		v.Message += ", which does not enforce " + checks
	}
	if len(failed) > 0 {
		v.Message += "; " + strings.Join(failed, "; ")
	}
	return v
}

// Limits of the certificates in an envelope, and in its timestamp. Any user who
// may push to the registry chooses them, and the libraries use their keys before they
// check whether the certificates are trusted.
const (
	maxChain   = 16
	maxKeyBits = 8192 // of an RSA key; run time is quadratic in the length
)

const timestampHeader = "io.cncf.notary.timestampSignature"

// unsignedAttributes has the unsigned attributes of an envelope.
type unsignedAttributes struct {
	chain     [][]byte // certificates, DER
	timestamp []byte   // RFC 3161
}

// formats maps the media types of supported envelopes to their decoders.
var formats = map[string]func([]byte) (unsignedAttributes, error){
	jws.MediaTypeEnvelope:  decodeJWS,
	cose.MediaTypeEnvelope: decodeCOSE,
}

// checkEnvelope refuses an envelope that would take too long to verify.
func checkEnvelope(envelope []byte, mediaType string) error {
	decode, known := formats[mediaType]
	if !known {
		return attempt.Refuse("its envelope is of type %.80q: want %s or %s", mediaType, jws.MediaTypeEnvelope, cose.MediaTypeEnvelope)
	}
	u, err := decode(envelope)
	if err != nil {
		return attempt.Refuse("integrity: its envelope cannot be parsed: %w", err)
	}
	if len(u.chain) > maxChain { // before they are parsed
		return attempt.Refuse("its chain has %d certificates, at most %d are allowed", len(u.chain), maxChain)
	}
	chain := make([]*x509.Certificate, len(u.chain))
	for i, der := range u.chain {
		if chain[i], err = x509.ParseCertificate(der); err != nil {
			return attempt.Refuse("integrity: its certificate %d cannot be parsed: %w", i+1, err)
		}
	}
	if err := checkKeys(chain); err != nil || len(u.timestamp) == 0 {
		return err
	}
	token, err := tspclient.ParseSignedToken(u.timestamp)
	if err != nil {
		return nil // the verifier detects the invalid timestamp if it needs one
	}
	if len(token.SignerInfos) > maxChain {
		return attempt.Refuse("its timestamp has %d signers, at most %d are allowed", len(token.SignerInfos), maxChain)
	}
	return checkKeys(token.Certificates)
}

// checkKeys checks the number of certificates and the size of their keys.
func checkKeys(certs []*x509.Certificate) error {
	if len(certs) > maxChain {
		return attempt.Refuse("its timestamp has %d certificates, at most %d are allowed", len(certs), maxChain)
	}
	for _, c := range certs {
		if bits := keyBits(c); bits > maxKeyBits {
			return attempt.Refuse("the key of %.80q in it has %d bits, at most %d are allowed", c.Subject, bits, maxKeyBits)
		}
	}
	return nil
}

// keyBits returns the length of an RSA key in bits, or 0 for other keys.
func keyBits(c *x509.Certificate) int {
	if key, ok := c.PublicKey.(*rsa.PublicKey); ok {
		return key.N.BitLen()
	}
	return 0
}

func decodeJWS(envelope []byte) (unsignedAttributes, error) {
	var e struct {
		Header struct {
			Chain     [][]byte `json:"x5c"`
			Timestamp []byte   `json:"io.cncf.notary.timestampSignature"`
		} `json:"header"`
	}
	err := json.Unmarshal(envelope, &e)
	return unsignedAttributes{e.Header.Chain, e.Header.Timestamp}, err
}

func decodeCOSE(envelope []byte) (unsignedAttributes, error) {
	var m gocose.Sign1Message
	if err := m.UnmarshalCBOR(envelope); err != nil {
		return unsignedAttributes{}, err
	}
	var u unsignedAttributes
	chain, _ := m.Headers.Unprotected[gocose.HeaderLabelX5Chain].([]any)
	for _, c := range chain {
		der, _ := c.([]byte)
		u.chain = append(u.chain, der)
	}
	u.timestamp, _ = m.Headers.Unprotected[timestampHeader].([]byte)
	return u, nil
}
