package cosign_test

import (
	"crypto/elliptic"
	"encoding/asn1"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/digitorus/pkcs7"
	digest "github.com/opencontainers/go-digest"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	protocommon "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"

	"github.com/headgate-io/headgate/internal/testenv"
)

// TestKeyless is about signatures that hold and those that miss something.
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
		{name: "by somebody else", want: "it is by evil@example.org (https://accounts.example.org), whom no entry of spec.verify.matchOIDCIdentity matches", recipe: func(o *recipe) { o.identity = "evil@example.org" }},
		{name: "by somebody else of that name", want: "it is by release@example.org (https://accounts.example.com), whom no entry", recipe: func(o *recipe) { o.issuer = "https://accounts.example.com" }},
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

// TestKeylessBundle is about bundles that somebody without a key put together.
func TestKeylessBundle(t *testing.T) {
	s := newSigstore(t)
	d := digest.FromString("something else")
	swap := s.good(d).bundle(t) // a good bundle of something else
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

// TestKeylessLayer is about layers that somebody without a key put together.
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
		{name: "with the timestamp of another signature", layer: take(stamp)}, // Rekor says when
		{name: "without the chain", layer: set(chain, "")},
		{name: "with a chain that is none", want: chain, layer: set(chain, pemOf("CERTIFICATE", "junk"))},
		{name: "with an endless chain", want: "more than 8 certificates", layer: set(chain, strings.Repeat(intermediate, 9))},
		{name: "of another media type", want: "it has the type \"text/plain\"", layer: func(b *testenv.Blob) { b.MediaType = "text/plain" }},
		{name: "with more than 64 KiB", want: "more than the limit of 65536", layer: func(b *testenv.Blob) { b.Data = append(b.Data, strings.Repeat(" ", 64<<10)...) }},
	} {
		r.test(t, s)
	}
}

// TestHostileLog has a trusted log sign entries that no log should take. None
// may make a signature hold, and none may panic.
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

// TestGiantKeys has RSA keys that take the libraries seconds to compute with,
// wherever they would do so before they ask who trusts them.
func TestGiantKeys(t *testing.T) {
	s := newSigstore(t)
	key := giant(t, 64<<13)
	c := s.certify(t, identity, issuer, time.Now(), key, nil)
	const want = "RSA key of 524288 bits, more than the limit of 8192"
	small := giant(t, 10_000)
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
		check(t, err)
		p.AddCertificate(s.certify(t, identity, issuer, time.Now(), small, nil))
		der, err := p.Finish()
		check(t, err)
		der, err = asn1.Marshal(struct {
			Status struct{ Code int }
			Token  asn1.RawValue
		}{Token: asn1.RawValue{FullBytes: der}})
		check(t, err)
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
			check(t, err)
			b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text)
		}},
		{name: "in a timestamp", want: wantSmall, bundle: func(b *protobundle.Bundle) {
			b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = token()
		}},
	} {
		r.test(t, s)
	}
}
