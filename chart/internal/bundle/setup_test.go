package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"slices"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// The package manager's own packages write to the standard logger.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(m.Run())
}

// files are the files of a chart or of a source, by path.
type files map[string]string

// with returns f and what is in more.
func (f files) with(more files) files {
	all := maps.Clone(f)
	maps.Copy(all, more)
	return all
}

// under returns f below dir.
func (f files) under(dir string) files {
	moved := files{}
	for name, text := range f {
		moved[dir+"/"+name] = text
	}
	return moved
}

func (f files) tree() fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range f {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// An entry is one entry of an archive.
type entry struct {
	name, text string
	kind       byte // default: a file
}

// entries returns f in order.
func (f files) entries() []entry {
	var list []entry
	for _, name := range slices.Sorted(maps.Keys(f)) {
		list = append(list, entry{name: name, text: f[name]})
	}
	return list
}

func (f files) tgz(t testing.TB) []byte { return tgz(t, f.entries()...) }

// tgz writes an archive as any tool might.
func tgz(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname, h.Size = e.text, 0
		}
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := io.WriteString(w, e.text)
			must(t, err)
		}
	}
	must(t, w.Close())
	must(t, zip.Close())
	return out.Bytes()
}

// gzipped returns data compressed.
func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(data)
	must(t, err)
	must(t, zip.Close())
	return out.Bytes()
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// spools makes spools in a directory of the test, and fails it unless each has
// been closed at the end.
func spools(t testing.TB) artifact.Limits {
	t.Helper()
	dir := t.TempDir()
	var open []*os.File
	t.Cleanup(func() {
		for _, f := range open {
			if f.Close() == nil {
				t.Error("a spool is still open")
			}
		}
	})
	return artifact.Limits{Temp: func() (*os.File, error) {
		f, err := os.CreateTemp(dir, "")
		open = append(open, f)
		return f, err
	}}
}

// open opens the chart at the root of f.
func (f files) open(t testing.TB) *bundle.Chart {
	t.Helper()
	c, err := bundle.Open(f.tree(), ".", artifact.Limits{})
	must(t, err)
	return c
}

// pack packs c.
func pack(t testing.TB, c *bundle.Chart, e bundle.Edit) []byte {
	t.Helper()
	if e.Limits.Temp == nil {
		e.Limits = spools(t)
	}
	var out bytes.Buffer
	_, err := c.Pack(t.Context(), &out, e)
	must(t, err)
	return out.Bytes()
}

// all reads every file of tree.
func all(t testing.TB, tree fs.FS) files {
	t.Helper()
	f := files{}
	must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		f[name] = string(text)
		return err
	}))
	return f
}

// plain is a chart with one file of each kind.
var plain = files{
	"Chart.yaml":               "apiVersion: v2\nname: plain # the name\nversion: 1.2.3\nappVersion: \"1.10\"\n",
	"values.yaml":              "a: 1\nb: {c: 2}\n",
	"values.schema.json":       "{}",
	"README.md":                "# plain\n",
	"templates/config.yaml":    "kind: ConfigMap\n",
	"templates/_helpers.tpl":   "{{/* none */}}",
	"templates/tests/one.yaml": "kind: Pod\n",
	"crds/crd.yaml":            "kind: CustomResourceDefinition\n",
	"files/data.bin":           "\x00\x01\x02",
}

// read reads an archive.
func read(t testing.TB, data []byte) *bundle.Chart {
	t.Helper()
	a, err := bundle.ReadArchive(bytes.NewReader(data), spools(t))
	must(t, err)
	t.Cleanup(func() { must(t, a.Close()) })
	return a
}
