// Package cosign verifies signatures that cosign made, as an [oci.Technology]
// (specification, "OCIRepositoryVerification"; reference A11).
//
// # Whose signatures count
//
// With spec.verify.secretRef, those by a key in an entry of the Secret whose
// name ends in .pub; any of them may have signed. A key is ECDSA on P-256,
// P-384 or P-521, Ed25519, or RSA of 2048 to 8192 bits, in one PEM block. An
// entry that cannot be read is an error even if another key fits: otherwise it would be
// found out on the day the other key is retired. Nothing but the registry is
// asked, and spec.verify.matchOIDCIdentity is not looked at.
//
// Without it, those by a certificate of Fulcio for an identity that an entry
// of spec.verify.matchOIDCIdentity matches, in issuer and subject. Both are
// regular expressions of package [regexp], which match anywhere in the value
// unless ^ and $ anchor them. The certificate must bear a timestamp of a
// certificate transparency log, the signature must be in Rekor, and its time,
// by Rekor or a timestamp authority, must be within the life of the
// certificate. The entry in Rekor must be that of this signature: same digest,
// same signature, same certificate. A key that comes with a signature never
// counts. The trusted root is the entry trusted_root.json of the Secret of
// spec.verify.trustedRootSecretRef, or else by the TUF repository of [Config].
//
// # What a signature is
//
// First come the bundles that refer to the subject (cosign 3): a DSSE envelope
// with an in-toto statement of the predicate https://sigstore.dev/cosign/sign/v1
// about the subject's digest. Attestations of other predicates are no
// signatures. Then come the layers of the tag
// sha256-HEX.sig (cosign 1 and 2): a payload with the digest of the subject,
// its signature in an annotation, and there, for a keyless one, certificate,
// entry in Rekor and RFC 3161 timestamp. Rekor is never asked for an entry that
// does not come with the signature.
//
// The first signature that holds decides. When none does, the error says of
// each what is wrong with it. What the registry refuses to hand out is an error
// of its own, never "not signed", unless another signature holds.
//
// # Limits
//
// At most 32 signatures of each of the two formats are tried, after looking at no
// more than 256 manifests that refer to the subject. A bundle has at most 1 MiB,
// a payload, a timestamp and the body of an entry in Rekor 64 KiB each, a
// manifest 4 MiB. A timestamp is DER (RFC 3161), nested at most 32 deep. RSA
// keys that come with a signature or are in a trusted root have at most 8192
// bits. A Secret holds at most 64 keys.
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

// A Config says where the trusted root of keyless signatures comes from. The zero value is Sigstore's public good instance.
type Config struct {
	Mirror string           // URL of a TUF repository with a target trusted_root.json, "" for that of the public good instance
	Anchor []byte           // the root.json that Mirror is trusted by, nil for that of the public good instance
	Cache  string           // a directory that keeps for a day what Mirror said; "" keeps it in memory and writes nothing
	Now    func() time.Time // nil for time.Now
}

// New returns the technology cosign. What the TUF repository says is shared by
// all its verifiers. It is asked for at the first keyless verification, when a
// day has passed, and when no signature holds, for that not twice in a minute.
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
		v := &verifier{repo: r, shared: shared}
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
	keys []key // that are trusted; nil: the identities are

	identities []verify.PolicyOption
	given      judge  // by the trusted root of a Secret; nil: shared has it
	shared     *roots // of all verifiers
}

// A judge returns the signer of a signature, for messages. Errors are refusals.
type judge func(*signature) (string, error)

