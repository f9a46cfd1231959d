package oci

import (
	"archive/tar"
	"bytes"
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

// BundleName is the name of the index in a bundle that lists all that is in it.
const BundleName = "bundle"

// The media type of the lock in a bundle, which is what the manifest that has it is for.
const lockType = "application/vnd.headgate.lock.v1+yaml"

// maxLock is how many bytes the lock in a bundle may have.
const maxLock = 16 << 20

// A Bundled is one archive of a bundle. Its Publication has no tags.
type Bundled struct {
	Name string // org.opencontainers.image.ref.name
	Size int64  // bytes of the archive
	Open func() (io.ReadCloser, error)
	Publication
}

// WriteBundle writes archives, and the lock that they were fetched by, as an image
// layout in a tar archive: a manifest for each, as [Origin.Publish] makes it, and the
// index [BundleName] of all manifests and of that of the lock. Each archive is read
// twice. Equal input gives equal bytes.
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
	manifest := ocispec.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		ArtifactType: lockType, Config: ocispec.DescriptorEmptyJSON, Layers: []ocispec.Descriptor{layer}}
	d, err := b.json(ocispec.MediaTypeImageManifest, manifest)
	if err == nil {
		d.ArtifactType = lockType
		all = append(all, d)
		err = errors.Join(b.blob(layer, bytes.NewReader(lock)), b.blob(ocispec.DescriptorEmptyJSON, bytes.NewReader(ocispec.DescriptorEmptyJSON.Data)))
	}
	index := ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: all}
	if err == nil {
		d, err = b.json(ocispec.MediaTypeImageIndex, index)
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

// archive writes an archive with its manifest, whose descriptor it returns.
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
	config := a.config()
	var text []byte
	if err == nil {
		text, err = a.manifest(layer, config)
	}
	if err == nil {
		err = errors.Join(read(func(r io.Reader) error { return b.blob(layer, r) }), b.blob(config, bytes.NewReader(config.Data)))
	}
	d = describe(ocispec.MediaTypeImageManifest, text)
	return d, errors.Join(err, b.blob(d, bytes.NewReader(text)))
}

// json writes a document as a blob.
func (b *bundleWriter) json(mediaType string, v any) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	d := describe(mediaType, text)
	return d, errors.Join(err, b.blob(d, bytes.NewReader(text)))
}

// blob writes what has a descriptor, once.
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

// A Bundle is an open file that [WriteBundle] wrote, or another image layout of that
// form. Nothing of it is trusted: sizes are bounded, and all has the digest that leads to it.
type Bundle struct {
	file  *os.File
	parts map[string][2]int64 // offset and size by name
	named map[string]ocispec.Descriptor
}

// maxParts bounds the files in a bundle.
const maxParts = 100_000

// OpenBundle opens a bundle.
func OpenBundle(name string) (_ *Bundle, err error) {
	b := &Bundle{parts: map[string][2]int64{}, named: map[string]ocispec.Descriptor{}}
	if b.file, err = os.Open(name); err != nil {
		return nil, err
	}
	if err = b.read(); err != nil {
		b.Close()
		return nil, fmt.Errorf("bundle %s: %w", name, err)
	}
	return b, nil
}

// Close closes the file.
func (b *Bundle) Close() error { return b.file.Close() }

func (b *Bundle) read() error {
	for r := tar.NewReader(b.file); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		at, err := b.file.Seek(0, io.SeekCurrent) // the reader does not read ahead
		if err != nil {
			return err
		}
		if len(b.parts) == maxParts {
			return fmt.Errorf("it has more than %d files", maxParts)
		}
		if h.Typeflag == tar.TypeReg {
			b.parts[strings.TrimPrefix(h.Name, "./")] = [2]int64{at, h.Size}
		}
	}
	text, err := b.text(ocispec.ImageIndexFile, maxManifest)
	var index struct{ Manifests descriptors }
	if err == nil {
		err = json.Unmarshal(text, &index)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", ocispec.ImageIndexFile, err)
	}
	for _, d := range index.Manifests {
		b.named[d.Annotations[ocispec.AnnotationRefName]] = d
	}
	return nil
}

// text returns a file of at most limit bytes.
func (b *Bundle) text(name string, limit int64) ([]byte, error) {
	part, found := b.parts[name]
	switch {
	case !found:
		return nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	case part[1] > limit:
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return io.ReadAll(io.NewSectionReader(b.file, part[0], part[1]))
}

// blob opens what has a descriptor.
func (b *Bundle) blob(d ocispec.Descriptor) (io.ReadCloser, error) {
	if err := checkDescriptor(d); err != nil {
		return nil, err
	}
	part, found := b.parts[blobFile(d.Digest)]
	if !found {
		return nil, fmt.Errorf("blob %s: %w", d.Digest, fs.ErrNotExist)
	}
	return newVerifyReader(io.NopCloser(io.NewSectionReader(b.file, part[0], part[1])), d, true), nil
}

// A bundled is what is read of a manifest or index.
type bundled struct {
	Annotations map[string]string
	Manifests   descriptors
	Layers      descriptors
}

// decode reads a document that has a descriptor.
func (b *Bundle) decode(d ocispec.Descriptor, v *bundled) error {
	if d.Size > maxManifest {
		return fmt.Errorf("%s has more than %d bytes", d.Digest, maxManifest)
	}
	r, err := b.blob(d)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(r)
	if err == nil {
		err = json.Unmarshal(text, v)
	}
	return err
}

// Find returns the annotations of the archive of that name, and what opens it. The
// error wraps fs.ErrNotExist if there is none.
func (b *Bundle) Find(name string) (annotations map[string]string, open func() (io.ReadCloser, error), err error) {
	var m bundled
	d, found := b.named[name]
	if !found {
		return nil, nil, fmt.Errorf("%s: %w", name, fs.ErrNotExist)
	}
	if err = b.decode(d, &m); err == nil && len(m.Layers) != 1 {
		err = fmt.Errorf("it has %d layers, want one", len(m.Layers))
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s in the bundle: %w", name, err)
	}
	return m.Annotations, func() (io.ReadCloser, error) { return b.blob(m.Layers[0]) }, nil
}

// Lock returns the text of the lock.
func (b *Bundle) Lock() ([]byte, error) {
	var index, m bundled
	err := b.decode(b.named[BundleName], &index)
	if err == nil {
		i := slices.IndexFunc(index.Manifests, func(d ocispec.Descriptor) bool { return d.ArtifactType == lockType })
		if i < 0 {
			return nil, errors.New("the bundle has no lock")
		}
		err = b.decode(index.Manifests[i], &m)
	}
	if err == nil && (len(m.Layers) != 1 || m.Layers[0].Size > maxLock) {
		err = fmt.Errorf("want one layer of at most %d bytes", maxLock)
	}
	if err != nil {
		return nil, fmt.Errorf("the lock in the bundle: %w", err)
	}
	r, err := b.blob(m.Layers[0])
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}
