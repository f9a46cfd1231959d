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

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/oci/internal/attempt"
)

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
