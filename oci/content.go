package oci

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// content is an open revision. It closes its repository.
type content struct {
	*resolved
	origin *Origin
	rev    source.Revision
	layer  ocispec.Descriptor // the selected layer of the manifest
	notes  []string           // for the report
	passed bool               // Verify has let the revision pass

	tree  *artifact.Tree // the layer's files, once they are wanted
	rules *artifact.Rules
}

var _ source.Explainer = (*content)(nil)

// newContent selects the layer. It closes the repository if that fails.
func newContent(o *Origin, r *resolved, rev source.Revision) (*content, error) {
	layer, err := layerOf(r.manifest, o.repo.Spec.LayerSelector)
	if err != nil {
		r.repo.Close()
		err = fmt.Errorf("manifest of %s: %w", rev.ID, err)
		return nil, &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: err}
	}
	c := &content{resolved: r, origin: o, rev: rev, layer: layer}
	if _, left := metadata(r.manifest.Annotations); left > 0 {
		c.notes = append(c.notes, fmt.Sprintf("%d of %d annotations are not in the metadata: at most %d KiB together are taken over",
			left, len(r.manifest.Annotations), maxAnnotations>>10))
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

// maxAnnotations is how many bytes of the annotations of a manifest, names and
// values together, become metadata of an artifact.
const maxAnnotations = 64 << 10

// metadata returns the annotations within the bound, and how many are not:
// those of the OCI come first, then names in their order.
func metadata(annotations map[string]string) (kept map[string]string, left int) {
	names := slices.SortedFunc(maps.Keys(annotations), func(a, b string) int {
		switch own := strings.HasPrefix(a, "org.opencontainers.image."); {
		case own == strings.HasPrefix(b, "org.opencontainers.image."):
			return strings.Compare(a, b)
		case own:
			return -1
		}
		return 1
	})
	room := maxAnnotations
	for _, name := range names {
		size := len(name) + len(annotations[name])
		if size > room {
			left++
			continue
		}
		if kept == nil {
			kept = make(map[string]string)
		}
		kept[name] = annotations[name]
		room -= size
	}
	return kept, left
}
