package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/source"
)

// A layout is an image layout (image specification 1.1, "OCI Image Layout") in a
// directory or, as a [Bundle], in a tar archive.
type layout struct {
	files interface {
		open(name string) (io.ReadCloser, int64, error) // a regular file and its size
		Close() error
	}
	index descriptors
}

// A directory contains the files of a layout. Symbolic links to files outside it are not
// followed.
type directory struct{ *os.Root }

// openLayout opens the layout at dir. Errors wrap those of the file system.
func openLayout(dir string) (*layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	l := &layout{files: directory{root}}
	if err := l.read(); err != nil {
		root.Close()
		return nil, fmt.Errorf("image layout %s: %w", dir, err)
	}
	return l, nil
}

// read reads the marker and the index.
func (l *layout) read() error {
	var marker ocispec.ImageLayout
	if err := l.decode(ocispec.ImageLayoutFile, &marker); err != nil {
		return err
	}
	if marker.Version != ocispec.ImageLayoutVersion {
		return fmt.Errorf("%s: version %.20q, want %s", ocispec.ImageLayoutFile, marker.Version, ocispec.ImageLayoutVersion)
	}
	var index struct{ Manifests descriptors }
	if err := l.decode(ocispec.ImageIndexFile, &index); err != nil {
		return err
	}
	for i, d := range index.Manifests {
		if err := checkDigest(d.Digest); err != nil {
			return fmt.Errorf("%s: entry %d: %w", ocispec.ImageIndexFile, i, err)
		}
	}
	l.index = index.Manifests
	return nil
}

func (l *layout) decode(name string, v any) error {
	content, err := l.file(name)
	if err == nil {
		err = json.Unmarshal(content, v)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// file reads a file of at most maxManifest bytes.
func (l *layout) file(name string) ([]byte, error) {
	f, _, err := l.files.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readAll(f, maxManifest)
}

// open opens a regular file. It refuses other files, because opening them may block.
func (dir directory) open(name string) (io.ReadCloser, int64, error) {
	info, err := dir.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", name)
	}
	f, err := dir.Open(name)
	return f, info.Size(), err
}

// blobFile returns the name of the file that contains the blob with the digest d.
func blobFile(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func (l *layout) tags(context.Context) (all []string, err error) {
	for _, d := range l.index {
		if name := d.Annotations[ocispec.AnnotationRefName]; name != "" && !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all, nil
}

func (l *layout) head(_ context.Context, reference string) (found ocispec.Descriptor, err error) {
	want, err := parseReference(reference)
	if err != nil {
		return found, err
	}
	for _, d := range l.index {
		switch {
		case d.Digest != want && d.Annotations[ocispec.AnnotationRefName] != reference:
		case found.Digest != "" && found.Digest != d.Digest:
			return found, fmt.Errorf("%s has two manifests for it: %s and %s", ocispec.ImageIndexFile, found.Digest, d.Digest)
		default:
			found = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	switch {
	case found.Digest != "":
		return found, nil
	case want == "":
		return found, fmt.Errorf("%s has no manifest for it: %w", ocispec.ImageIndexFile, fs.ErrNotExist)
	}
	f, size, err := l.files.open(blobFile(want)) // a manifest that only a nested index lists
	if err != nil {
		return found, err
	}
	return ocispec.Descriptor{Digest: want, Size: size}, f.Close()
}

func (l *layout) manifest(ctx context.Context, reference string) (string, []byte, error) {
	d, err := l.head(ctx, reference)
	if err != nil {
		return "", nil, err
	}
	content, err := l.file(blobFile(d.Digest))
	return d.MediaType, content, err
}

func (l *layout) blob(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	f, _, err := l.files.open(blobFile(d.Digest))
	return f, err
}

// referrers returns the manifests in the index that refer to subject. The index of the
// referrers tag may list others, so the error is errNoReferrers if nothing else fails.
func (l *layout) referrers(ctx context.Context, subject digest.Digest, _ string) (all descriptors, err error) {
	for _, entry := range l.index {
		if err := ctx.Err(); err != nil {
			return all, err
		}
		d, content, err := readManifest(ctx, l, entry.Digest.String(), entry)
		var m ocispec.Manifest // an index has the same fields
		if err == nil {
			err = json.Unmarshal(content, &m)
		}
		if err != nil {
			return all, fmt.Errorf("%s: %w", entry.Digest, err)
		}
		if m.Subject != nil && m.Subject.Digest == subject {
			d.ArtifactType, d.Annotations = cmp.Or(m.ArtifactType, m.Config.MediaType), m.Annotations
			all = append(all, d)
		}
	}
	return all, errNoReferrers
}

func (l *layout) close() { l.files.Close() }

// directory returns the origin that reads a local directory instead of spec.url. It returns
// nil if [source.Env].Local has no directory for it, or one with an image layout.
func (o *Origin) directory() (source.Origin, error) {
	dir, ok := o.env.Local[o.repo.Spec.URL]
	if !ok {
		return nil, nil
	}
	switch _, err := os.Stat(filepath.Join(dir, ocispec.ImageLayoutFile)); {
	case err == nil:
		return nil, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("local directory %s: %w", dir, err)
	}
	if s := o.repo.Spec.LayerSelector; s != nil && s.Operation == source.LayerCopy {
		err := fmt.Errorf("local directory %s: it has no layer to copy, as spec.layerSelector asks: give an image layout, or operation extract", dir)
		return nil, &source.StepError{Step: source.StepFetch, Reason: layerFailed, Err: err}
	}
	return source.Dir(o.repo, dir, source.DirView{Ignore: ignoreOf(o.repo)}), nil
}
