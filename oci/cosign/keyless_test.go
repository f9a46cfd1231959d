package cosign_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
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

// A recipe describes a keyless signature to make. Each row of the tables changes one thing.
type recipe struct {
	by       *sigstore // issues certificate and timestamp
	ctlog    *log      // nil: the certificate is in no log
	rekor    *log
	identity string
	issuer   string
	curve    elliptic.Curve
	since    time.Time // start of the certificate's validity of ten minutes
	logged   time.Time
	stamped  bool                                                            // with a timestamp of the current time
	tiled    bool                                                            // entry of the second version of Rekor
	entry    func(kind string, spec map[string]any) (string, map[string]any) // changes an entry of the first version

	digest    digest.Digest // of the subject in the payload
	statement string        // type of the statement
	predicate string
	payload   string // type of the DSSE payload, or of the simple payload
}

// good returns a recipe for a valid signature of d.
func (s *sigstore) good(d digest.Digest) *recipe {
	return &recipe{
		by: s, ctlog: &s.ctlog, rekor: &s.rekor, identity: identity, issuer: issuer, curve: elliptic.P256(),
		since: time.Now().Add(-2 * time.Minute), logged: time.Now().Add(-time.Minute), stamped: true,
		digest: d, statement: "https://in-toto.io/Statement/v1", predicate: "https://sigstore.dev/cosign/sign/v1",
	}
}

// A signedEntry is a signature with its certificate and log entry.
type signedEntry struct {
	leaf    *x509.Certificate
	payload []byte
	sig     []byte
	entry   *protorekor.TransparencyLogEntry
	stamp   []byte
	key     *ecdsa.PrivateKey
}

// make signs message, an encoding of payload, and adds an entry to Rekor.
func (o *recipe) make(t testing.TB, payload, message []byte, envelope func(sig []byte) []byte) signedEntry {
	t.Helper()
	key := ecKey(t, o.curve)
	m := signedEntry{payload: payload, key: key, leaf: o.by.certify(t, o.identity, o.issuer, o.since, key.Public(), o.ctlog)}
	m.sig = sign(t, key, message)
	verifier := []byte(pemOf("CERTIFICATE", string(m.leaf.Raw)))
	kind, spec := hashedrekord(payload, m.sig, verifier)
	if envelope != nil {
		kind, spec = dsseEntry(envelope(m.sig), payload, m.sig, verifier)
	}
	if o.entry != nil {
		kind, spec = o.entry(kind, spec)
	}
	if m.entry = o.rekor.addEntry(t, o.logged, kind, spec); o.tiled {
		m.entry = o.rekor.addTileEntry(t, message, m.sig, m.leaf)
	}
	if o.stamped {
		var err error
		m.stamp, err = o.by.tsa.TimestampResponse(m.sig)
		must(t, err)
	}
	return m
}

func sign(t testing.TB, key *ecdsa.PrivateKey, message []byte) []byte {
	t.Helper()
	hash := map[int]crypto.Hash{256: crypto.SHA256, 384: crypto.SHA384, 521: crypto.SHA512}[key.Params().BitSize]
	w := hash.New()
	w.Write(message)
	out, err := key.Sign(nil, w.Sum(nil), hash)
	must(t, err)
	return out
}

// bundle returns a bundle in the format of cosign 3.
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
		must(t, err)
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

// layer returns a layer of the tag .sig in the format of cosign 2.
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
		must(t, err)
		b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
	}
	return b
}

// rekorBundle returns the value of the annotation for an entry of Rekor.
func rekorBundle(t testing.TB, e *protorekor.TransparencyLogEntry) string {
	t.Helper()
	text, err := json.Marshal(map[string]any{
		"SignedEntryTimestamp": e.InclusionPromise.GetSignedEntryTimestamp(),
		"Payload": map[string]any{"body": e.CanonicalizedBody, "integratedTime": e.IntegratedTime, "logIndex": e.LogIndex,
			"logID": hex.EncodeToString(e.LogId.KeyId)},
	})
	must(t, err)
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
	must(t, err)
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

// subjectOf pushes a subject to sign.
func subjectOf(g *testenv.Registry, repo string) ocispec.Descriptor {
	return g.Push(repo, "1", testenv.Manifest{Layers: []testenv.Blob{{MediaType: "text/plain", Data: []byte("content")}}})
}

// trust returns a Trust in one identity and the root of s.
func (s *sigstore) trust(t testing.TB) oci.Trust {
	t.Helper()
	return oci.Trust{
		Root:       secret("trusted_root.json", s.trustedRoot(t)),
		Identities: []source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "^release@"}},
	}
}

