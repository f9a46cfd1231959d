package cosign_test

import (
	"bytes"
	"context"
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/cosign"
	"github.com/headgate-io/headgate/source"
)

// TestRefused tests recorded signatures by keys, with changes that an attacker with write
// access to the registry could make.
func TestRefused(t *testing.T) {
	stranger := oci.Trust{Keys: secret("stranger.pub", publicPEM(t, ecKey(t, elliptic.P256()).Public()))}
	for _, test := range []struct {
		name   string
		layout string
		trust  oci.Trust
		spoil  func(*testing.T, *testenv.Registry, *layout)
		want   string
	}{
		{name: "wrong key", layout: "cosign3", trust: stranger, want: "it was not made with the key SHA256:"},
		{name: "wrong key", layout: "cosign2", trust: stranger, want: "signature 1 of the tag: it was not made with the key SHA256:"},
		{name: "several wrong keys", layout: "cosign2", want: "signature 5 of the tag: it was made with none of the 2 keys", trust: oci.Trust{Keys: secret(
			"a.pub", publicPEM(t, ecKey(t, elliptic.P256()).Public()), "b.pub", publicPEM(t, ecKey(t, elliptic.P521()).Public()))}},
		{name: "attestation", layout: "attested", want: "is not signed: what refers to it are 1 attestations"},
		{name: "attestation under the name of a signature", layout: "attested", spoil: rename,
			want: `it is an attestation of "https://spdx.dev/Document", not a signature`},
		{name: "signature of something else", layout: "cosign3", spoil: moveBundles, want: "it is the signature of something else"},
		{name: "signature of something else", layout: "cosign2", spoil: moveTag, want: "it is the signature of something else"},
		{name: "tampered bundle", layout: "cosign3", spoil: tamper(bundleType), want: "bundle sha256:"},
		{name: "tampered payload", layout: "cosign2", spoil: tamper(simpleType), want: "signature 1 of the tag: "},
		{name: "tampered payload, and the manifest with it", layout: "cosign2", spoil: forge, want: "signature 1 of the tag: it was not made with the key"},
		{name: "tag without layers", layout: "attested", want: "manifest without layers", spoil: func(_ *testing.T, g *testenv.Registry, l *layout) {
			tag(g, "app", l.subject)
		}},
	} {
		t.Run(test.name+"/"+test.layout, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			l := openLayout(t, test.layout)
			l.push(t, g, "app")
			if test.spoil != nil {
				test.spoil(t, g, l)
			}
			if test.trust.Keys.Name == "" {
				test.trust = recorded(t, "p256")
			}
			got, err := verify(t, g, "app", test.trust, l.subject)
			judge(t, got, err, test.want, "")
		})
	}
}

// manifests returns the manifests of l that contain a signature.
func (l *layout) manifests(t *testing.T) (all []ocispec.Manifest) {
	t.Helper()
	for _, d := range l.index.Manifests {
		var m ocispec.Manifest
		must(t, json.Unmarshal(l.blob(t, d.Digest), &m))
		if len(m.Layers) > 0 && d.Digest != l.subject.Digest {
			all = append(all, m)
		}
	}
	return all
}

// layers returns the layers of m with their content.
func (l *layout) layers(t *testing.T, m ocispec.Manifest) (all []testenv.Blob) {
	t.Helper()
	for _, d := range m.Layers {
		all = append(all, testenv.Blob{MediaType: d.MediaType, Annotations: d.Annotations, Data: l.blob(t, d.Digest)})
	}
	return all
}

// replaceSubject replaces the subject of l by another one.
func replaceSubject(g *testenv.Registry, l *layout) { l.subject = subjectOf(g, "app") }

// moveBundles makes the bundles refer to another subject.
func moveBundles(t *testing.T, g *testenv.Registry, l *layout) {
	all := l.manifests(t)
	replaceSubject(g, l)
	for _, m := range all {
		refer(g, "app", l.subject, l.layers(t, m)...)
	}
}

// moveTag stores the signatures under the tag of another subject.
func moveTag(t *testing.T, g *testenv.Registry, l *layout) {
	m := l.manifests(t)[0]
	replaceSubject(g, l)
	tag(g, "app", l.subject, l.layers(t, m)...)
}

// rename annotates an attestation as a signature.
func rename(t *testing.T, g *testenv.Registry, l *layout) {
	refer(g, "app", l.subject, l.layers(t, l.manifests(t)[0])...)
}

// tamper replaces the blobs of a media type in the registry.
func tamper(mediaType string) func(*testing.T, *testenv.Registry, *layout) {
	return func(t *testing.T, g *testenv.Registry, l *layout) {
		for _, m := range l.manifests(t) {
			for _, b := range l.layers(t, m) {
				if b.MediaType == mediaType {
					g.Override("app", b.Descriptor().Digest.String(), true, "application/octet-stream", []byte(strings.Repeat("x", len(b.Data))))
				}
			}
		}
	}
}

