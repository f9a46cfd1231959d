// Package cosign verifies signatures that cosign made, as an [oci.Technology]
// (specification, "OCIRepositoryVerification"; reference A11).
//
// # Trusted signers
//
// With spec.verify.secretRef, a signature is trusted if it was made with any of the
// keys in the entries of the Secret whose name ends in .pub. A key is ECDSA on P-256,
// P-384 or P-521, Ed25519, or RSA of 2048 to 8192 bits, in one PEM block. An invalid
// entry is an error even if another key matches, so that the defect is noticed before
// the other key is retired. No server except the registry is contacted, and
// spec.verify.matchOIDCIdentity is ignored.
//
// Without it, a signature is trusted if it has a certificate of Fulcio for an identity
// whose issuer and subject match an entry of spec.verify.matchOIDCIdentity. Both are
// regular expressions of package [regexp], which match anywhere in the value unless ^
// and $ anchor them. The certificate must have a timestamp of a certificate
// transparency log, the signature must be in Rekor, and its time, by Rekor or a
// timestamp authority, must be within the validity of the certificate. The entry in
// Rekor must have the same digest, signature and certificate as the signature. A public
// key that comes with a signature is never trusted. The trusted root is the entry
// trusted_root.json of the Secret of spec.verify.trustedRootSecretRef, or else that of
// the TUF repository of [Config].
//
// # Signature formats
//
// First, the bundles that refer to the subject are checked (cosign 3): a DSSE envelope
// with an in-toto statement of the predicate https://sigstore.dev/cosign/sign/v1 about
// the subject's digest. Attestations with other predicates are not signatures. Then the
// layers of the tag sha256-HEX.sig are checked (cosign 1 and 2): a payload with the
// digest of the subject, with its signature in an annotation. A keyless signature also
// has annotations for the certificate, the entry in Rekor and the RFC 3161 timestamp.
// Rekor is never queried for an entry that does not come with the signature.
//
// The first valid signature is sufficient. If there is none, the error describes the
// defect of each signature. If the registry does not return a signature, that is an
// error of its own, never "not signed", unless another signature is valid.
//
// # Limits
//
// At most 32 signatures of each of the two formats are checked, among at most 256
// manifests that refer to the subject. A bundle has at most 1 MiB, a payload, a
// timestamp and the body of an entry in Rekor 64 KiB each, a manifest 4 MiB. A
// timestamp is DER (RFC 3161), nested at most 32 levels deep. RSA keys that come with a
// signature or are in a trusted root have at most 8192 bits. A Secret contains at most
// 64 keys.
package cosign

import (
	"cmp"
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/tuf"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
	"github.com/headgate-io/headgate/source"
)

// A Config configures the trusted root of keyless signatures. The zero value is Sigstore's
// public good instance.
type Config struct {
	Mirror string           // URL of a TUF repository with a target trusted_root.json, "" for that of the public good instance
	Anchor []byte           // the root.json that verifies Mirror, nil for that of the public good instance
	Cache  string           // a directory that caches files of Mirror for a day; "" caches them in memory only
	Now    func() time.Time // nil for time.Now
}

// New returns the technology cosign. All its verifiers share the trusted root of the TUF
// repository. They fetch it at the first keyless verification, again after a
// day, and if no signature is valid, but for that reason at most once a minute.
func New(c Config) oci.Technology {
	if c.Mirror == "" {
		c.Mirror = tuf.DefaultMirror
	}
	if c.Anchor == nil {
		c.Anchor = tuf.DefaultRoot()
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	shared := &roots{config: c}
	return func(r *oci.Repository, t oci.Trust) (oci.Verifier, error) {
		v := &verifier{repo: r, sharedRoots: shared}
		read := v.readIdentities
		if t.Keys.Name != "" {
			read = v.readKeys
		}
		if err := read(t); err != nil {
			return nil, err
		}
		return v, nil
	}
}

// A verifier implements [oci.Verifier]. It is safe for concurrent use.
type verifier struct {
	repo *oci.Repository
	keys []key // trusted keys; nil: identities are trusted

	identities  []verify.PolicyOption
	secretJudge judge  // uses the trusted root of a Secret; nil: sharedRoots is used
	sharedRoots *roots // of all verifiers
}

// A judge checks a signature and returns its signer, for messages. Errors are refusals.
type judge func(*signature) (string, error)

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] if
// there is no valid signature; errors of the registry and of the
// TUF repository do not.
func (v *verifier) Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error) {
	if err := subject.Digest.Validate(); err != nil {
		return source.Verification{}, fmt.Errorf("verify %.100q: %w", subject.Digest, err)
	}
	var signer string
	var err error
	switch {
	case v.keys != nil:
		signer, err = v.attempt(ctx, v.verifyByKey, subject)
	case v.secretJudge != nil:
		signer, err = v.attempt(ctx, v.secretJudge, subject)
	default:
		signer, err = v.keyless(ctx, subject)
	}
	if err != nil {
		return source.Verification{}, err
	}
	return source.Verification{
		Mode:    "cosign",
		Signer:  signer,
		Message: fmt.Sprintf("verified signature of '%s' by '%s'", subject.Digest, signer),
	}, nil
}

