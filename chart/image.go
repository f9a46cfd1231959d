package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// The media types of charts in registries. The last one is of charts that were
// pushed while that was an experiment.
const (
	configType  = "application/vnd.cncf.helm.config.v1+json"
	contentType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	provType    = "application/vnd.cncf.helm.chart.provenance.v1.prov"
	legacyType  = "application/tar+gzip"
)

// A manifest is that of a chart.
type manifest struct {
	chart ocispec.Descriptor
	prov  *ocispec.Descriptor // nil when there is none
}

// parseManifest reads the manifest of a chart.
func parseManifest(d ocispec.Descriptor, text []byte) (m manifest, err error) {
	var in ocispec.Manifest
	if err := json.Unmarshal(text, &in); err != nil {
		return m, fmt.Errorf("it cannot be read: %w", err)
	}
	if in.Config.MediaType != configType {
		what := in.Config.MediaType
		if in.ArtifactType != "" {
			what = in.ArtifactType
		}
		if what == "" {
			what = d.MediaType
		}
		return m, fmt.Errorf("it is no chart but of type %.100q: want a config of type %s, as helm push makes it", what, configType)
	}
	for i := range in.Layers {
		switch l := in.Layers[i]; l.MediaType {
		case contentType, legacyType:
			if m.chart.Digest == "" {
				m.chart = l
			}
		case provType:
			m.prov = &l
		}
	}
	if m.chart.Digest == "" {
		return m, fmt.Errorf("no layer has the media type %s", contentType)
	}
	return m, nil
}

// pull returns the chart whose manifest is subject: all of it has the digests
// that lead to it from there. With prov the provenance file is pulled too, if it
// has one. Each request is bounded by the timeout of repo.
func (s *supply) pull(ctx context.Context, from *oci.Repository, subject ocispec.Descriptor, repo *source.PkgRepository, prov bool) (got *fetched, err error) {
	var m manifest
	err = source.Within(ctx, timeout(repo), "fetch manifest", func(ctx context.Context) error {
		d, text, err := from.Manifest(ctx, ocispec.Descriptor{Digest: subject.Digest})
		if err != nil {
			return err
		}
		if m, err = parseManifest(d, text); err != nil {
			return fmt.Errorf("%s@%s: %w", from.Name(), subject.Digest, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	got = &fetched{}
	if prov && m.prov != nil {
		err = source.Within(ctx, timeout(repo), "pull provenance file", func(ctx context.Context) (err error) {
			got.prov, err = pullProvenance(ctx, from, *m.prov)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = source.Within(ctx, timeout(repo), "pull chart", func(ctx context.Context) (err error) {
		got.Archive, err = s.pullLayer(ctx, from, m.chart)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// pullLayer returns the chart in a layer.
func (s *supply) pullLayer(ctx context.Context, from *oci.Repository, layer ocispec.Descriptor) (*bundle.Archive, error) {
	blob, err := from.Blob(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	a, err := readArchive(blob, layer.Size, bundle.Limits(s.env.Limits))
	if err != nil {
		return nil, fmt.Errorf("layer %s of %s: %w", layer.Digest, from.Name(), err)
	}
	if _, err = io.Copy(io.Discard, blob); err != nil { // at whose end the digest is compared
		a.Close()
		return nil, fmt.Errorf("layer %s of %s: %w", layer.Digest, from.Name(), err)
	}
	return a, nil
}

// pullProvenance returns the provenance file in a layer.
func pullProvenance(ctx context.Context, from *oci.Repository, layer ocispec.Descriptor) ([]byte, error) {
	blob, err := from.Blob(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	file, err := readProvenance(blob)
	if err != nil {
		err = fmt.Errorf("layer %s of %s: %w", layer.Digest, from.Name(), err)
	}
	return file, err
}

// parseImage returns the repository and the tag or digest in
// oci://HOST/PATH[:TAG][@DIGEST]; the tag of a version without either.
func parseImage(text, version string) (url, reference string) {
	url, reference, pinned := strings.Cut(text, "@")
	path := url[strings.LastIndexByte(url, '/')+1:]
	if name, tag, ok := strings.Cut(path, ":"); ok && strings.Count(url, "/") > 2 {
		url = url[:len(url)-len(path)] + name
		if !pinned {
			return url, tag
		}
	}
	if pinned {
		return url, reference
	}
	return url, strings.ReplaceAll(version, "+", "_")
}
