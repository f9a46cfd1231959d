package cosign_test

import (
	"encoding/json"
	"os"
	"testing"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// kinds are those of keys that cosign signs with.
var kinds = []string{"p256", "p384", "p521", "rsa", "ed25519"}

// TestRecordedKeyless verifies signatures of a subject by a sigstore that is no more, by what
// it was trusted by. Nothing of it expires: the time of a signature counts.
func TestRecordedKeyless(t *testing.T) {
	var k struct {
		Root    json.RawMessage
		Subject digest.Digest
		Bundle  json.RawMessage
		Tiled   json.RawMessage // a bundle with an entry of the second version of Rekor
		Layer   testenv.Blob
	}
	text, err := os.ReadFile("../../testdata/cosign/keyless.json")
	check(t, err)
	check(t, json.Unmarshal(text, &k))
	trust := oci.Trust{
		Root:       secret("trusted_root.json", string(k.Root)),
		Identities: []source.OIDCIdentityMatch{{Issuer: "^" + issuer + "$", Subject: "^release@"}},
	}
	subject := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageManifest, Digest: k.Subject, Size: 7}
	g := testenv.StartRegistry(t, testenv.RegistryConfig{NoReferrers: true})
	refer(g, "bundle", subject, testenv.Blob{MediaType: bundleType, Data: k.Bundle})
	refer(g, "tiled", subject, testenv.Blob{MediaType: bundleType, Data: k.Tiled})
	tag(g, "layer", subject, k.Layer)
	for _, repo := range []string{"bundle", "tiled", "layer"} {
		got, err := verify(t, g, repo, trust, subject)
		judge(t, got, err, "", identity+" ("+issuer+")")
	}
}
