package cosign

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"slices"
	"strings"

	"github.com/digitorus/pkcs7"
	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	prototrustroot "github.com/sigstore/protobuf-specs/gen/pb-go/trustroot/v1"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// The annotations of a layer with a signature.
const (
	signatureKey   = "dev.cosignproject.cosign/signature"
	certificateKey = "dev.sigstore.cosign/certificate"
	chainKey       = "dev.sigstore.cosign/chain"
	rekorKey       = "dev.sigstore.cosign/bundle"
	timestampKey   = "dev.sigstore.cosign/rfc3161timestamp"
)

const (
	simpleType    = "application/vnd.dev.cosign.simplesigning.v1+json"
	simplePayload = "cosign container image signature"
)

const maxTag = 128 // characters (distribution specification 1.1, "Pulling manifests")

// layers lists the signatures in the manifest of the signature tag of subject.
func (v *verifier) layers(ctx context.Context, subject ocispec.Descriptor) iter.Seq[candidate] {
	return func(yield func(candidate) bool) {
		tag := strings.Replace(subject.Digest.String(), ":", "-", 1) + ".sig"
		if len(tag) > maxTag {
			return // sha512 digests have no signature tag
		}
		var m ocispec.Manifest
		d, err := v.repo.Head(ctx, tag)
		if err == nil {
			m, err = v.manifest(ctx, d)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if err == nil && len(m.Layers) == 0 {
			err = attempt.Refuse("it names a manifest without layers")
		}
		for i, layer := range m.Layers[:min(len(m.Layers), maxSignatures)] {
			s, err := v.layer(ctx, layer)
			if !yield(candidate{fmt.Sprintf("signature %d of the tag", i+1), s, err}) {
				return
			}
		}
		if len(m.Layers) > maxSignatures {
			err = attempt.Refuse("it has %d signatures, more than the limit of %d", len(m.Layers), maxSignatures)
		}
		if err != nil {
			yield(candidate{location: "tag " + tag, err: err})
		}
	}
}

// layer reads the signature in the layer d.
func (v *verifier) layer(ctx context.Context, d ocispec.Descriptor) (*signature, error) {
	if d.MediaType != simpleType {
		return nil, attempt.Refuse("it has the type %.100q, want %s", d.MediaType, simpleType)
	}
	payload, err := attempt.Blob(ctx, v.repo, d, maxPayload)
	if err != nil {
		return nil, err
	}
	sigBytes, err := base64.StdEncoding.DecodeString(d.Annotations[signatureKey])
	if err != nil || len(sigBytes) == 0 {
		return nil, attempt.Refuse("its annotation %s is missing or no base64", signatureKey)
	}
	return &signature{
		payload: payload,
		message: payload,
		sig:     sigBytes,
		keyless: d.Annotations[certificateKey] != "",
		claim:   checkSimplePayload,
		entity:  func() (*entity, error) { return layerEntity(payload, sigBytes, d.Annotations) },
		policy:  verify.WithArtifact(bytes.NewReader(payload)),
	}, nil
}

// layerVersion is a bundle version that requires no inclusion proof of a log, because
// layers have none.
const layerVersion = bundleTypes + "+json;version=0.1"

// layerEntity returns the entity for the annotations of a layer.
func layerEntity(payload, sigBytes []byte, annotations map[string]string) (*entity, error) {
	sum := sha256.Sum256(payload)
	b := &protobundle.Bundle{
		MediaType: layerVersion,
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
			MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: sum[:]}, Signature: sigBytes}},
		VerificationMaterial: new(protobundle.VerificationMaterial),
	}
	for _, part := range []struct {
		key  string
		read func(*protobundle.VerificationMaterial, string) error
	}{{certificateKey, readCertificate}, {rekorKey, readEntry}, {timestampKey, readTimestamp}} {
		if value := annotations[part.key]; value != "" {
			if err := part.read(b.VerificationMaterial, value); err != nil {
				return nil, fmt.Errorf("its annotation %s: %w", part.key, err)
			}
		}
	}
	issuers, err := readChain(annotations[chainKey])
	if err != nil {
		return nil, fmt.Errorf("its annotation %s: %w", chainKey, err)
	}
	return newEntity(b, issuers)
}

