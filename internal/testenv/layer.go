package testenv

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"maps"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// Media types of layers.
const (
	LayerTar     = "application/vnd.oci.image.layer.v1.tar"
	LayerTarGzip = "application/vnd.oci.image.layer.v1.tar+gzip"
	LayerTarZstd = "application/vnd.oci.image.layer.v1.tar+zstd"
)

// TarGzip returns a layer with the files of tree, compressed with gzip.
func TarGzip(t testing.TB, tree fstest.MapFS) Blob {
	t.Helper()
	return Blob{MediaType: LayerTarGzip, Data: Gzip(t, Tar(t, Entries(tree)...))}
}

// TarZstd returns a layer with the files of tree, compressed with zstd.
func TarZstd(t testing.TB, tree fstest.MapFS) Blob {
	t.Helper()
	return Blob{MediaType: LayerTarZstd, Data: Zstd(t, Tar(t, Entries(tree)...))}
}

// TarPlain returns a layer with the files of tree, not compressed.
func TarPlain(t testing.TB, tree fstest.MapFS) Blob {
	t.Helper()
	return Blob{MediaType: LayerTar, Data: Tar(t, Entries(tree)...)}
}

// An Entry is one entry of a tar archive.
type Entry struct {
	tar.Header        // Size 0 and Data: as long as Data
	Data       []byte // may be shorter than Size says
}

// Entries returns the entries of the files of tree, in the order of their names.
func Entries(tree fstest.MapFS) []Entry {
	var list []Entry
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		f := tree[name]
		mode := int64(f.Mode.Perm())
		if mode == 0 {
			mode = 0o644
		}
		list = append(list, Entry{tar.Header{Name: name, Mode: mode, Typeflag: tar.TypeReg}, f.Data})
	}
	return list
}

// Tar returns a tar archive, well formed or not: data that is shorter than its
// header says is where the archive ends.
func Tar(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, e := range entries {
		h := e.Header
		if h.Size == 0 {
			h.Size = int64(len(e.Data))
		}
		check(t, w.WriteHeader(&h))
		_, err := w.Write(e.Data)
		check(t, err)
		if int64(len(e.Data)) < h.Size {
			return out.Bytes()
		}
	}
	check(t, w.Close())
	return out.Bytes()
}

// Gzip compresses data.
func Gzip(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, err := w.Write(data)
	check(t, err)
	check(t, w.Close())
	return out.Bytes()
}

// Zstd compresses data.
func Zstd(t testing.TB, data []byte) []byte {
	t.Helper()
	w, err := zstd.NewWriter(nil)
	check(t, err)
	defer w.Close()
	return w.EncodeAll(data, nil)
}
