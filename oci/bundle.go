package oci

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// BundleName is the name of the index in a bundle that lists all its manifests.
const BundleName = "bundle"

// lockType is the media type of the lock in a bundle, and the artifact type of its manifest.
const lockType = "application/vnd.headgate.lock.v1+yaml"

// maxLock is the maximum size of the lock in a bundle, in bytes.
const maxLock = 16 << 20

// A Bundled is one archive of a bundle. Its Publication has no tags.
type Bundled struct {
	Name string // org.opencontainers.image.ref.name
	Size int64  // bytes of the archive
	Open func() (io.ReadCloser, error)
	Publication
}

// WriteBundle writes archives, and the lock that they were fetched with, as an image
// layout in a tar archive. The layout has a manifest for each archive, as [Origin.Publish]
// makes it, a manifest for the lock, and the index [BundleName] of all these manifests.
// WriteBundle opens and reads each archive twice. Its output depends only on its input.
func WriteBundle(w io.Writer, archives []Bundled, lock []byte) error {
	b := &bundleWriter{tar: tar.NewWriter(w), written: map[digest.Digest]bool{}}
	var all, named []ocispec.Descriptor
	for _, a := range archives {
		d, err := b.archive(a)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		d.Annotations = map[string]string{ocispec.AnnotationRefName: a.Name}
		all, named = append(all, d), append(named, d)
	}
	layer := describe(lockType, lock)
	d, err := b.manifest(manifestOf(layer))
	if err == nil {
		d.ArtifactType = lockType
		all = append(all, d)
		err = errors.Join(b.blob(layer, bytes.NewReader(lock)), b.blob(ocispec.DescriptorEmptyJSON, bytes.NewReader(ocispec.DescriptorEmptyJSON.Data)))
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: all}
	if err == nil {
		var text []byte
		text, err = json.Marshal(index)
		d = describe(ocispec.MediaTypeImageIndex, text)
		err = errors.Join(err, b.blob(d, bytes.NewReader(text)))
	}
	if err == nil {
		d.Annotations = map[string]string{ocispec.AnnotationRefName: BundleName}
		index.Manifests = append(named, d)
		err = errors.Join(b.file(ocispec.ImageIndexFile, index), b.file(ocispec.ImageLayoutFile, ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion}), b.tar.Close())
	}
	return err
}

// A bundleWriter writes an image layout into a tar archive.
type bundleWriter struct {
	tar     *tar.Writer
	written map[digest.Digest]bool
}

// archive writes an archive, its config and its manifest, and returns the manifest's
// descriptor.
func (b *bundleWriter) archive(a Bundled) (d ocispec.Descriptor, err error) {
	layer := ocispec.Descriptor{MediaType: publishedLayer, Size: a.Size}
	read := func(use func(io.Reader) error) error {
		r, err := a.Open()
		if err != nil {
			return err
		}
		return errors.Join(use(r), r.Close())
	}
	err = read(func(r io.Reader) (err error) {
		layer.Digest, err = digest.FromReader(r)
		return err
	})
	if err != nil {
		return d, err
	}
	config := a.config()
	manifest, err := a.manifest(layer, config)
	if err != nil {
		return d, err
	}
	if err = errors.Join(read(func(r io.Reader) error { return b.blob(layer, r) }), b.blob(config, bytes.NewReader(config.Data))); err != nil {
		return d, err
	}
	return b.manifest(manifest)
}

// manifest writes a manifest as a blob.
func (b *bundleWriter) manifest(m ocispec.Manifest) (ocispec.Descriptor, error) {
	text, err := encode(m)
	d := describe(ocispec.MediaTypeImageManifest, text)
	return d, errors.Join(err, b.blob(d, bytes.NewReader(text)))
}

// blob writes the blob d unless it was written before.
func (b *bundleWriter) blob(d ocispec.Descriptor, content io.Reader) error {
	if b.written[d.Digest] {
		return nil
	}
	b.written[d.Digest] = true
	return b.entry(blobFile(d.Digest), d.Size, content)
}

func (b *bundleWriter) file(name string, v any) error {
	text, err := json.Marshal(v)
	return errors.Join(err, b.entry(name, int64(len(text)), bytes.NewReader(text)))
}

