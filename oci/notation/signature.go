package notation

import (
	"context"
	"encoding/json"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/oci/internal/attempt"
)

// artifactType is that of manifests of signatures.
const artifactType = "application/vnd.cncf.notary.signature"

// maxSignature bounds the manifest and the envelope of a signature, each.
const maxSignature = 256 << 10

// readSignature returns the envelope of the signature whose manifest is d, and its media type.
func readSignature(ctx context.Context, r *oci.Repository, d ocispec.Descriptor) ([]byte, string, error) {
	if d.Size > maxSignature {
		return nil, "", attempt.Refuse("its manifest has %d bytes, at most %d are allowed", d.Size, maxSignature)
	}
	_, manifest, err := r.Manifest(ctx, d)
	if err != nil {
		return nil, "", attempt.Unreadable(fmt.Errorf("its manifest: %w", err))
	}
	blob, err := envelopeOf(manifest)
	if err != nil {
		return nil, "", err
	}
	envelope, err := attempt.Blob(ctx, r, blob, maxSignature)
	if err != nil {
		return nil, "", fmt.Errorf("its envelope: %w", err)
	}
	return envelope, blob.MediaType, nil
}

// envelopeOf returns the envelope in the manifest of a signature.
func envelopeOf(manifest []byte) (ocispec.Descriptor, error) {
	if len(manifest) > maxSignature {
		return ocispec.Descriptor{}, attempt.Refuse("its manifest has %d bytes, at most %d are allowed", len(manifest), maxSignature)
	}
	var m struct {
		Layers []ocispec.Descriptor `json:"layers"`
		Blobs  []ocispec.Descriptor `json:"blobs"` // of the artifact manifests that the specification had for a while
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return ocispec.Descriptor{}, attempt.Refuse("its manifest: %w", err)
	}
	layers := append(m.Layers, m.Blobs...)
	switch {
	case len(layers) != 1:
		return ocispec.Descriptor{}, attempt.Refuse("its manifest has %d layers: want one, the envelope", len(layers))
	case layers[0].Size > maxSignature || layers[0].Size < 0:
		return ocispec.Descriptor{}, attempt.Refuse("its envelope has %d bytes, at most %d are allowed", layers[0].Size, maxSignature)
	case layers[0].Digest.Validate() != nil:
		return ocispec.Descriptor{}, attempt.Refuse("its envelope has the digest %.80q, which is none", string(layers[0].Digest))
	}
	return layers[0], nil
}
