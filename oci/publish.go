package oci

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The media types of published artifacts (reference A18), as consumers of the reference
// implementation expect them.
const (
	publishedConfig = "application/vnd.cncf.flux.config.v1+json"
	publishedLayer  = "application/vnd.cncf.flux.content.v1.tar+gzip"
)

// A Publication describes a published archive. The digest of the manifest depends only on
// the archive and on these fields except Tags, not on time, machine or credentials.
type Publication struct {
	Tags        []string          // default: spec.ref.tag, and latest without one
	Source      string            // origin of the content: org.opencontainers.image.source
	Revision    string            // revision of the content: org.opencontainers.image.revision
	Created     time.Time         // org.opencontainers.image.created, in UTC; omitted if zero
	Annotations map[string]string // further annotations; the fields above take precedence

	// These fields are set for an artifact of another kind than the reference's, such
	// as a chart.
	ConfigType string // media type of Config
	Config     []byte // {} if ConfigType is ""
	LayerType  string // media type of the archive
}

// Publish uploads a gzip-compressed tar archive, as written by [artifact.Pack], unchanged
// to the repository of the spec: as the only
// layer of an OCI artifact that this package and consumers of the reference
// implementation can pull (reference A18). Of the spec it uses spec.ref.tag and the
// fields for connecting to the repository.
//
// The archive has size bytes. It is read twice, first for its digest, and
// again if an upload has to be retried. Blobs that the repository already has are not
// uploaded, and a tag that already names the artifact is not set again.
// Tags are set last, so they never name a missing artifact. spec.timeout applies to each
// step separately.
//
// It returns the descriptor of the manifest. Errors wrap [source.ErrInvalid]
// if the spec or p is at fault; they may contain values that [Origin.Secrets] returns.
func (o *Origin) Publish(ctx context.Context, archive io.ReaderAt, size int64, p Publication) (ocispec.Descriptor, error) {
	tags, err := o.tagsOf(p)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	layer, err := measure(io.NewSectionReader(archive, 0, size))
	if err != nil {
		return ocispec.Descriptor{}, fmt.Errorf("archive: %w", err)
	}
	layer.MediaType = cmp.Or(p.LayerType, publishedLayer)
	progress, err := o.progress("sending layer", layer.Size)
	if err != nil {
		return ocispec.Descriptor{}, invalid(err)
	}
	config := p.config()
	manifest, err := p.manifest(layer, config)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return o.push(ctx, manifest, upload{layer, archiveReader{archive, progress}}, upload{config, bytes.NewReader(config.Data)}, tags...)
}

// Attach uploads a document about subject, a manifest that [Origin.Publish] returned, as an
// artifact that refers to subject and has the document's type.
// It returns the descriptor of the new artifact's manifest.
func (o *Origin) Attach(ctx context.Context, subject ocispec.Descriptor, mediaType string, document []byte, annotations map[string]string) (ocispec.Descriptor, error) {
	layer := describe(mediaType, document)
	layer.Annotations = annotations
	manifest := manifestOf(layer)
	manifest.Subject, manifest.Annotations = &subject, annotations
	config := upload{manifest.Config, bytes.NewReader(manifest.Config.Data)}
	return o.push(ctx, manifest, upload{layer, bytes.NewReader(document)}, config)
}

// manifestOf returns the manifest of a document, which is its only layer.
func manifestOf(layer ocispec.Descriptor) ocispec.Manifest {
	return ocispec.Manifest{ArtifactType: layer.MediaType, Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{layer}}
}

// encode returns the JSON text of a manifest. It fails if registries would not accept
// the size.
func encode(m ocispec.Manifest) ([]byte, error) {
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxManifest {
		err = invalid(fmt.Errorf("the annotations make a manifest of %d bytes, of which registries take %d", len(text), maxManifest))
	}
	return text, err
}

// An upload is a blob to push.
type upload struct {
	ocispec.Descriptor
	content io.ReaderAt
}

