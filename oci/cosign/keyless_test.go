package cosign_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

const (
	bundleType = "application/vnd.dev.sigstore.bundle.v0.3+json"
	simpleType = "application/vnd.dev.cosign.simplesigning.v1+json"

	identity = "release@example.org"
	issuer   = "https://accounts.example.org"
)

// A recipe says how a keyless signature is to be made. The rows of the tables
// change one thing each.
type recipe struct {
	by       *sigstore // issues certificate and timestamp
	ctlog    *log      // nil: the certificate is in none
	rekor    *log
	identity string
	issuer   string
	curve    elliptic.Curve
	since    time.Time // the certificate is valid for ten minutes from then
	logged   time.Time
	stamped  bool                                                            // now
	tiled    bool                                                            // in the second version of Rekor
	entry    func(kind string, spec map[string]any) (string, map[string]any) // in the first, changed by this

	digest    digest.Digest // what is claimed to be signed
	statement string        // type
	predicate string
	payload   string // type of the DSSE payload, or of a simple one
}

// good is a recipe for a signature of d that holds.
func (s *sigstore) good(d digest.Digest) *recipe {
	return &recipe{
		by: s, ctlog: &s.ctlog, rekor: &s.rekor, identity: identity, issuer: issuer, curve: elliptic.P256(),
		since: time.Now().Add(-2 * time.Minute), logged: time.Now().Add(-time.Minute), stamped: true,
		digest: d, statement: "https://in-toto.io/Statement/v1", predicate: "https://sigstore.dev/cosign/sign/v1",
	}
}

// A made is a signature and what it comes with.
type made struct {
	leaf    *x509.Certificate
	payload []byte
	sig     []byte
	entry   *protorekor.TransparencyLogEntry
	stamp   []byte
	key     *ecdsa.PrivateKey
}

// make signs message, an encoding of payload, and enters it into Rekor.
func (o *recipe) make(t testing.TB, payload, message []byte, envelope func(sig []byte) []byte) made {
	t.Helper()
	key := ecKey(t, o.curve)
	m := made{payload: payload, key: key, leaf: o.by.certify(t, o.identity, o.issuer, o.since, key.Public(), o.ctlog)}
	m.sig = sign(t, key, message)
	verifier := []byte(pemOf("CERTIFICATE", string(m.leaf.Raw)))
	kind, spec := hashedrekord(payload, m.sig, verifier)
	if envelope != nil {
		kind, spec = dsseEntry(envelope(m.sig), payload, m.sig, verifier)
	}
	if o.entry != nil {
		kind, spec = o.entry(kind, spec)
	}
	if m.entry = o.rekor.enter(t, o.logged, kind, spec); o.tiled {
		m.entry = o.rekor.enterTile(t, message, m.sig, m.leaf)
	}
	if o.stamped {
		var err error
		m.stamp, err = o.by.tsa.TimestampResponse(m.sig)
		check(t, err)
	}
	return m
}

func sign(t testing.TB, key *ecdsa.PrivateKey, message []byte) []byte {
	t.Helper()
	hash := map[int]crypto.Hash{256: crypto.SHA256, 384: crypto.SHA384, 521: crypto.SHA512}[key.Params().BitSize]
	w := hash.New()
	w.Write(message)
	out, err := key.Sign(nil, w.Sum(nil), hash)
	check(t, err)
	return out
}

// bundle makes a bundle, as cosign 3 does.
func (o *recipe) bundle(t testing.TB) *protobundle.Bundle {
	t.Helper()
	payload := fmt.Appendf(nil, `{"_type":%q,"subject":[{"digest":{"sha256":%q}}],"predicateType":%q,"predicate":{}}`,
		o.statement, o.digest.Encoded(), o.predicate)
	kind := o.payload
	if kind == "" {
		kind = "application/vnd.in-toto+json"
	}
	m := o.make(t, payload, dsse.PAE(kind, payload), func(sig []byte) []byte {
		text, err := json.Marshal(dsse.Envelope{PayloadType: kind, Payload: base64.StdEncoding.EncodeToString(payload),
			Signatures: []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(sig)}}})
		check(t, err)
		return text
	})
	b := &protobundle.Bundle{
		MediaType: bundleType,
		VerificationMaterial: &protobundle.VerificationMaterial{
			Content:     &protobundle.VerificationMaterial_Certificate{Certificate: &protocommon.X509Certificate{RawBytes: m.leaf.Raw}},
			TlogEntries: []*protorekor.TransparencyLogEntry{m.entry},
		},
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			PayloadType: kind, Payload: payload, Signatures: []*protodsse.Signature{{Sig: m.sig}},
		}},
	}
	if m.stamp != nil {
		b.VerificationMaterial.TimestampVerificationData = &protobundle.TimestampVerificationData{
			Rfc3161Timestamps: []*protocommon.RFC3161SignedTimestamp{{SignedTimestamp: m.stamp}},
		}
	}
	return b
}

