package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// maxManifest is the size in bytes of a manifest, index or one page of a list
// (distribution specification 1.1, "Pushing manifests").
const maxManifest = 4 << 20

// The media types of manifests and indexes, OCI's and Docker's.
const (
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
	dockerIndex    = "application/vnd.docker.distribution.manifest.list.v2+json"
	ociArtifact    = "application/vnd.oci.artifact.manifest.v1+json" // of a draft of 1.1
)

// manifests are what registries keep as manifests; all else are blobs.
var manifests = map[string]bool{
	ocispec.MediaTypeImageManifest: true, ocispec.MediaTypeImageIndex: true, dockerManifest: true, dockerIndex: true, ociArtifact: true,
}

// vague are media types that say nothing about a manifest.
var vague = map[string]bool{"": true, "application/json": true, "application/octet-stream": true, "text/plain": true, "binary/octet-stream": true}

// readManifest returns what reference names, and checks it against what want says.
func readManifest(ctx context.Context, from holder, reference string, want ocispec.Descriptor) (ocispec.Descriptor, []byte, error) {
	mediaType, body, err := from.manifest(ctx, reference)
	if err != nil {
		return want, nil, err
	}
	defer body.Close()
	content, err := readAll(body, maxManifest)
	if err != nil {
		return want, nil, err
	}
	algorithm := digest.Canonical
	if want.Digest != "" {
		algorithm = want.Digest.Algorithm()
	}
	got := ocispec.Descriptor{Digest: algorithm.FromBytes(content), Size: int64(len(content))}
	switch {
	case want.Size > 0 && want.Size != got.Size:
		return want, nil, &ContentError{Digest: want.Digest, Size: want.Size, Read: min(got.Size, want.Size+1)}
	case want.Digest != "" && want.Digest != got.Digest:
		return want, nil, &ContentError{Digest: want.Digest, Size: got.Size, Got: got.Digest, Read: got.Size}
	}
	if got.MediaType, err = typeOf(content, mediaType, want.MediaType); err != nil {
		return want, nil, err
	}
	return got, content, nil
}

// readAll reads at most limit bytes.
func readAll(r io.Reader, limit int64) ([]byte, error) {
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if n > limit {
		return nil, fmt.Errorf("it has more than %d bytes", limit)
	}
	return buf.Bytes(), nil
}

// typeOf returns the media type of a manifest: what it says itself, which its
// digest covers; else what the registry says; else what the descriptor says;
// else what it looks like. No two of them may contradict each other: another
// program would take the document for something else than we do.
func typeOf(content []byte, header, descriptor string) (string, error) {
	var shape struct {
		MediaType string          `json:"mediaType"`
		Config    json.RawMessage `json:"config"`
		Layers    json.RawMessage `json:"layers"`
		Manifests json.RawMessage `json:"manifests"`
	}
	if err := json.Unmarshal(content, &shape); err != nil {
		return "", fmt.Errorf("it is no manifest: %w", err)
	}
	image := shape.Layers != nil || shape.Config != nil
	if image && shape.Manifests != nil {
		return "", errors.New("it is a manifest and an index at once")
	}
	said := ""
	for _, claim := range []string{shape.MediaType, header, descriptor} {
		switch {
		case vague[claim]:
		case said == "":
			said = claim
		case claim != said:
			return "", fmt.Errorf("its media type is %.100q here and %.100q there: the registry or who pushed it is wrong", said, claim)
		}
	}
	switch {
	case image && forms[said] == isIndex, shape.Manifests != nil && forms[said] == isManifest:
		return "", fmt.Errorf("it is not what its media type %s says", said)
	case said != "":
		return said, nil
	case shape.Manifests != nil:
		return ocispec.MediaTypeImageIndex, nil
	case shape.Layers != nil:
		return ocispec.MediaTypeImageManifest, nil
	}
	return "", errors.New("nothing tells its media type")
}