// Verify implements [oci.Verifier]. Errors wrap [source.ErrVerification] when
// there is no signature or none that holds; those of the registry and of the
// TUF repository do not.
func (v *verifier) Verify(ctx context.Context, subject ocispec.Descriptor) (source.Verification, error) {
	if err := subject.Digest.Validate(); err != nil {
		return source.Verification{}, fmt.Errorf("verify %.100q: %w", subject.Digest, err)
	}
	var signer string
	var err error
	switch {
	case v.keys != nil:
		signer, err = v.attempt(ctx, v.byKey, subject)
	case v.given != nil:
		signer, err = v.attempt(ctx, v.given, subject)
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

// A signature is one that was read, of either format.
type signature struct {
	payload []byte                            // what the signer says
	message []byte                            // what was signed: payload, or an encoding of it
	made    []byte                            // the signature proper
	keyless bool                              // it came with a certificate
	claim   func([]byte, digest.Digest) error // whether a payload says that a digest is signed; errors are refusals

	// What keyless verification wants: the whole with what else it came with,
	// and what it must be about. Errors are what is wrong with it.
	entity func() (*entity, error)
	policy verify.ArtifactPolicyOption
}

// errOther is what refers to a subject and is no signature.
var errOther = errors.New("no signature")

// found is what may be a signature, as far as it could be read.
type found struct {
	place string // for messages
	*signature
	err error
}

// attempt returns the signer of the first signature of subject that holds.
func (v *verifier) attempt(ctx context.Context, j judge, subject ocispec.Descriptor) (string, error) {
	t := attempt.Failures{Subject: v.repo.Name() + "@" + subject.Digest.String(), Unsigned: "is not signed: sign it with cosign sign"}
	others := 0 // manifests that refer to the subject and are no signatures
	for _, list := range []iter.Seq[found]{v.bundles(ctx, subject), v.layers(ctx, subject)} {
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
			case errors.Is(s.err, errOther):
				others++
				t.Unsigned = fmt.Sprintf("is not signed: what refers to it are %d attestations or the like: sign it with cosign sign", others)
			default:
				t.Add(s.place, s.err)
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
	bundleTypes    = "application/vnd.dev.sigstore.bundle" // how the types of all versions begin
	predicateKey   = "dev.sigstore.bundle.predicateType"   // the annotation of a manifest that says what its bundle is about
	signPredicate  = "https://sigstore.dev/cosign/sign/v1"
	statementTypes = "https://in-toto.io/Statement/" // how the types of all versions begin
	envelopeType   = "application/vnd.in-toto+json"
)

// bundles lists the bundles that refer to subject. What a list says of their
// type is looked at here: in the tag that stands in for the list of a registry,
// cosign 2 puts the type of the empty config.
func (v *verifier) bundles(ctx context.Context, subject ocispec.Descriptor) iter.Seq[found] {
	return func(yield func(found) bool) {
		seen, tried := 0, 0
		for d, err := range v.repo.Referrers(ctx, subject, "") {
			if err == nil && !likely(d.ArtifactType) {
				continue
			}
			if seen++; err == nil && (seen > maxReferrers || tried == maxSignatures) {
				err = attempt.Refuse("there are more, beyond the limit of %d signatures among %d manifests", maxSignatures, maxReferrers)
			}
			if err != nil {
				yield(found{place: "bundles", err: attempt.Unreadable(err)})
				return
			}
			s, err := v.referrer(ctx, d, subject)
			if !errors.Is(err, errOther) {
				tried++
			}
			if !yield(found{fmt.Sprintf("bundle %.19s", d.Digest), s, err}) {
				return
			}
		}
	}
}

// likely reports whether something may be a bundle by what a list says of its type.
func likely(artifactType string) bool {
	return artifactType == "" || artifactType == ocispec.MediaTypeEmptyJSON || strings.HasPrefix(artifactType, bundleTypes)
}

// referrer reads what may be a bundle; errOther if it does not claim to be a signature.
func (v *verifier) referrer(ctx context.Context, d, subject ocispec.Descriptor) (*signature, error) {
	if err := other(d.Annotations); err != nil {
		return nil, err
	}
	m, err := v.manifest(ctx, d)
	if err == nil {
		err = other(m.Annotations)
	}
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(cmp.Or(m.ArtifactType, m.Config.MediaType), bundleTypes) {
		return nil, errOther
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

// other returns [errOther] when the annotations of a bundle say that it is no
// signature. They are not signed: what they leave is looked at.
func other(annotations map[string]string) error {
	if p := annotations[predicateKey]; p != "" && p != signPredicate {
		return errOther
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
		made:    e.Signatures[0].GetSig(),
		keyless: material.GetCertificate() != nil || material.GetX509CertificateChain() != nil,
		claim:   statement,
		entity:  func() (*entity, error) { return newEntity(b, nil) },
		policy:  verify.WithArtifactDigest(subject.Algorithm().String(), raw),
	}, nil
}

// An entity is a bundle as sigstore-go wants it. It implements [verify.SignedEntity].
type entity struct {
	*bundle.Bundle
	issuers []*x509.Certificate // between the certificate of the bundle and the root
}

// newEntity returns the entity of a bundle that is not too heavy.
func newEntity(b *protobundle.Bundle, issuers []*x509.Certificate) (*entity, error) {
	if err := lightBundle(b); err != nil {
		return nil, err
	}
	all, err := bundle.NewBundle(b)
	return &entity{all, issuers}, err
}

// Version hides the version: the signature must be over the hash that goes with the key.
// For versions that sigstore-go knows, it would try SHA-256 with any key, and say so on
// standard error.
func (*entity) Version() (string, error) { return "", nil }

// VerificationContent implements [verify.SignedEntity].
func (e *entity) VerificationContent() (verify.VerificationContent, error) {
	c, err := e.Bundle.VerificationContent()
	return chained{c, e.issuers}, err
}

// chained is a certificate that comes with those of its issuers.
type chained struct {
	verify.VerificationContent
	issuers []*x509.Certificate
}

func (c chained) Intermediates() []*x509.Certificate { return c.issuers }

// statement checks that payload is an in-toto statement that subject is signed.
func statement(payload []byte, subject digest.Digest) error {
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
