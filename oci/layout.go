package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/source"
)

// A layout is an image layout in a directory (image specification 1.1, "OCI
// Image Layout"). Nothing outside the directory is read, whatever its links say.
type layout struct {
	root  *os.Root
	index descriptors
}

// openLayout opens the layout at dir. Errors wrap those of the file system.
func openLayout(dir string) (*layout, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	l := &layout{root: root}
	var index []byte
	marker, err := l.file(ocispec.ImageLayoutFile)
	if err == nil {
		index, err = l.file(ocispec.ImageIndexFile)
	}
	if err == nil {
		l.index, err = readLayout(marker, index)
	}
	if err != nil {
		root.Close()
		return nil, fmt.Errorf("image layout %s: %w", dir, err)
	}
	return l, nil
}

// readLayout returns the entries of a layout whose marker and index are given.
func readLayout(marker, index []byte) (descriptors, error) {
	var layout ocispec.ImageLayout
	if err := json.Unmarshal(marker, &layout); err != nil {
		return nil, fmt.Errorf("%s: %w", ocispec.ImageLayoutFile, err)
	}
	if layout.Version != ocispec.ImageLayoutVersion {
		return nil, fmt.Errorf("%s: version %.20q, want %s", ocispec.ImageLayoutFile, layout.Version, ocispec.ImageLayoutVersion)
	}
	var document struct {
		Manifests descriptors `json:"manifests"`
	}
	if err := json.Unmarshal(index, &document); err != nil {
		return nil, fmt.Errorf("%s: %w", ocispec.ImageIndexFile, err)
	}
	for i, d := range document.Manifests {
		if _, err := hasher(d.Digest); err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", ocispec.ImageIndexFile, i, err)
		}
	}
	return document.Manifests, nil
}

// file reads a file of at most the size of a manifest.
func (l *layout) file(name string) ([]byte, error) {
	f, _, err := l.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := readAll(f, maxManifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return content, nil
}

// open opens a regular file: opening others may never end.
func (l *layout) open(name string) (io.ReadCloser, int64, error) {
	info, err := l.root.Stat(name)
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, fmt.Errorf("%s is no regular file", name)
	}
	f, err := l.root.Open(name)
	return f, info.Size(), err
}

// blobFile returns the name of the file that holds what has the digest d.
func blobFile(d digest.Digest) string {
	return path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded())
}

func (l *layout) tags(_ context.Context, each func(string) error) error {
	seen := map[string]bool{}
	for _, d := range l.index {
		name := d.Annotations[ocispec.AnnotationRefName]
		if name == "" || seen[name] {
			continue
		}
		seen[name] = true
		if err := each(name); err != nil {
			return err
		}
	}
	return nil
}

func (l *layout) head(_ context.Context, reference string) (ocispec.Descriptor, error) {
	want, err := parseReference(reference)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var found ocispec.Descriptor
	for _, d := range l.index {
		switch {
		case d.Digest != want && d.Annotations[ocispec.AnnotationRefName] != reference:
		case found.Digest != "" && found.Digest != d.Digest:
			return ocispec.Descriptor{}, fmt.Errorf("%s has two manifests for it: %s and %s", ocispec.ImageIndexFile, found.Digest, d.Digest)
		default:
			found = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size}
		}
	}
	if found.Digest == "" && want == "" {
		return found, fmt.Errorf("%s has no manifest for it: %w", ocispec.ImageIndexFile, fs.ErrNotExist)
	}
	if found.Digest == "" {
		f, size, err := l.open(blobFile(want)) // an index may lead to it
		if err != nil {
			return found, err
		}
		f.Close()
		found = ocispec.Descriptor{Digest: want, Size: size}
	}
	return found, nil
}

func (l *layout) manifest(ctx context.Context, reference string) (string, io.ReadCloser, error) {
	d, err := l.head(ctx, reference)
	if err != nil {
		return "", nil, err
	}
	f, _, err := l.open(blobFile(d.Digest))
	return d.MediaType, f, err
}

func (l *layout) blob(_ context.Context, d ocispec.Descriptor) (io.ReadCloser, error) {
	f, _, err := l.open(blobFile(d.Digest))
	return f, err
}

// referrers looks through the manifests of the index; those without an entry
// there may be in that of the tag.
func (l *layout) referrers(ctx context.Context, subject ocispec.Descriptor, _ string, each func(ocispec.Descriptor) error) error {
	for _, d := range l.index {
		refers, err := l.refersTo(ctx, &d, subject.Digest)
		if err != nil {
			return fmt.Errorf("%s: %w", d.Digest, err)
		}
		if !refers {
			continue
		}
		if err := each(d); err != nil {
			return err
		}
	}
	return errNoReferrers
}

// refersTo reports whether the subject of d is the one with the digest subject,
// and completes d.
func (l *layout) refersTo(ctx context.Context, d *ocispec.Descriptor, subject digest.Digest) (bool, error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	of, content, err := readManifest(ctx, l, d.Digest.String(), *d)
	if err != nil {
		return false, err
	}
	var m struct {
		ArtifactType string              `json:"artifactType"`
		Config       *ocispec.Descriptor `json:"config"`
		Subject      *ocispec.Descriptor `json:"subject"`
		Annotations  map[string]string   `json:"annotations"`
	}
	if !bytes.Contains(content, []byte(`"subject"`)) {
		return false, nil
	}
	if err := json.Unmarshal(content, &m); err != nil {
		return false, err
	}
	if m.ArtifactType == "" && m.Config != nil {
		m.ArtifactType = m.Config.MediaType
	}
	of.ArtifactType, of.Annotations = m.ArtifactType, m.Annotations
	*d = of
	return m.Subject != nil && m.Subject.Digest == subject, nil
}

var errReadOnly = fmt.Errorf("an image layout is only read: %w", errors.ErrUnsupported)

func (l *layout) push(context.Context, ocispec.Descriptor, io.Reader) error { return errReadOnly }
func (l *layout) tag(context.Context, ocispec.Descriptor, string) error     { return errReadOnly }
func (l *layout) close()                                                    { l.root.Close() }

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
