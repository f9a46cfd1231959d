package cosign_test

import (
	"bytes"
	"encoding/asn1"
	"encoding/json"
	"testing"
	"time"

	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci/cosign"
)

// answer returns one of a timestamp authority with content in its token.
func answer(t testing.TB, content []byte) []byte {
	t.Helper()
	der, err := asn1.Marshal(struct {
		Status struct{ Code int }
		Token  asn1.RawValue
	}{Token: asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: content}})
	check(t, err)
	return der
}

// nest returns DER with depth sequences, each in the one before.
func nest(t testing.TB, depth int) (der []byte) {
	t.Helper()
	for range depth {
		var err error
		der, err = asn1.Marshal(asn1.RawValue{Tag: asn1.TagSequence, IsCompound: true, Bytes: der})
		check(t, err)
	}
	return der
}

// TestHeavyTimestamps has timestamps that take the libraries minutes, or more
// stack than there is, before they ask who made them.
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
		check(t, err)
		row{name: c.name, want: "timestamp|" + c.want,
			layer: func(b *testenv.Blob) { b.Annotations["dev.sigstore.cosign/rfc3161timestamp"] = string(text) },
			bundle: func(b *protobundle.Bundle) {
				b.VerificationMaterial.TimestampVerificationData.Rfc3161Timestamps[0].SignedTimestamp = stamp
			}}.test(t, s)
	}
}

// TestHeavyRoot has a trusted root that it would take too long to verify with.
func TestHeavyRoot(t *testing.T) {
	s := newSigstore(t)
	trust := s.trust(t)
	s.fulcio.Intermediates[0] = s.certify(t, identity, issuer, time.Now(), giant(t, 10_000), nil)
	trust.Root = secret("trusted_root.json", s.trustedRoot(t))
	_, err := cosign.New(cosign.Config{})(connect(t, testenv.StartRegistry(t, testenv.RegistryConfig{}), "app"), trust)
	want := "spec.verify.trustedRootSecretRef: secret default/trust: entry trusted_root.json|RSA key of 10000 bits, more than the limit of 8192"
	if missing := lacks(err, want); missing != nil {
		t.Errorf("error %v lacks %q", err, missing)
	}
}
