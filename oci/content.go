package oci

import (
	"context"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// content is what one revision was opened as.
type content struct {
	origin   *Origin
	repo     *Repository        // of this content alone: it is closed with it
	subject  ocispec.Descriptor // what the revision names: a manifest or an index
	manifest ocispec.Manifest   // the subject, or what it leads to
	layer    ocispec.Descriptor // which of its layers is wanted
	notes    []string           // what a user should know about how the manifest was found
	rev      source.Revision    // what was resolved

	tree  *artifact.Tree // the layer's files, once they are wanted
	rules *artifact.Rules
}

var _ source.Explainer = (*content)(nil)

// layerOf returns the layer of m that s selects: the first of its media type,
// or the first of all.
func layerOf(m ocispec.Manifest, s *source.OCILayerSelector) (ocispec.Descriptor, error) {
	if s == nil || s.MediaType == "" {
		if len(m.Layers) == 0 {
			return ocispec.Descriptor{}, fmt.Errorf("the manifest has no layers")
		}
		return m.Layers[0], nil
	}
	for _, l := range m.Layers {
		if l.MediaType == s.MediaType {
			return l, nil
		}
	}
	return ocispec.Descriptor{}, fmt.Errorf("no layer has the media type %q of spec.layerSelector among %d layers", s.MediaType, len(m.Layers))
}

// Verify implements [source.Content].
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}