// forge replaces the payload of the signatures.
func forge(t *testing.T, g *testenv.Registry, l *layout) {
	layers := l.layers(t, l.manifests(t)[0])
	for i := range layers {
		layers[i].Data = []byte(strings.Replace(string(layers[i].Data), `"optional":null`, `"optional":{"a":"b"}`, 1))
	}
	tag(g, "app", l.subject, layers...)
}

// TestLongDigest tests a subject whose digest is too long for a signature tag.
func TestLongDigest(t *testing.T) {
	for sort, config := range registries {
		t.Run(sort, func(t *testing.T) {
			g := testenv.StartRegistry(t, config)
			subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: digest.SHA512.FromString("x"), Size: 1}
			got, err := verify(t, g, "app", recorded(t, "p256"), subject)
			judge(t, got, err, "app@"+subject.Digest.String()+" is not signed", "")
		})
	}
}

// TestOthers tests a subject with referrers that are not bundles.
func TestOthers(t *testing.T) {
	for sort, config := range registries {
		t.Run(sort, func(t *testing.T) {
			g := testenv.StartRegistry(t, config)
			subject := subjectOf(g, "app")
			g.Push("app", "", testenv.Manifest{Subject: &subject})
			g.Push("app", "", testenv.Manifest{Subject: &subject, ArtifactType: "application/vnd.cncf.notary.signature"})
			g.PushIndex("app", "", testenv.Index{Subject: &subject})
			got, err := verify(t, g, "app", recorded(t, "p256"), subject)
			judge(t, got, err, "is not signed", "")
		})
	}
}

// TestOneGoodIsEnough tests invalid signatures before a valid one.
func TestOneGoodIsEnough(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true})
	l := openLayout(t, "cosign2")
	l.push(t, g, "app")
	refer(g, "app", l.subject, testenv.Blob{MediaType: bundleType, Data: []byte("{")})
	refer(g, "app", l.subject, testenv.Blob{MediaType: "text/plain", Data: []byte("x")})
	refer(g, "app", l.subject)
	refer(g, "app", l.subject, testenv.Blob{MediaType: bundleType, Data: []byte(strings.Repeat(" ", 1<<20+1))})
	g.PushIndex("app", "", testenv.Index{ArtifactType: bundleType, Subject: &l.subject})
	got, err := verify(t, g, "app", recorded(t, "p256"), l.subject)
	judge(t, got, err, "", fingerprint(t, "p256"))

	got, err = verify(t, g, "app", recorded(t, "p384"), openLayout(t, "cosign3").subject)
	judge(t, got, err, "is not signed", "")

	stranger := oci.Trust{Keys: secret("a.pub", publicPEM(t, ecKey(t, elliptic.P256()).Public()))}
	got, err = verify(t, g, "app", stranger, l.subject)
	judge(t, got, err, "unexpected EOF|has 0 layers, want one|its manifest has 1 layers, want one|1048577 bytes, more than the limit of 1048576|and 5 more", "")
}

// TestKeysAndCertificates tests keyless signatures with trusted keys, and signatures by keys with
// trusted identities.
func TestKeysAndCertificates(t *testing.T) {
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "app")
	attach(t, g, "app", subject, s.good(subject.Digest).bundle(t))
	got, err := verify(t, g, "app", recorded(t, "p256"), subject)
	judge(t, got, err, "it was made with a certificate, not with a key: spec.verify.matchOIDCIdentity", "")

	l := openLayout(t, "cosign3")
	l.push(t, g, "keys")
	got, err = verify(t, g, "keys", s.trust(t), l.subject)
	judge(t, got, err, "it was made with a key, not with a certificate: spec.verify.secretRef", "")
}