// push uploads a layer, a config and the manifest with both, and then sets tags. It returns the
// descriptor of the manifest.
func (o *Origin) push(ctx context.Context, m ocispec.Manifest, layer, config upload, tags ...string) (ocispec.Descriptor, error) {
	text, err := encode(m)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	repo, err := o.connect(ctx)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	defer repo.Close()
	manifest := describe(ocispec.MediaTypeImageManifest, text)
	for _, part := range []upload{layer, config, {manifest, bytes.NewReader(text)}} {
		err := o.within(ctx, "push", func(ctx context.Context) error {
			return repo.Push(ctx, part.Descriptor, io.NewSectionReader(part.content, 0, part.Size))
		})
		if err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	for _, tag := range tags {
		if err := o.within(ctx, "tag", func(ctx context.Context) error { return retag(ctx, repo, manifest, tag) }); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	return manifest, nil
}

// tagsOf returns the tags of p or their default, without duplicates.
func (o *Origin) tagsOf(p Publication) ([]string, error) {
	tags := slices.Compact(slices.Sorted(slices.Values(p.Tags)))
	if len(tags) == 0 {
		tags = []string{"latest"}
		if ref := o.repo.Spec.Ref; ref != nil {
			tags[0] = cmp.Or(ref.Tag, tags[0])
		}
	}
	for _, tag := range tags {
		if !isTag(tag) {
			return nil, invalid(fmt.Errorf("%q is no tag: want at most 128 letters, digits, '_', '.' and '-'", tag))
		}
	}
	return tags, nil
}

// measure returns digest and size of an archive, which must be compressed with gzip.
func measure(archive *io.SectionReader) (ocispec.Descriptor, error) {
	magic := make([]byte, 2)
	if n, err := archive.ReadAt(magic, 0); err != nil && err != io.EOF {
		return ocispec.Descriptor{}, err
	} else if string(magic[:n]) != "\x1f\x8b" {
		return ocispec.Descriptor{}, errors.New("it is not compressed by gzip: consumers expect a tar.gz")
	}
	sum := digest.SHA256.Digester()
	n, err := io.Copy(sum.Hash(), archive)
	if err == nil && n != archive.Size() {
		err = fmt.Errorf("it has %d bytes, not %d", n, archive.Size())
	}
	return ocispec.Descriptor{Digest: sum.Digest(), Size: n}, err
}

// An archiveReader reports how much of the archive was read for the upload.
type archiveReader struct {
	io.ReaderAt
	progress func(done int64)
}

func (r archiveReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, offset)
	r.progress(offset + int64(n))
	return n, err
}

func describe(mediaType string, content []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
}

// config returns the descriptor of the config, with the content in Data.
func (p Publication) config() ocispec.Descriptor {
	content := ocispec.DescriptorEmptyJSON.Data
	if p.ConfigType != "" {
		content = p.Config
	}
	d := describe(cmp.Or(p.ConfigType, publishedConfig), content)
	d.Data = content
	return d
}

// manifest returns the manifest with this layer and config.
func (p Publication) manifest(layer, config ocispec.Descriptor) (ocispec.Manifest, error) {
	annotations, err := p.annotations()
	config.Data = nil
	return ocispec.Manifest{Config: config, Layers: []ocispec.Descriptor{layer}, Annotations: annotations}, err
}

// annotations returns the annotations of the manifest.
func (p Publication) annotations() (map[string]string, error) {
	all := map[string]string{}
	maps.Copy(all, p.Annotations)
	if _, found := all[""]; found {
		return nil, invalid(errors.New("an annotation has no name"))
	}
	created := ""
	if !p.Created.IsZero() {
		created = p.Created.UTC().Format(time.RFC3339)
	}
	for key, value := range map[string]string{
		ocispec.AnnotationSource: p.Source, ocispec.AnnotationRevision: p.Revision, ocispec.AnnotationCreated: created,
	} {
		if value != "" {
			all[key] = value
		}
	}
	return all, nil
}

// retag sets tag to the manifest d. It does nothing if tag already names d, because
// registries may refuse to set a tag twice.
func retag(ctx context.Context, repo *Repository, d ocispec.Descriptor, tag string) error {
	now, err := repo.Head(ctx, tag)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case now.Digest == d.Digest:
		return nil
	}
	return repo.Tag(ctx, d, tag)
}