// A signature is a decoded signature of either format.
type signature struct {
	payload []byte                            // the statement of the signer
	message []byte                            // the signed bytes: payload, or an encoding of it
	sig     []byte                            // the bytes of the signature
	keyless bool                              // it came with a certificate
	claim   func([]byte, digest.Digest) error // checks that a payload is about a digest; errors are refusals

	// Input of keyless verification: the signature with its certificate, log entries and
	// timestamps, and the artifact that it must be about. An error of entity describes a
	// defect of the signature.
	entity func() (*entity, error)
	policy verify.ArtifactPolicyOption
}

// errNotSignature marks a manifest that refers to a subject but is not a signature.
var errNotSignature = errors.New("no signature")

// candidate is a possible signature, or the error of reading it.
type candidate struct {
	location string // for messages
	*signature
	err error
}

// attempt returns the signer of the first valid signature of subject.
func (v *verifier) attempt(ctx context.Context, j judge, subject ocispec.Descriptor) (string, error) {
	t := attempt.Failures{Subject: v.repo.Name() + "@" + subject.Digest.String(), Unsigned: "is not signed: sign it with cosign sign"}
	nonSignatures := 0 // manifests that refer to the subject but are not signatures
	for _, list := range []iter.Seq[candidate]{v.bundles(ctx, subject), v.layers(ctx, subject)} {
		for s := range list {
			var signer string
			if s.err == nil {
				signer, s.err = j(s.signature)
			}
			if s.err == nil {
				s.err = s.claim(s.payload, subject.Digest)
			}
			switch {
			case s.err == nil:
				return signer, nil
			case ctx.Err() != nil:
				return "", s.err
			case errors.Is(s.err, errNotSignature):
				nonSignatures++
				t.Unsigned = fmt.Sprintf("is not signed: what refers to it are %d attestations or the like: sign it with cosign sign", nonSignatures)
			default:
				t.Add(s.location, s.err)
			}
		}
	}
	return "", t.Err()
}

// manifest returns the image manifest d.
func (v *verifier) manifest(ctx context.Context, d ocispec.Descriptor) (m ocispec.Manifest, err error) {
	_, data, err := v.repo.Manifest(ctx, d)
	if err != nil {
		return m, attempt.Unreadable(err)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, attempt.Refuse("its manifest: %w", err)
	}
	return m, nil
}

const (
	bundleType     = "application/vnd.dev.sigstore.bundle.v0.3+json"
	bundleTypes    = "application/vnd.dev.sigstore.bundle" // prefix of the types of all versions
	predicateKey   = "dev.sigstore.bundle.predicateType"   // annotation of a manifest with the predicate of its bundle
	signPredicate  = "https://sigstore.dev/cosign/sign/v1"
	statementTypes = "https://in-toto.io/Statement/" // prefix of the types of all versions
	envelopeType   = "application/vnd.in-toto+json"
)

// bundles lists the bundles that refer to subject. It requests all referrers and filters
// them by type itself, because cosign 2 writes the type of the empty config into the index
// of the referrers tag.
func (v *verifier) bundles(ctx context.Context, subject ocispec.Descriptor) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		seen, tried := 0, 0
		for d, err := range v.repo.Referrers(ctx, subject, "") {
			if err == nil && !maybeBundle(d.ArtifactType) {
				continue
			}
			if seen++; err == nil && (seen > maxReferrers || tried == maxSignatures) {
				err = attempt.Refuse("there are more, beyond the limit of %d signatures among %d manifests", maxSignatures, maxReferrers)
			}
			if err != nil {
				yield(candidate{location: "bundles", err: attempt.Unreadable(err)})
				return
			}
			s, err := v.referrer(ctx, d, subject)
			if !errors.Is(err, errNotSignature) {
				tried++
			}
			if !yield(candidate{fmt.Sprintf("bundle %.19s", d.Digest), s, err}) {
				return
			}
		}
	}
}

// maybeBundle reports whether a referrer may be a bundle, by the type in the list.
func maybeBundle(artifactType string) bool {
	return artifactType == "" || artifactType == ocispec.MediaTypeEmptyJSON || strings.HasPrefix(artifactType, bundleTypes)
}

