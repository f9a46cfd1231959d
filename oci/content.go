package oci

import (
	"errors"
	"fmt"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// content is what one revision was opened as.
type content struct {
	origin   *Origin
	repo     *Repository // of this content alone: it is closed with it
	rev      source.Revision
	subject  ocispec.Descriptor // what the revision names: a manifest or an index
	manifest ocispec.Manifest   // the subject, or what it leads to
	layer    ocispec.Descriptor // which of its layers is wanted
	notes    []string           // for the report
	passed   bool               // Verify has let the revision pass

	tree  *artifact.Tree // the layer's files, once they are wanted
	rules *artifact.Rules
}

var _ source.Explainer = (*content)(nil)

// newContent takes over repo.
func newContent(o *Origin, repo *Repository, rev source.Revision, f found) (*content, error) {
	layer, err := layerOf(f.manifest, o.repo.Spec.LayerSelector)
	if err != nil {
		repo.Close()
		err = fmt.Errorf("manifest of %s: %w", rev.ID, err)
		return nil, &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: err}
	}
	c := &content{origin: o, repo: repo, rev: rev, subject: f.subject, manifest: f.manifest, layer: layer}
	if _, left := metadata(f.manifest.Annotations); left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d of %d annotations are not in the metadata: at most %d KiB each and %d KiB together are taken over",
			left, len(f.manifest.Annotations), maxAnnotation>>10, maxAnnotations>>10))
	}
	return c, nil
}

// layerOf returns the layer of m that s selects: the first of its media type,
// or the first of all.
func layerOf(m ocispec.Manifest, s *source.OCILayerSelector) (ocispec.Descriptor, error) {
	for _, l := range m.Layers {
		if s == nil || s.MediaType == "" || s.MediaType == l.MediaType {
			return l, checkDescriptor(l)
		}
	}
	if len(m.Layers) == 0 {
		return ocispec.Descriptor{}, errors.New("it has no layers")
	}
	var types []string
	for _, l := range m.Layers {
		types = append(types, l.MediaType)
	}
	return ocispec.Descriptor{}, fmt.Errorf("no layer has the media type %q of spec.layerSelector, only %s", s.MediaType, listed(types))
}
