package oci

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/source"
)

// directory returns the origin that reads the plain directory which stands in
// for spec.url; ok is false when an image layout does, or nothing.
func (o *Origin) directory() (dir source.Origin, ok bool, err error) {
	path, ok := o.env.Local[o.repo.Spec.URL]
	if !ok {
		return nil, false, nil
	}
	switch _, err := os.Stat(filepath.Join(path, ocispec.ImageLayoutFile)); {
	case err == nil:
		return nil, false, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, false, fmt.Errorf("local directory %s: %w", path, err)
	}
	if s := o.repo.Spec.LayerSelector; s != nil && s.Operation == source.LayerCopy {
		err := fmt.Errorf("local directory %s: it has no layer to copy, as spec.layerSelector asks: give an image layout, or operation extract", path)
		return nil, false, &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: err}
	}
	return source.Dir(o.repo, path, source.DirView{Ignore: ignoreOf(o.repo)}), true, nil
}