func (b *bundleWriter) entry(name string, size int64, content io.Reader) error {
	err := b.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: size})
	if err == nil {
		_, err = io.Copy(b.tar, content)
	}
	return err
}

// A Bundle is an open file that [WriteBundle] wrote, or another image layout of that form.
// Its content is not trusted: sizes are limited, and digests are verified.
type Bundle struct{ layout }

// An archiveFiles reads the files of a layout in a tar archive.
type archiveFiles struct {
	*os.File
	parts map[string][2]int64 // offset and size by name
}

// maxParts is the maximum number of files in a bundle.
const maxParts = 100_000

// maxPart is the maximum length of file names in a layout, in bytes. Files with longer
// names are ignored.
const maxPart = 200

// OpenBundle opens the bundle in the file name. The caller closes it.
func OpenBundle(name string) (*Bundle, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	files := archiveFiles{file, map[string][2]int64{}}
	b := &Bundle{layout{files: files}}
	if err = files.scan(); err == nil {
		err = b.read()
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return b, nil
}

// Close closes the file.
func (b *Bundle) Close() error { return b.files.Close() }

// scan records the offset and size of each file.
func (a archiveFiles) scan() error {
	for r := tar.NewReader(a.File); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		at, err := a.Seek(0, io.SeekCurrent) // the reader does not read ahead
		if err != nil {
			return err
		}
		if len(a.parts) == maxParts {
			return fmt.Errorf("it has more than %d files", maxParts)
		}
		if h.Typeflag == tar.TypeReg && len(h.Name) <= maxPart {
			a.parts[strings.TrimPrefix(h.Name, "./")] = [2]int64{at, h.Size}
		}
	}
}

func (a archiveFiles) open(name string) (io.ReadCloser, int64, error) {
	part, found := a.parts[name]
	if !found {
		return nil, 0, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return io.NopCloser(io.NewSectionReader(a.File, part[0], part[1])), part[1], nil
}

// A member has the fields that are read from a manifest or index.
type member struct {
	Annotations map[string]string
	Manifests   descriptors
	Layers      descriptors
}

// member reads and verifies the manifest or index d.
func (b *Bundle) member(ctx context.Context, d ocispec.Descriptor) (m member, err error) {
	_, text, err := readManifest(ctx, b, d.Digest.String(), d)
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	return m, err
}

// findMember returns the manifest or index with this name. The error wraps fs.ErrNotExist if
// there is none.
func (b *Bundle) findMember(ctx context.Context, name string) (m member, err error) {
	for _, d := range b.index {
		if d.Annotations[ocispec.AnnotationRefName] == name {
			if m, err = b.member(ctx, d); err != nil {
				err = fmt.Errorf("%s in the bundle: %w", name, err)
			}
			return m, err
		}
	}
	return m, &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
}

// layer returns a function that opens the only layer of m.
func (b *Bundle) layer(ctx context.Context, m member) (func() (io.ReadCloser, error), error) {
	if len(m.Layers) != 1 {
		return nil, fmt.Errorf("it has %d layers, want one", len(m.Layers))
	}
	d := m.Layers[0]
	return func() (io.ReadCloser, error) {
		blob, err := b.blob(ctx, d)
		if err != nil {
			return nil, err
		}
		return newVerifyReader(blob, d, true), nil
	}, checkDescriptor(d)
}

// Find returns the annotations of the archive with this name, and a function that opens
// it; reading fails if the content does not match its digest. The
// error wraps fs.ErrNotExist if there is no such archive.
func (b *Bundle) Find(ctx context.Context, name string) (annotations map[string]string, open func() (io.ReadCloser, error), err error) {
	m, err := b.findMember(ctx, name)
	if err == nil {
		open, err = b.layer(ctx, m)
	}
	return m.Annotations, open, err
}

// Lock returns the text of the lock, at most 16 MiB.
func (b *Bundle) Lock(ctx context.Context) ([]byte, error) {
	index, err := b.findMember(ctx, BundleName)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == lockType })
	if i < 0 {
		return nil, errors.New("the bundle has no lock")
	}
	m, err := b.member(ctx, index.Manifests[i])
	var open func() (io.ReadCloser, error)
	if err == nil {
		open, err = b.layer(ctx, m)
	}
	if err != nil {
		return nil, fmt.Errorf("the lock in the bundle: %w", err)
	}
	r, err := open()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readAll(r, maxLock)
}