// readCertificate decodes the PEM of the signing certificate into m.
func readCertificate(m *protobundle.VerificationMaterial, text string) error {
	all, err := decodePEM(text)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d certificates, want one", len(all))
	}
	if err == nil {
		m.Content = &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: all[0].Raw}}
	}
	return err
}

// readChain decodes the PEM of the certificate chain and returns the intermediate
// certificates. They are not trusted just because they are in the chain.
func readChain(text string) ([]*x509.Certificate, error) {
	all, err := decodePEM(text)
	return slices.DeleteFunc(all, func(c *x509.Certificate) bool { return !c.IsCA || bytes.Equal(c.RawIssuer, c.RawSubject) }), err
}

const maxChain = 8

func decodePEM(text string) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		if len(all) == maxChain {
			return nil, fmt.Errorf("more than %d certificates", maxChain)
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err == nil {
			err = checkKeySize(c.PublicKey)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	return all, nil
}

// readEntry decodes the log entry of the signature, with the log's inclusion promise, into m.
func readEntry(m *protobundle.VerificationMaterial, text string) error {
	var b struct {
		SignedEntryTimestamp []byte
		Payload              struct {
			Body           []byte `json:"body"`
			IntegratedTime int64  `json:"integratedTime"`
			LogIndex       int64  `json:"logIndex"`
			LogID          string `json:"logID"`
		}
	}
	var kind struct {
		Kind    string `json:"kind"`
		Version string `json:"apiVersion"`
	}
	if err := json.Unmarshal([]byte(text), &b); err != nil {
		return err
	}
	if err := json.Unmarshal(b.Payload.Body, &kind); err != nil {
		return err
	}
	log, err := hex.DecodeString(b.Payload.LogID)
	m.TlogEntries = []*protorekor.TransparencyLogEntry{{
		LogIndex:          b.Payload.LogIndex,
		LogId:             &protocommon.LogId{KeyId: log},
		KindVersion:       &protorekor.KindVersion{Kind: kind.Kind, Version: kind.Version},
		IntegratedTime:    b.Payload.IntegratedTime,
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: b.SignedEntryTimestamp},
		CanonicalizedBody: b.Payload.Body,
	}}
	return err
}

// readTimestamp decodes the response of a timestamp authority into m.
func readTimestamp(m *protobundle.VerificationMaterial, text string) error {
	var t struct{ SignedRFC3161Timestamp []byte }
	err := json.Unmarshal([]byte(text), &t)
	m.TimestampVerificationData = &protobundle.TimestampVerificationData{
		Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: t.SignedRFC3161Timestamp}}}
	return err
}

// checkSimplePayload checks that payload is a simple signing payload about subject.
func checkSimplePayload(payload []byte, subject digest.Digest) error {
	var p struct {
		Critical struct {
			Image struct {
				Digest string `json:"docker-manifest-digest"`
			} `json:"image"`
			Type string `json:"type"`
		} `json:"critical"`
	}
	if err := json.Unmarshal(payload, &p); err != nil {
		return attempt.Refuse("its payload: %w", err)
	}
	if p.Critical.Type != simplePayload {
		return attempt.Refuse("its payload is %.100q, want %q", p.Critical.Type, simplePayload)
	}
	if p.Critical.Image.Digest != subject.String() {
		return attempt.Refuse("it is the signature of something else: %.100q", p.Critical.Image.Digest)
	}
	return nil
}

// Any user who may write to a repository chooses the keys in entries of Rekor, in
// certificates and in timestamps. The libraries use some of these keys before they check
// whether the keys are trusted. An RSA key of 64 KiB keeps them busy for seconds, during
// which a context has no effect. So the size of keys is checked first. Timestamps are also
// checked first, because pkcs7 accepts BER, recurses without a limit, and its run time is
// quadratic in the length.

const (
	maxBits  = 8192     // of an RSA key
	maxEntry = 64 << 10 // bytes of the body of an entry
	maxStamp = 64 << 10 // bytes of a timestamp
	maxDepth = 32       // nesting of the ASN.1 of a timestamp
)

// checkKeySize returns an error if key is an RSA key of more than maxBits bits.
func checkKeySize(key crypto.PublicKey) error {
	if k, is := key.(*rsa.PublicKey); is && k.N.BitLen() > maxBits {
		return fmt.Errorf("it holds an RSA key of %d bits, more than the limit of %d", k.N.BitLen(), maxBits)
	}
	return nil
}