// TestSignatureByKey tests payloads that a trusted key signed, but that are not signatures of the
// subject.
func TestSignatureByKey(t *testing.T) {
	key := ecKey(t, elliptic.P256())
	trust := oci.Trust{Keys: secret("a.pub", publicPEM(t, key.Public()))}
	const inToto = "application/vnd.in-toto+json"
	of := func(d digest.Digest) string {
		return fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","predicateType":"https://sigstore.dev/cosign/sign/v1","subject":[{"digest":{"sha1":"0"}},{"digest":{"sha256":%q}}]}`, d.Encoded())
	}
	for name, test := range map[string]struct {
		kind    string
		payload func(digest.Digest) string
		want    string
	}{
		"good":                   {inToto, of, ""},
		"another payload type":   {"application/json", of, `its envelope holds "application/json"`},
		"no subject":             {inToto, func(d digest.Digest) string { return strings.Replace(of(d), `"subject"`, `"object"`, 1) }, "the signature of something else: []"},
		"subject without digest": {inToto, func(d digest.Digest) string { return strings.Replace(of(d), `"sha256"`, `"sha512"`, 1) }, "the signature of something else"},
		"no JSON":                {inToto, func(digest.Digest) string { return "{" }, "its statement: "},
		"digest in capitals": {inToto, func(d digest.Digest) string {
			return strings.Replace(of(d), d.Encoded(), strings.ToUpper(d.Encoded()), 1)
		}, "something else"},
	} {
		t.Run(name, func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{})
			subject := subjectOf(g, "app")
			payload := test.payload(subject.Digest)
			sig := sign(t, key, dsse.PAE(test.kind, []byte(payload)))
			text := fmt.Sprintf(`{"mediaType":%q,"verificationMaterial":{"publicKey":{"hint":"any"}},"dsseEnvelope":{"payload":%q,"payloadType":%q,"signatures":[{"sig":%q}]}}`,
				bundleType, base64.StdEncoding.EncodeToString([]byte(payload)), test.kind, base64.StdEncoding.EncodeToString(sig))
			refer(g, "app", subject, testenv.Blob{MediaType: bundleType, Data: []byte(text)})
			v, err := cosign.New(cosign.Config{})(connect(t, g, "app"), trust)
			must(t, err)
			got, err := v.Verify(t.Context(), subject)
			judge(t, got, err, test.want, got.Signer)
		})
	}
}

// TestKeyIsEnough checks that an invalid entry in Rekor, chain or timestamp of a signature by a
// key is ignored.
func TestKeyIsEnough(t *testing.T) {
	key := ecKey(t, elliptic.P256())
	trust := oci.Trust{Keys: secret("a.pub", publicPEM(t, key.Public()))}
	s := newSigstore(t)
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "layer")
	b := s.good(subject.Digest).layer(t)
	for _, k := range []string{"certificate", "chain", "bundle", "rfc3161timestamp"} {
		b.Annotations["dev.sigstore.cosign/"+k] = "junk"
	}
	b.Annotations["dev.cosignproject.cosign/signature"] = base64.StdEncoding.EncodeToString(sign(t, key, b.Data))
	tag(g, "layer", subject, *b)
	got, err := verify(t, g, "layer", trust, subject)
	judge(t, got, err, "", got.Signer)

	subject = subjectOf(g, "bundle")
	bundle := s.good(subject.Digest).bundle(t)
	bundle.VerificationMaterial.TlogEntries[0].CanonicalizedBody = []byte("junk")
	bundle.VerificationMaterial.GetCertificate().RawBytes = []byte("junk")
	e := bundle.GetDsseEnvelope()
	e.Signatures[0].Sig = sign(t, key, dsse.PAE(e.PayloadType, e.Payload))
	attach(t, g, "bundle", subject, bundle)
	got, err = verify(t, g, "bundle", trust, subject)
	judge(t, got, err, "", got.Signer)
}

// TestLimits tests a subject with too many signatures.
func TestLimits(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	subject := subjectOf(g, "app")
	var layers []testenv.Blob
	for i := range 40 {
		refer(g, "app", subject, testenv.Blob{MediaType: bundleType, Data: fmt.Appendf(nil, "{%d", i)})
		layers = append(layers, testenv.Blob{MediaType: simpleType, Data: fmt.Appendf(nil, "{%d", i)})
	}
	tag(g, "app", subject, layers...)
	g.Reset()
	got, err := verify(t, g, "app", recorded(t, "p256"), subject)
	judge(t, got, err, "and 61 more", "")
	testenv.Equal(t, g.Count(testenv.GetBlob), 64, "blobs were read")

	attested := subjectOf(g, "attested")
	for i := range 260 {
		g.Push("attested", "", testenv.Manifest{ArtifactType: bundleType, Subject: &attested, Annotations: map[string]string{
			"dev.sigstore.bundle.predicateType": "https://example.org", "n": fmt.Sprint(i)}})
	}
	got, err = verify(t, g, "attested", recorded(t, "p256"), attested)
	judge(t, got, err, "there are more, beyond the limit of 32 signatures among 256 manifests", "")
}

// TestSubject tests an invalid digest.
func TestSubject(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{})
	_, err := verify(t, g, "app", recorded(t, "p256"), ocispec.Descriptor{Digest: "sha256:abc"})
	if missing := missingParts(err, "verify \"sha256:abc\""); missing != nil || errors.Is(err, source.ErrVerification) || g.Count() > 0 {
		t.Errorf("error %v lacks %q, %d requests", err, missing, g.Count())
	}
}

