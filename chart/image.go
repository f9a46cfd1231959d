package chart

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/transport"
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

// A pull is a chart that is wanted from a registry.
type pull struct {
	offer
	from    *oci.Repository
	subject ocispec.Descriptor    // its manifest
	repo    *source.PkgRepository // whose timeout bounds each request, and whose credentials are used
	prov    bool                  // the provenance file is wanted too
}

// pull returns a chart: all of it has the digests that lead to it from its manifest.
func (s *supply) pull(ctx context.Context, p pull) (got *fetched, err error) {
	var m manifest
	err = source.Within(ctx, timeout(p.repo), "fetch manifest", func(ctx context.Context) (err error) {
		m, err = p.manifest(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	got = &fetched{}
	if p.prov && m.prov != nil {
		err = source.Within(ctx, timeout(p.repo), "pull provenance file", func(ctx context.Context) (err error) {
			got.prov, err = pullProvenance(ctx, p.from, *m.prov)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	err = source.Within(ctx, timeout(p.repo), "pull chart", func(ctx context.Context) (err error) {
		got.Archive, err = s.pullLayer(ctx, p, m.chart)
		return err
	})
	if err != nil {
		return nil, err
	}
	return got, nil
}

// manifest returns the manifest of a chart.
func (p pull) manifest(ctx context.Context) (manifest, error) {
	d, text, err := p.from.Manifest(ctx, ocispec.Descriptor{Digest: p.subject.Digest})
	if err != nil {
		return manifest{}, err
	}
	m, err := parseManifest(d, text)
	if err != nil {
		return m, fmt.Errorf("%s@%s: %w", p.from.Name(), p.subject.Digest, err)
	}
	return m, nil
}

// pullLayer returns the chart in a layer, from the cache if that has it.
func (s *supply) pullLayer(ctx context.Context, p pull, layer ocispec.Descriptor) (*bundle.Archive, error) {
	limits := bundle.Limits(s.env.Limits)
	key, err := s.layerKey(ctx, p, layer)
	if err != nil {
		return nil, err
	}
	if s.env.Cache != nil {
		if a := cached(s.env.Cache, key, layer.Digest.String(), p.offer, limits); a != nil {
			return a, nil
		}
	}
	blob, err := p.from.Blob(ctx, layer)
	if err != nil {
		return nil, err
	}
	defer blob.Close()
	a, err := readArchive(blob, layer.Size, limits)
	if err == nil {
		if _, err = io.Copy(io.Discard, blob); err != nil { // at whose end the digest is compared
			a.Close()
		}
	}
	if err == nil {
		if err = checkOwn(p.offer, a); err != nil {
			a.Close()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("layer %s of %s: %w", layer.Digest, p.from.Name(), err)
	}
	if s.env.Cache != nil {
		remember(s.env.Cache, key, a)
	}
	return a, nil
}

// layerKey names a layer in the cache, and who may see it: those who come to the
// same repository with the same credentials.
func (s *supply) layerKey(ctx context.Context, p pull, layer ocispec.Descriptor) (string, error) {
	spec := &p.repo.Spec
	h := sha256.New()
	transport.Note(h, p.from.Name(), spec.Provider, fmt.Sprint(spec.Insecure))
	secret, err := s.vault.Read(ctx, spec.SecretRef, "spec.secretRef")
	if err != nil {
		return "", err
	}
	cert, err := s.vault.Read(ctx, spec.CertSecretRef, "spec.certSecretRef")
	if err != nil {
		return "", err
	}
	secret.Note(h)
	cert.Note(h)
	return "chart/" + layer.Digest.String() + " " + string(h.Sum(nil)), nil
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
