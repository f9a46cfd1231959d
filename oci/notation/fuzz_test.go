package notation_test

import (
	"crypto/rsa"
	"testing"

	"github.com/notaryproject/notation-core-go/signature"
	"github.com/notaryproject/notation-core-go/signature/cose"
	"github.com/notaryproject/notation-core-go/signature/jws"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci/notation"
)

// FuzzTrust checks that what is accepted of a Secret has a policy that can be
// asked, and certificates.
func FuzzTrust(f *testing.F) {
	f.Add([]byte(`{"version":"1.0","trustPolicies":[{"name":"a","registryScopes":["*"],"signatureVerification":{"level":"strict"},"trustStores":["ca:x"],"trustedIdentities":["*"]}]}`), []byte("x"))
	f.Add([]byte(`{"version":"1.0","trustPolicies":[{"name":"a","registryScopes":["r.example/a"],"signatureVerification":{"level":"skip"},"trustStores":["ca:x"]}]}`), []byte("-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"))
	f.Add([]byte(`null`), []byte("\x30\x00"))
	f.Fuzz(func(t *testing.T, policy, certs []byte) {
		trust, err := notation.ReadTrust(secretOf(map[string]string{"trustpolicy.json": string(policy), "ca.crt": string(certs)}))
		if err != nil {
			return
		}
		if len(trust.Certificates()) == 0 {
			t.Error("accepted without certificates")
		}
		if name, level, err := trust.Statement("r.example/a"); err == nil && (level == "" || name == "") {
			t.Errorf("statement %q at level %q", name, level)
		}
	})
}

// FuzzManifest checks that an envelope that would be read is bounded.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"application/cose","digest":"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855","size":1}]}`))
	f.Add([]byte(`{"blobs":[{"size":9223372036854775807}],"layers":null}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, manifest []byte) {
		d, err := notation.EnvelopeOf(manifest)
		if err == nil && (d.Size < 0 || d.Size > notation.MaxSignature || d.Digest.Validate() != nil) {
			t.Errorf("accepted %+v", d)
		}
	})
}

// FuzzEnvelope checks that what the verifier of the library makes of an envelope
// that is let through is bounded: both decode alike.
func FuzzEnvelope(f *testing.F) {
	leaf := newSigner(f, authority(f, "root"), "builder", nil)
	for _, mediaType := range mediaTypes {
		f.Add(leaf.sign(f, ocispec.DescriptorEmptyJSON, mediaType, nil), mediaType == jws.MediaTypeEnvelope)
	}
	f.Add([]byte(`{"header":{"x5c":["AAAA"],"io.cncf.notary.timestampSignature":"AAAA"}}`), true)
	f.Fuzz(func(t *testing.T, envelope []byte, json bool) {
		mediaType := cose.MediaTypeEnvelope
		if json {
			mediaType = jws.MediaTypeEnvelope
		}
		if notation.CheckEnvelope(envelope, mediaType) != nil {
			return
		}
		parsed, err := signature.ParseEnvelope(mediaType, envelope)
		if err != nil {
			return
		}
		content, err := parsed.Verify()
		if err != nil {
			return
		}
		for _, c := range content.SignerInfo.CertificateChain {
			if key, ok := c.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > notation.MaxKeyBits {
				t.Errorf("accepted a key of %d bits", key.N.BitLen())
			}
		}
	})
}