// checkBundleSize checks the size of the keys in the log entries and timestamps of a bundle.
func checkBundleSize(b *protobundle.Bundle) error {
	material := b.GetVerificationMaterial()
	for _, e := range material.GetTlogEntries() {
		if err := checkEntrySize(e.GetCanonicalizedBody()); err != nil {
			return fmt.Errorf("its entry in a log: %w", err)
		}
	}
	for _, s := range material.GetTimestampVerificationData().GetRfc3161Timestamps() {
		if err := checkTimestampSize(s.GetSignedTimestamp()); err != nil {
			return fmt.Errorf("its timestamp: %w", err)
		}
	}
	return nil
}

// checkEntrySize checks the size of the body of an entry of Rekor, and of all keys in it.
func checkEntrySize(body []byte) error {
	if len(body) > maxEntry {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(body), maxEntry)
	}
	for in := json.NewDecoder(bytes.NewReader(body)); ; {
		token, err := in.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		text, _ := token.(string)
		if data, err := base64.StdEncoding.DecodeString(text); err == nil {
			if err := checkPEMSize(data); err != nil {
				return err
			}
		}
	}
}

// checkPEMSize checks the size of the keys in text, which may be PEM.
func checkPEMSize(text []byte) error {
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if err := checkDERSize(block.Bytes); err != nil {
			return err
		}
	}
	return nil
}

// checkDERSize checks the size of the key in der, if that is a certificate or a key.
func checkDERSize(der []byte) error {
	if c, err := x509.ParseCertificate(der); err == nil {
		return checkKeySize(c.PublicKey)
	}
	for _, read := range parsers {
		if key, err := read(der); err == nil {
			return checkKeySize(key)
		}
	}
	return nil
}

// checkTimestampSize checks the size and nesting of the response of a timestamp authority (RFC 3161,
// section 2.4.2), and the size of the keys in it.
func checkTimestampSize(der []byte) error {
	if len(der) > maxStamp {
		return fmt.Errorf("it has %d bytes, more than the limit of %d", len(der), maxStamp)
	}
	if err := checkDepth(der, maxDepth); err != nil {
		return err
	}
	var answer struct {
		Status asn1.RawValue
		Token  asn1.RawValue `asn1:"optional"`
	}
	if _, err := asn1.Unmarshal(der, &answer); err != nil {
		return err
	}
	token, err := pkcs7.Parse(answer.Token.FullBytes)
	if err != nil {
		return err
	}
	for _, c := range token.Certificates {
		if err := checkKeySize(c.PublicKey); err != nil {
			return err
		}
	}
	return nil
}

// checkDepth returns an error unless der is DER, nested no deeper than depth.
func checkDepth(der []byte, depth int) error {
	for len(der) > 0 {
		var v asn1.RawValue
		rest, err := asn1.Unmarshal(der, &v)
		if err == nil && v.IsCompound {
			if depth == 0 {
				return fmt.Errorf("its ASN.1 is nested deeper than the limit of %d", maxDepth)
			}
			err = checkDepth(v.Bytes, depth-1)
		}
		if err != nil {
			return err
		}
		der = rest
	}
	return nil
}

// readRoot parses a trusted root and checks the size of its keys, because any user with
// access to the Secrets of one namespace can write it.
func readRoot(data []byte) (*root.TrustedRoot, error) {
	material := new(prototrustroot.TrustedRoot)
	if err := protojson.Unmarshal(data, material); err != nil {
		return nil, err
	}
	var keys [][]byte
	for _, l := range slices.Concat(material.GetTlogs(), material.GetCtlogs()) {
		keys = append(keys, l.GetPublicKey().GetRawBytes())
	}
	for _, a := range slices.Concat(material.GetCertificateAuthorities(), material.GetTimestampAuthorities()) {
		for _, c := range a.GetCertChain().GetCertificates() {
			keys = append(keys, c.GetRawBytes())
		}
	}
	for _, der := range keys {
		if err := checkDERSize(der); err != nil {
			return nil, err
		}
	}
	return root.NewTrustedRootFromProtobuf(material)
}