// TestTrouble checks that an error of a registry is reported neither as a refused nor as a
// missing signature.
func TestTrouble(t *testing.T) {
	for phase, format := range map[testenv.Phase]string{
		testenv.ListReferrers: "cosign3", testenv.HeadManifest: "cosign2", testenv.GetManifest: "cosign3", testenv.GetBlob: "cosign2",
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: phase, Status: http.StatusForbidden}})
			l := openLayout(t, format)
			l.push(t, g, "app")
			got, err := verify(t, g, "app", recorded(t, "p256"), l.subject)
			if err == nil || errors.Is(err, source.ErrVerification) || got != (source.Verification{}) {
				t.Fatalf("got %+v, error %v", got, err)
			}
			if missing := missingParts(err, "signatures of |app@sha256:|403"); missing != nil {
				t.Errorf("error %v lacks %q", err, missing)
			}
		})
	}
}

// TestTroubleAndRefusal tests a registry that fails for one format: a valid signature in the
// other is sufficient; if that is invalid, the error reports both.
func TestTroubleAndRefusal(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.ListReferrers, Status: http.StatusForbidden}})
	l := openLayout(t, "cosign2")
	l.push(t, g, "app")
	got, err := verify(t, g, "app", recorded(t, "p256"), l.subject)
	judge(t, got, err, "", fingerprint(t, "p256")) // the other format is sufficient
	_, err = verify(t, g, "app", oci.Trust{Keys: secret("a.pub", publicPEM(t, ecKey(t, elliptic.P256()).Public()))}, l.subject)
	if missing := missingParts(err, "403|of those that could be read none holds: signature 1 of the tag"); missing != nil || errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v lacks %q", err, missing)
	}
}

// TestCancelled checks that verification ends with its context.
func TestCancelled(t *testing.T) {
	g := testenv.StartRegistry(t, testenv.RegistryConfig{Defect: &testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Stall}})
	l := openLayout(t, "cosign3")
	l.push(t, g, "app")
	v, err := cosign.New(cosign.Config{})(connect(t, g, "app"), recorded(t, "p256"))
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, err := v.Verify(ctx, l.subject)
		done <- err
	}()
	<-g.Stalled()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, source.ErrVerification) {
		t.Errorf("error %v, want that of the context", err)
	}
}

// answer returns a response of a timestamp authority with content in its token.
func answer(t testing.TB, content []byte) []byte {
	t.Helper()
	der, err := asn1.Marshal(struct {
		Status struct{ Code int }
		Token  asn1.RawValue
	}{Token: asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: content}})
	must(t, err)
	return der
}

// nest returns DER with depth nested sequences.
func nest(t testing.TB, depth int) (der []byte) {
	t.Helper()
	for range depth {
		var err error
		der, err = asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: der})
		must(t, err)
	}
	return der
}

// TestHeavyTimestamps tests timestamps that would keep the libraries busy for minutes or
// overflow the stack before they check the signer.
func TestHeavyTimestamps(t *testing.T) {
	s := newSigstore(t)
	indefinite := func(n int, unit ...byte) []byte {
		return append(append([]byte{0x30, 0x80}, bytes.Repeat(unit, n)...), 0, 0)
	}
	for _, c := range []struct {
		name    string
		content []byte
		want    string
	}{
		{"too long", indefinite(200_000, 0x30, 0x80), "more than the limit of 65536"},
		{"deep without lengths", indefinite(30_000, 0x30, 0x80), "indefinite length"},
		{"wide without lengths", indefinite(20_000, 5, 1, 1), "indefinite length"},
		{"deep", nest(t, 5_000), "nested deeper than the limit of 32"},
		{"cut", []byte{0x30, 5, 0}, "asn1: "},
	} {
		stamp := answer(t, c.content)
		text, err := json.Marshal(map[string]any{"SignedRFC3161Timestamp": stamp})
		must(t, err)
		row{name: c.name, want: "timestamp|" + c.want,
			layer: func(b *testenv.Blob) { b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text) },
			bundle: func(b *protobundle.Bundle) {
				b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = stamp
			}}.test(t, s)
	}
}

// TestHeavyRoot tests a trusted root with a key that is too large.
func TestHeavyRoot(t *testing.T) {
	s := newSigstore(t)
	trust := s.trust(t)
	s.fulcio.Intermediates[0] = s.certify(t, identity, issuer, time.Now(), hugeRSAKey(t, 10_000), nil)
	trust.Root = secret("trusted_root.json", s.trustedRoot(t))
	_, err := cosign.New(cosign.Config{})(connect(t, testenv.StartRegistry(t, testenv.RegistryConfig{}), "app"), trust)
	want := "spec.verify.trustedRootSecretRef: secret default/trust: entry trusted_root.json|RSA key of 10000 bits, more than the limit of 8192"
	if missing := missingParts(err, want); missing != nil {
		t.Errorf("error %v lacks %q", err, missing)
	}
}