// referrer reads a possible bundle. The error is errNotSignature if it is not a signature.
func (v *verifier) referrer(ctx context.Context, d, subject ocispec.Descriptor) (*signature, error) {
	if err := checkAnnotations(d.Annotations); err != nil {
		return nil, err
	}
	m, err := v.manifest(ctx, d)
	if err == nil {
		err = checkAnnotations(m.Annotations)
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(cmp.Or(m.ArtifactType, m.Config.MediaType), bundleTypes) {
		return nil, errNotSignature
	}
	if len(m.Layers) != 1 || !strings.HasPrefix(m.Layers[0].MediaType, bundleTypes) {
		return nil, attempt.Refuse("its manifest has %d layers, want one and that of the type %s", len(m.Layers), bundleType)
	}
	data, err := attempt.Blob(ctx, v.repo, m.Layers[0], maxBundle)
	if err != nil {
		return nil, err
	}
	return decodeBundle(data, subject.Digest)
}

// checkAnnotations returns [errNotSignature] if the annotations of a bundle say that it is not a
// signature. Annotations are not signed, so the bundle is checked if they do not.
func checkAnnotations(annotations map[string]string) error {
	if p := annotations[predicateKey]; p != "" && p != signPredicate {
		return errNotSignature
	}
	return nil
}

// decodeBundle reads a bundle that refers to subject. Errors are refusals.
func decodeBundle(data []byte, subject digest.Digest) (*signature, error) {
	b := new(protobundle.Bundle)
	if err := protojson.Unmarshal(data, b); err != nil {
		return nil, attempt.Refuse("it is no bundle: %w", err)
	}
	raw, err := hex.DecodeString(subject.Encoded())
	e := b.GetDsseEnvelope()
	switch {
	case err != nil:
		return nil, err
	case e == nil:
		return nil, attempt.Refuse("it holds no DSSE envelope, so it does not say what was signed")
	case len(e.Signatures) != 1:
		return nil, attempt.Refuse("its envelope has %d signatures, want one", len(e.Signatures))
	case e.PayloadType != envelopeType:
		return nil, attempt.Refuse("its envelope holds %.100q, want %s", e.PayloadType, envelopeType)
	}
	material := b.GetVerificationMaterial()
	return &signature{
		payload: e.Payload,
		message: dsse.PAE(e.PayloadType, e.Payload),
		sig:     e.Signatures[0].GetSig(),
		keyless: material.GetCertificate() != nil || material.GetX509CertificateChain() != nil,
		claim:   checkStatement,
		entity:  func() (*entity, error) { return newEntity(b, nil) },
		policy:  verify.WithArtifactDigest(subject.Algorithm().String(), raw),
	}, nil
}

// An entity is a bundle with the certificates of issuers. It implements [verify.SignedEntity].
type entity struct {
	*bundle.Bundle
	issuers []*x509.Certificate // intermediate certificates
}

// newEntity returns the entity of a bundle. It fails if the bundle exceeds a limit.
func newEntity(b *protobundle.Bundle, issuers []*x509.Certificate) (*entity, error) {
	if err := checkBundleSize(b); err != nil {
		return nil, err
	}
	all, err := bundle.NewBundle(b)
	return &entity{all, issuers}, err
}

// Version returns no version, so that only the hash of the key's algorithm is accepted.
// For versions that sigstore-go knows, it would also try SHA-256 with any key, and
// print a warning to standard error.
func (*entity) Version() (string, error) { return "", nil }

// VerificationContent implements [verify.SignedEntity].
func (e *entity) VerificationContent() (verify.VerificationContent, error) {
	c, err := e.Bundle.VerificationContent()
	return certificateChain{c, e.issuers}, err
}

// certificateChain is a certificate with its intermediate certificates.
type certificateChain struct {
	verify.VerificationContent
	issuers []*x509.Certificate
}

func (c certificateChain) Intermediates() []*x509.Certificate { return c.issuers }

// checkStatement checks that payload is an in-toto statement about the signing of subject.
func checkStatement(payload []byte, subject digest.Digest) error {
	var s struct {
		Type      string `json:"_type"`
		Predicate string `json:"predicateType"`
		Subjects  []struct {
			Digest map[string]string `json:"digest"`
		} `json:"subject"`
	}
	if err := json.Unmarshal(payload, &s); err != nil {
		return attempt.Refuse("its statement: %w", err)
	}
	if !strings.HasPrefix(s.Type, statementTypes) {
		return attempt.Refuse("its payload is %.100q, not an in-toto statement", s.Type)
	}
	if s.Predicate != signPredicate {
		return attempt.Refuse("it is an attestation of %.100q, not a signature (%s)", s.Predicate, signPredicate)
	}
	var signed []string
	for _, about := range s.Subjects {
		hash := about.Digest[subject.Algorithm().String()]
		signed = append(signed, fmt.Sprintf("%s:%.128s", subject.Algorithm(), hash))
	}
	if !slices.Contains(signed, subject.String()) {
		return attempt.Refuse("it is the signature of something else: %.200q", signed)
	}
	return nil
}

const (
	maxSignatures = 32
	maxReferrers  = 256
	maxBundle     = 1 << 20
	maxPayload    = 64 << 10
	maxKeys       = 64
)