// A row is a test case for one valid or invalid signature.
type row struct {
	name   string
	recipe func(*recipe)
	bundle func(*protobundle.Bundle) // nil if the row is about layers only
	layer  func(*testenv.Blob)       // nil if the row is about bundles only
	want   string                    // parts of the error, separated by |; "" if the signature is valid
}

// test verifies the signature of the row in each of its formats.
func (r row) test(t *testing.T, s *sigstore) {
	bothFormats := r.bundle == nil && r.layer == nil
	for format, skip := range map[string]bool{"bundle": !bothFormats && r.bundle == nil, "layer": !bothFormats && r.layer == nil} {
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

// judge checks the result of a verification.
func judge(t *testing.T, got source.Verification, err error, want, signer string) {
	t.Helper()
	if want == "" {
		must(t, err)
		if got.Signer != signer || got.Mode != "cosign" || !strings.Contains(got.Message, "by '"+signer+"'") {
			t.Errorf("got %+v, want the signer %s", got, signer)
		}
		return
	}
	if !errors.Is(err, source.ErrVerification) || got != (source.Verification{}) {
		t.Errorf("got %+v and the error %v, want one that a signature is refused", got, err)
	}
	if missing := missingParts(err, want); missing != nil {
		t.Errorf("error %v\nlacks %q", err, missing)
	}
}

// TestKeyless tests valid signatures, and signatures with a missing or wrong part.
func TestKeyless(t *testing.T) {
	s, stranger := newSigstore(t), newSigstore(t)
	other := digest.FromString("something else")
	for _, r := range []row{
		{name: "good"},
		{name: "without timestamp authority", recipe: func(o *recipe) { o.stamped = false }},
		{name: "logged while the certificate was valid", recipe: func(o *recipe) {
			o.since, o.logged, o.stamped = time.Now().Add(-time.Hour), time.Now().Add(-55*time.Minute), false
		}},
		{name: "in Rekor version 2", recipe: func(o *recipe) { o.tiled = true }, bundle: func(*protobundle.Bundle) {}},
		{name: "P-384", recipe: func(o *recipe) { o.curve = elliptic.P384() }, bundle: func(*protobundle.Bundle) {}},

		{name: "certificate expired when it was logged", want: "it was logged when its certificate was not valid yet, or no longer", recipe: func(o *recipe) {
			o.since = time.Now().Add(-time.Hour)
		}},
		{name: "certificate expired when it was stamped", want: "its certificate is not of a trusted authority, or was not valid when the signature was made", recipe: func(o *recipe) {
			o.since, o.logged = time.Now().Add(-time.Hour), time.Now().Add(-55*time.Minute)
		}},
		{name: "in Rekor version 2 without a time", want: "neither a trusted log nor a trusted timestamp authority says when it was made", recipe: func(o *recipe) { o.tiled, o.stamped = true, false }, bundle: func(*protobundle.Bundle) {}},
		{name: "certificate of an authority that is not trusted", want: "its certificate is not of a trusted authority, or was not valid when the signature was made", recipe: func(o *recipe) {
			o.by = stranger
			o.stamped = false
		}},
		{name: "certificate without a timestamp of its log", want: "its certificate is in no trusted certificate transparency log", recipe: func(o *recipe) { o.ctlog = nil }},
		{name: "certificate with the timestamp of another log", want: "its certificate is in no trusted certificate transparency log", recipe: func(o *recipe) { o.ctlog = &stranger.ctlog }},
		{name: "in a log that is not trusted", want: "it comes with no entry of a trusted log", recipe: func(o *recipe) { o.rekor = &stranger.rekor }},
		{name: "by somebody else", want: "it is by evil@example.org (https://accounts.example.org), which matches no entry of spec.verify.matchOIDCIdentity", recipe: func(o *recipe) { o.identity = "evil@example.org" }},
		{name: "by somebody else of that name", want: "it is by release@example.org (https://accounts.example.com), which matches no entry", recipe: func(o *recipe) { o.issuer = "https://accounts.example.com" }},
		{name: "of something else", want: "it is the signature of something else", recipe: func(o *recipe) { o.digest = other }, bundle: func(*protobundle.Bundle) {}},
		{name: "of something else", want: "it is the signature of something else|" + other.String(), recipe: func(o *recipe) { o.digest = other }, layer: func(*testenv.Blob) {}},
		{name: "attestation", want: "it is an attestation of \"https://spdx.dev/Document\", not a signature", recipe: func(o *recipe) { o.predicate = "https://spdx.dev/Document" }, bundle: func(*protobundle.Bundle) {}},
		{name: "not a statement", want: "not an in-toto statement", recipe: func(o *recipe) { o.statement = "https://example.org/Statement" }, bundle: func(*protobundle.Bundle) {}},
		{name: "payload of another type", want: "its envelope holds \"text/plain\"", recipe: func(o *recipe) { o.payload = "text/plain" }, bundle: func(*protobundle.Bundle) {}},
		{name: "payload of another type", want: "its payload is \"atomic container signature\"", recipe: func(o *recipe) { o.payload = "atomic container signature" }, layer: func(*testenv.Blob) {}},
	} {
		r.test(t, s)
	}
}

// TestKeylessBundle tests bundles that an attacker without a key can make.
func TestKeylessBundle(t *testing.T) {
	s := newSigstore(t)
	d := digest.FromString("something else")
	swap := s.good(d).bundle(t) // a valid bundle of another subject
	material := func(b *protobundle.Bundle) *protobundle.VerificationMaterial { return b.VerificationMaterial }
	for _, r := range []row{
		{name: "without an entry in Rekor", want: "it comes with no entry of a trusted log", bundle: func(b *protobundle.Bundle) { material(b).TlogEntries = nil }},
		{name: "with the entry of another signature", want: "transparency log signature does not match", bundle: func(b *protobundle.Bundle) {
			material(b).TlogEntries = swap.VerificationMaterial.TlogEntries
		}},
		{name: "with the certificate of another signature", want: "transparency log certificate does not match", bundle: func(b *protobundle.Bundle) {
			material(b).Content = swap.VerificationMaterial.Content
		}},
		{name: "with the envelope of another signature", want: "transparency log signature does not match", bundle: func(b *protobundle.Bundle) { b.Content = swap.Content }},
		{name: "with the payload of another signature", want: "payload hash", bundle: func(b *protobundle.Bundle) {
			b.GetDsseEnvelope().Payload = swap.GetDsseEnvelope().Payload
		}},
		{name: "with the timestamp of another signature alone", want: "neither a trusted log nor a trusted timestamp authority says when it was made", recipe: func(o *recipe) { o.tiled = true }, bundle: func(b *protobundle.Bundle) {
			material(b).TimestampVerificationData = swap.VerificationMaterial.TimestampVerificationData
		}},
		{name: "logged at another time than promised", want: "it comes with no entry of a trusted log", bundle: func(b *protobundle.Bundle) {
			material(b).TlogEntries[0].IntegratedTime++
		}},
		{name: "logged without promise or proof", want: "inclusion proof", bundle: func(b *protobundle.Bundle) {
			material(b).TlogEntries[0].InclusionProof, material(b).TlogEntries[0].InclusionPromise = nil, nil
		}},
		{name: "logged with the proof of another entry", want: "cannot verify log inclusion", bundle: func(b *protobundle.Bundle) {
			material(b).TlogEntries[0].InclusionProof = swap.VerificationMaterial.TlogEntries[0].InclusionProof
		}},
		{name: "with the same entry twice", want: "duplicate tlog entries", bundle: func(b *protobundle.Bundle) {
			material(b).TlogEntries = append(material(b).TlogEntries, material(b).TlogEntries[0])
		}},
		{name: "with 33 entries", want: "too many tlog entries: 33 > 32", bundle: func(b *protobundle.Bundle) {
			for range 32 {
				material(b).TlogEntries = append(material(b).TlogEntries, material(b).TlogEntries[0])
			}
		}},
		{name: "with a signature more", want: "its envelope has 2 signatures, want one", bundle: func(b *protobundle.Bundle) {
			b.GetDsseEnvelope().Signatures = append(b.GetDsseEnvelope().Signatures, swap.GetDsseEnvelope().Signatures...)
		}},
		{name: "without a signature", want: "its envelope has 0 signatures, want one", bundle: func(b *protobundle.Bundle) { b.GetDsseEnvelope().Signatures = nil }},
		{name: "with a key instead of a certificate", want: "it was made with a key, not with a certificate", bundle: func(b *protobundle.Bundle) {
			material(b).Content = &protobundle.VerificationMaterial_PublicKey{PublicKey: &protocommon.PublicKeyIdentifier{Hint: "x"}}
		}},
		{name: "with a chain of certificates", want: "cannot be X.509 certificate chain", bundle: func(b *protobundle.Bundle) {
			material(b).Content = &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &protocommon.X509CertificateChain{
				Certificates: []*protocommon.X509Certificate{material(b).GetCertificate()},
			}}
		}},
		{name: "with a certificate that is none", want: "x509", bundle: func(b *protobundle.Bundle) { material(b).GetCertificate().RawBytes = []byte("junk") }},
		{name: "with a message instead of an envelope", want: "holds no DSSE envelope", bundle: func(b *protobundle.Bundle) {
			b.Content = &protobundle.Bundle_MessageSignature{MessageSignature: &protocommon.MessageSignature{
				MessageDigest: &protocommon.HashOutput{Algorithm: protocommon.HashAlgorithm_SHA2_256, Digest: []byte("x")}, Signature: []byte("x"),
			}}
		}},
		{name: "of a version to come", want: "bundle version v0.4", bundle: func(b *protobundle.Bundle) { b.MediaType = strings.Replace(bundleType, "0.3", "0.4", 1) }},
	} {
		r.test(t, s)
	}
}

// TestKeylessLayer tests layers that an attacker without a key can make.
func TestKeylessLayer(t *testing.T) {
	s := newSigstore(t)
	const (
		sig   = "dev.cosignproject.cosign/signature"
		leaf  = "dev.sigstore.cosign/certificate"
		chain = "dev.sigstore.cosign/chain"
		rekor = "dev.sigstore.cosign/bundle"
		stamp = "dev.sigstore.cosign/rfc3161timestamp"
	)
	swap := s.good(digest.FromString("something else")).layer(t)
	set := func(key, value string) func(*testenv.Blob) {
		return func(b *testenv.Blob) { b.Annotations[key] = value }
	}
	take := func(keys ...string) func(*testenv.Blob) {
		return func(b *testenv.Blob) {
			for _, key := range keys {
				b.Annotations[key] = swap.Annotations[key]
			}
		}
	}
	intermediate := pemOf("CERTIFICATE", string(s.fulcio.Intermediates[0].Raw))
	for _, r := range []row{
		{name: "without a signature", want: sig, layer: set(sig, "")},
		{name: "with a signature that is no base64", want: sig, layer: set(sig, "!")},
		{name: "with another signature", want: "transparency log signature does not match", layer: take(sig)},
		{name: "without a certificate", want: "it was made with a key, not with a certificate", layer: set(leaf, "")},
		{name: "with a certificate that is none", want: leaf, layer: set(leaf, pemOf("CERTIFICATE", "junk"))},
		{name: "with two certificates", want: "2 certificates, want one", layer: set(leaf, intermediate+intermediate)},
		{name: "with another certificate", want: "transparency log certificate does not match", layer: take(leaf)},
		{name: "with a key as certificate", want: leaf, layer: set(leaf, publicPEM(t, ecKey(t, elliptic.P256()).Public()))},
		{name: "with another payload", want: "digest", layer: func(b *testenv.Blob) { b.Data = swap.Data }},
		{name: "with the whole of another signature", want: "it is the signature of something else", layer: func(b *testenv.Blob) { *b = *swap }},
		{name: "with another certificate and signature", want: "digest", layer: take(sig, leaf, rekor, stamp)},
		{name: "without an entry in Rekor", want: "it comes with no entry of a trusted log", layer: set(rekor, "")},
		{name: "with an entry that is none", want: rekor, layer: set(rekor, "{}")},
		{name: "with an entry of no JSON", want: rekor, layer: set(rekor, "{")},
		{name: "with the entry of another signature", want: "transparency log signature does not match", layer: take(rekor)},
		{name: "with a timestamp that is none", want: stamp, layer: set(stamp, "{")},
		{name: "with the timestamp of another signature", layer: take(stamp)}, // the time of Rekor is used
		{name: "without the chain", layer: set(chain, "")},
		{name: "with a chain that is none", want: chain, layer: set(chain, pemOf("CERTIFICATE", "junk"))},
		{name: "with an endless chain", want: "more than 8 certificates", layer: set(chain, strings.Repeat(intermediate, 9))},
		{name: "of another media type", want: "it has the type \"text/plain\"", layer: func(b *testenv.Blob) { b.MediaType = "text/plain" }},
		{name: "with more than 64 KiB", want: "more than the limit of 65536", layer: func(b *testenv.Blob) { b.Data = append(b.Data, strings.Repeat(" ", 64<<10)...) }},
	} {
		r.test(t, s)
	}
}

// TestHostileLog tests invalid entries that a trusted log has signed. None may make a
// signature valid or cause a panic.
func TestHostileLog(t *testing.T) {
	s := newSigstore(t)
	none := map[string]any{}
	list := []any{none}
	for name, change := range map[string]func(string, map[string]any) (string, map[string]any){
		"without content":    func(kind string, _ map[string]any) (string, map[string]any) { return kind, none },
		"of an unknown kind": func(_ string, spec map[string]any) (string, map[string]any) { return "unknown", spec },
		"of no kind":         func(_ string, spec map[string]any) (string, map[string]any) { return "", spec },
		"rekord":             func(_ string, spec map[string]any) (string, map[string]any) { return "rekord", spec },
		"without a hash": func(kind string, spec map[string]any) (string, map[string]any) {
			spec["data"], spec["payloadHash"] = none, none
			return kind, spec
		},
		"without a key": func(kind string, spec map[string]any) (string, map[string]any) {
			spec["signature"], spec["signatures"] = map[string]any{"content": "AAAA"}, []any{map[string]any{"signature": "AAAA"}}
			return kind, spec
		},
		"without a signature": func(kind string, spec map[string]any) (string, map[string]any) {
			spec["signature"], spec["signatures"] = none, []any{}
			return kind, spec
		},
		"with an empty signature": func(kind string, spec map[string]any) (string, map[string]any) {
			spec["signature"], spec["signatures"] = map[string]any{"publicKey": none}, list
			return kind, spec
		},
		"in-toto": func(string, map[string]any) (string, map[string]any) {
			return "intoto", map[string]any{"content": map[string]any{"envelope": map[string]any{"payloadType": "x", "signatures": list}}}
		},
	} {
		row{name: name, want: "no signature of", recipe: func(o *recipe) { o.entry = change }}.test(t, s)
	}
}

// TestGiantKeys tests RSA keys that keep the libraries busy for seconds, in all places where
// they use a key before they check whether it is trusted.
func TestGiantKeys(t *testing.T) {
	s := newSigstore(t)
	key := hugeRSAKey(t, 64<<13)
	c := s.certify(t, identity, issuer, time.Now(), key, nil)
	const want = "RSA key of 524288 bits, more than the limit of 8192"
	small := hugeRSAKey(t, 10_000)
	const wantSmall = "RSA key of 10000 bits, more than the limit of 8192"
	entry := func(change func(spec map[string]any)) func(*recipe) {
		return func(o *recipe) {
			o.entry = func(kind string, spec map[string]any) (string, map[string]any) {
				change(spec)
				return kind, spec
			}
		}
	}
	token := func() []byte {
		p, err := pkcs7.NewSignedData([]byte("x"))
		must(t, err)
		p.AddCertificate(s.certify(t, identity, issuer, time.Now(), small, nil))
		der, err := p.Finish()
		must(t, err)
		der, err = asn1.Marshal(struct {
			Status struct{ Code int }
			Token  asn1.RawValue
		}{Token: asn1.RawValue{FullBytes: der}})
		must(t, err)
		return der
	}
	for _, r := range []row{
		{name: "in an entry", want: wantSmall, recipe: entry(func(spec map[string]any) {
			spec["signature"] = map[string]any{"content": "AAAA", "publicKey": map[string]any{"content": []byte(publicPEM(t, small))}}
		}), layer: func(*testenv.Blob) {}},
		{name: "in an entry that is proposed", want: wantSmall, recipe: entry(func(spec map[string]any) {
			clear(spec)
			spec["proposedContent"] = map[string]any{"envelope": "{}", "verifiers": [][]byte{[]byte(publicPEM(t, small))}}
		}), bundle: func(*protobundle.Bundle) {}},
		{name: "in an entry of too many bytes", want: "more than the limit of 65536", recipe: entry(func(spec map[string]any) {
			spec["verifiers"] = []byte(publicPEM(t, key))
		})},
		{name: "in the chain", want: want, layer: func(b *testenv.Blob) {
			b.Annotations["dev.sigstore.cosign/chain"] = pemOf("CERTIFICATE", string(c.Raw))
		}},
		{name: "in a timestamp", want: wantSmall, layer: func(b *testenv.Blob) {
			text, err := json.Marshal(map[string]any{"SignedRFC3161Timestamp": token()})
			must(t, err)
			b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
		}},
		{name: "in a timestamp", want: wantSmall, bundle: func(b *protobundle.Bundle) {
			b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = token()
		}},
	} {
		r.test(t, s)
	}
}