// layer makes a layer of the tag .sig, as cosign 2 does.
func (o *recipe) layer(t testing.TB) *testenv.Blob {
	t.Helper()
	kind := o.payload
	if kind == "" {
		kind = "cosign container image signature"
	}
	payload := fmt.Appendf(nil, `{"critical":{"identity":{"docker-reference":"127.0.0.1/app"},"image":{"docker-manifest-digest":%q},"type":%q},"optional":null}`, o.digest, kind)
	m := o.make(t, payload, payload, nil)
	b := &testenv.Blob{MediaType: simpleType, Data: payload, Annotations: map[string]string{
		"dev.cosignproject.cosign/signature": base64.StdEncoding.EncodeToString(m.sig),
		"dev.sigstore.cosign/certificate":    pemOf("CERTIFICATE", string(m.leaf.Raw)),
		"dev.sigstore.cosign/chain": pemOf("CERTIFICATE", string(o.by.fulcio.Intermediates[0].Raw)) +
			pemOf("CERTIFICATE", string(o.by.fulcio.Root.Raw)),
		"dev.sigstore.cosign/bundle": rekorBundle(t, m.entry),
	}}
	if m.stamp != nil {
		text, err := json.Marshal(map[string]any{"SignedRFC3161Timestamp": m.stamp})
		check(t, err)
		b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
	}
	return b
}

// rekorBundle is the annotation with an entry of Rekor.
func rekorBundle(t testing.TB, e *protorekor.TransparencyLogEntry) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"SignedEntryTimestamp": e.InclusionPromise.GetSignedEntryTimestamp(),
		"Payload": map[string]any{"body": e.CanonicalizedBody, "integratedTime": e.IntegratedTime, "logIndex": e.LogIndex,
			"logID": hex.EncodeToString(e.LogId.KeyId)},
	})
	check(t, err)
	return string(text)
}

// attach pushes a bundle that refers to subject.
func attach(t testing.TB, g *testenv.Registry, repo string, subject ocispec.Descriptor, b *protobundle.Bundle) {
	t.Helper()
	refer(g, repo, subject, testenv.Blob{MediaType: bundleType, Data: bundleText(t, b)})
}

func bundleText(t testing.TB, b *protobundle.Bundle) []byte {
	t.Helper()
	text, err := protojson.Marshal(b)
	check(t, err)
	return text
}

func refer(g *testenv.Registry, repo string, subject ocispec.Descriptor, layers ...testenv.Blob) {
	g.Push(repo, "", testenv.Manifest{ArtifactType: bundleType, Layers: layers, Subject: &subject,
		Annotations: map[string]string{"dev.sigstore.bundle.predicateType": "https://sigstore.dev/cosign/sign/v1"}})
}

// tag pushes the manifest of the tag .sig.
func tag(g *testenv.Registry, repo string, subject ocispec.Descriptor, layers ...testenv.Blob) {
	g.Push(repo, strings.Replace(subject.Digest.String(), ":", "-", 1)+".sig", testenv.Manifest{Layers: layers})
}

// subjectOf pushes what is to be signed.
func subjectOf(g *testenv.Registry, repo string) ocispec.Descriptor {
	return g.Push(repo, "1", testenv.Manifest{Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte("content")}}})
}

// trust returns the trust in one identity.
func (s *sigstore) trust(t testing.TB) oci.Trust {
	t.Helper()
	return oci.Trust{
		Root:       secret("trusted_root.json", s.trustedRoot(t)),
		Identities: []source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "^release@"}},
	}
}

// A row is one way for a signature to hold or not to.
type row struct {
	name   string
	recipe func(*recipe)
	bundle func(*protobundle.Bundle) // nil in rows about what only a layer has
	layer  func(*testenv.Blob)       // nil in rows about what only a bundle has
	want   string                    // in the error, separated by |; "" when the signature holds
}

// test tries the row in both formats.
func (r row) test(t *testing.T, s *sigstore) {
	same := r.bundle == nil && r.layer == nil
	for format, skip := range map[string]bool{"bundle": !same && r.bundle == nil, "layer": !same && r.layer == nil} {
		if skip {
			continue
		}
		t.Run(r.name+"/"+format, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			subject := subjectOf(g, "app")
			o := s.good(subject.Digest)
			if r.recipe != nil {
				r.recipe(o)
			}
			if format == "bundle" {
				b := o.bundle(t)
				if r.bundle != nil {
					r.bundle(b)
				}
				attach(t, g, "app", subject, b)
			} else {
				b := o.layer(t)
				if r.layer != nil {
					r.layer(b)
				}
				tag(g, "app", subject, *b)
			}
			got, err := verify(t, g, "app", s.trust(t), subject)
			judge(t, got, err, r.want, identity+" ("+issuer+")")
		})
	}
}

// judge checks the outcome of a verification.
func judge(t *testing.T, got source.Verification, err error, want, signer string) {
	t.Helper()
	if want == "" {
		check(t, err)
		if got.Signer != signer || got.Mode != "cosign" || !strings.Contains(got.Message, "by '"+signer+"'") {
			t.Errorf("got %+v, want the signer %s", got, signer)
		}
		return
	}
	if !errors.Is(err, source.ErrVerification) || got != (source.Verification{}) {
		t.Errorf("got %+v and the error %v, want one that a signature is refused", got, err)
	}
	if missing := lacks(err, want); missing != nil {
		t.Errorf("error %v\nlacks %q", err, missing)
	}
}
