package cosign

import (
	"context"
	"encoding/hex"

	digest "github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/headgate-io/headgate/oci"
)

// TryBundle judges a bundle as a signature of d.
func TryBundle(t oci.Trust, data []byte, d digest.Digest) (signer string, err error) {
	return try(context.Background(), mustJudge(t), candidate{open: func(context.Context) (*signature, error) {
		s, err := decodeBundle(data)
		if err != nil {
			return nil, err
		}
		raw, err := hex.DecodeString(d.Encoded())
		s.policy = func() verify.ArtifactPolicyOption { return verify.WithArtifactDigest("sha256", raw) }
		return s, err
	}}, ocispec.Descriptor{Digest: d})
}

// TryLayer judges a layer as a signature of d.
func TryLayer(t oci.Trust, payload []byte, annotations map[string]string, d digest.Digest) (signer string, err error) {
	return try(context.Background(), mustJudge(t), candidate{open: func(context.Context) (*signature, error) {
		return decodeLayer(payload, annotations)
	}}, ocispec.Descriptor{Digest: d})
}

func mustJudge(t oci.Trust) judge {
	j, err := authority(t, nil, nil)
	if err != nil {
		panic(err)
	}
	return j()
}
