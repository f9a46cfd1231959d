package chart

import (
	"encoding/json"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/oci"
)

// Publication returns how the chart in an archive (.tgz) is published in a
// registry so that helm and a PkgRepository of type oci pull it: with the media
// types of charts, its metadata as the config, its name, version and description
// as annotations, and the version as the tag, with _ for +. The repository must
// end in the name of the chart, which is the title among the annotations.
//
// The archive is read to its end, within l; zero limits are those of charts. Errors say why
// it is not a chart.
func Publication(archive io.Reader, l artifact.Limits) (oci.Publication, error) {
	a, err := bundle.ReadArchive(archive, l)
	if err != nil {
		return oci.Publication{}, err
	}
	defer a.Close()
	config, err := json.Marshal(a.Metadata)
	if err != nil {
		return oci.Publication{}, err
	}
	p := oci.Publication{
		ConfigType: configType, Config: config, LayerType: contentType,
		Tags: []string{strings.ReplaceAll(a.Metadata.Version, "+", "_")},
		Annotations: map[string]string{
			ocispec.AnnotationTitle:   a.Metadata.Name,
			ocispec.AnnotationVersion: a.Metadata.Version,
		},
	}
	if a.Metadata.Description != "" {
		p.Annotations[ocispec.AnnotationDescription] = a.Metadata.Description
	}
	return p, nil
}
