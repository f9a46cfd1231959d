package notation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/oci"
)

// artifactType is that of manifests of signatures.
const artifactType = "application/vnd.cncf.notary.signature"

// maxSignature bounds the manifest and the envelope of a signature, each.
const maxSignature = 256 << 10

// readSignature returns the envelope of the signature whose manifest is d, and its media type.
func readSignature(ctx context.Context, r *oci.Repository, d ocispec.Descriptor) ([]byte, string, error) {
	if d.Size > maxSignature {
		return nil, "", refuse("its manifest has %d bytes, at most %d are allowed", d.Size, maxSignature)
	}
	_, manifest, err := r.Manifest(ctx, d)
	if err != nil {
		return nil, "", unreadable("manifest", err)
	}
	blob, err := envelopeOf(manifest)
	if err != nil {
		return nil, "", err
	}
	content, err := r.Blob(ctx, blob)
	if err != nil {
		return nil, "", unreadable("envelope", err)
	}
	defer content.Close()
	envelope, err := io.ReadAll(content) // at most the size of blob
	if err != nil {
		return nil, "", unreadable("envelope", err)
	}
	return envelope, blob.MediaType, nil
}

// unreadable says why a part of a signature cannot be read: a refusal when it
// is not there or not what its digest says, for that will not change.
func unreadable(part string, err error) error {
	err = fmt.Errorf("its %s: %w", part, err)
	var content *oci.ContentError
	if errors.Is(err, fs.ErrNotExist) || errors.As(err, &content) {
		return refusal{err}
	}
	return err
}

// envelopeOf returns the envelope in the manifest of a signature.
func envelopeOf(manifest []byte) (ocispec.Descriptor, error) {
	if len(manifest) > maxSignature {
		return ocispec.Descriptor{}, refuse("its manifest has %d bytes, at most %d are allowed", len(manifest), maxSignature)
	}
	var m struct {
		Layers []ocispec.Descriptor `json:"layers"`
		Blobs  []ocispec.Descriptor `json:"blobs"` // of the artifact manifests that the specification had for a while
	}
	if err := json.Unmarshal(manifest, &m); err != nil {
		return ocispec.Descriptor{}, refuse("its manifest: %w", err)
	}
	layers := append(m.Layers, m.Blobs...)
	switch {
	case len(layers) != 1:
		return ocispec.Descriptor{}, refuse("its manifest has %d layers: want one, the envelope", len(layers))
	case layers[0].Size > maxSignature || layers[0].Size < 0:
		return ocispec.Descriptor{}, refuse("its envelope has %d bytes, at most %d are allowed", layers[0].Size, maxSignature)
	case layers[0].Digest.Validate() != nil:
		return ocispec.Descriptor{}, refuse("its envelope has the digest %.80q, which is none", string(layers[0].Digest))
	}
	return layers[0], nil
}
