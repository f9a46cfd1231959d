package oci_test

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// contentOf opens the content of team/app:latest.
func contentOf(t *testing.T, obj *source.OCIRepository, env source.Env) source.Explainer {
	t.Helper()
	o := oci.New(obj, env, technologies)
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	t.Cleanup(func() { c.Close() })
	return c.(source.Explainer)
}

// TestExtract has layers that hold one file, a, and more that is left out or
// taken as it is.
func TestExtract(t *testing.T) {
	tree := text("a", "1")
	plain := testenv.Tar(t, testenv.Entries(tree)...)
	entry := func(kind byte, name, link string) testenv.Entry {
		return testenv.Entry{Header: tar.Header{Typeflag: kind, Name: name, Linkname: link, Mode: 0o644}}
	}
	holding := func(more ...testenv.Entry) []byte {
		return testenv.Gzip(t, testenv.Tar(t, append(testenv.Entries(tree), more...)...))
	}
	for name, test := range map[string]struct {
		mediaType string
		layer     []byte
		ignore    string
		want      []string // besides a
		leftOut   int
	}{
		"gzip":                    {testenv.LayerTarGzip, testenv.Gzip(t, plain), "", nil, 0},
		"zstd":                    {testenv.LayerTarZstd, testenv.Zstd(t, plain), "", nil, 0},
		"plain":                   {testenv.LayerTar, plain, "", nil, 0},
		"gzip that says zstd":     {testenv.LayerTarZstd, testenv.Gzip(t, plain), "", nil, 0},
		"zstd that says gzip":     {testenv.LayerTarGzip, testenv.Zstd(t, plain), "", nil, 0},
		"plain that says nothing": {"", plain, "", nil, 0},
		"chart":                   {"application/vnd.cncf.helm.chart.content.v1.tar+gzip", testenv.Gzip(t, plain), "", nil, 0},
		"links and devices": {testenv.LayerTarGzip, holding(entry(tar.TypeSymlink, "s", "/etc/passwd"), entry(tar.TypeLink, "h", "../../etc/passwd"),
			entry(tar.TypeChar, "dev/null", ""), entry(tar.TypeBlock, "dev/sda", ""), entry(tar.TypeFifo, "p", "")), "", nil, 5},
		"file below a link":    {testenv.LayerTarGzip, holding(entry(tar.TypeSymlink, "s", "/etc"), entry(tar.TypeReg, "s/passwd", "")), "", []string{"s/passwd"}, 1},
		"whiteouts":            {testenv.LayerTarGzip, holding(entry(tar.TypeReg, ".wh.gone", ""), entry(tar.TypeReg, "d/.wh..wh..opq", "")), "", []string{".wh.gone", "d/.wh..wh..opq"}, 0},
		"names with a dot":     {testenv.LayerTarGzip, holding(entry(tar.TypeDir, "./", ""), entry(tar.TypeReg, "./b", "")), "", []string{"b"}, 0},
		"one name twice":       {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "b", ""), entry(tar.TypeReg, "b", "")), "", []string{"b"}, 0},
		"default ignore rules": {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "logo.png", ""), entry(tar.TypeReg, ".github/b", "")), "", nil, 0},
		"spec.ignore":          {testenv.LayerTarGzip, holding(entry(tar.TypeReg, "logo.png", ""), entry(tar.TypeReg, "b", "")), "/b", []string{"logo.png"}, 0},
		"ignore files": {testenv.LayerTarGzip, holding(testenv.Entries(fstest.MapFS{".sourceignore": {Data: []byte("/b\n")}, "b": {}, "d/.sourceignore": {Data: []byte("c\n")}, "d/b": {}, "d/c": {}})...),
			"", []string{".sourceignore", "d/.sourceignore", "d/b"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{})
			r.push(testenv.Blob{MediaType: test.mediaType, Data: test.layer})
			obj := r.object("app", func(s *source.OCIRepositorySpec) { s.Ignore = &test.ignore })
			result, err := r.reconcile(obj)
			must(t, err)
			want := append([]string{"a"}, test.want...)
			slices.Sort(want)
			if got := r.Names(obj.Artifact()); !slices.Equal(got, want) {
				t.Errorf("the artifact holds %q, want %q", got, want)
			}
			if got := result.Report; got.LeftOutTotal != test.leftOut || got.Files != len(want) {
				t.Errorf("report %+v, want %d files, %d left out", got, len(want), test.leftOut)
			}
		})
	}
}

// moreHostileLayers are archives with defects of their own.
var moreHostileLayers = []threat{
	{name: "no archive", plant: layerOf(func(testing.TB) []byte { return []byte("\x00asm" + strings.Repeat("\x01", 600)) }), reason: layerFailed,
		says: []string{"its media type is ", "set spec.layerSelector.operation to copy"}},
	{name: "text", plant: layerOf(func(testing.TB) []byte { return []byte("hello\n") }), reason: layerFailed, says: []string{"its media type is "}},
	{name: "no frame of zstd", plant: layerOf(func(testing.TB) []byte { return []byte("\x28\xb5\x2f\xfd is no frame") }), reason: layerFailed, says: []string{"its media type is "}},
	{name: "garbage behind zstd", plant: layerOf(func(t testing.TB) []byte { return append(testenv.TarZstd(t, many(1)).Data, 'g') }), reason: layerFailed, says: []string{"zstd"}},
	{name: "window of zstd", plant: layerOf(func(testing.TB) []byte { return []byte("\x28\xb5\x2f\xfd\x00\xff\x01\x00\x00") }), reason: layerFailed, says: []string{"128 MiB"}},
	{name: "negative size of a file", plant: layerOf(func(t testing.TB) []byte { return negative(testenv.Tar(t, zeros(100)...)) }), reason: layerFailed, says: []string{"invalid tar header"}},
	{name: "hard link that leads out", plant: layerOf(func(t testing.TB) []byte {
		return testenv.Tar(t, testenv.Entry{Header: tar.Header{Typeflag: tar.TypeLink, Name: "../h", Linkname: "a"}})
	}), reason: layerFailed, says: []string{"leads out of the archive"}},

	{name: "bytes of one file", plant: layerOf(func(t testing.TB) []byte { return testenv.Tar(t, zeros(2<<20)...) }), limits: artifact.Limits{FileBytes: 1 << 20},
		reason: layerFailed, says: []string{`"zeros" has more than 1048576 bytes`}},
	{name: "ignore file that is none", plant: layerOf(func(t testing.TB) []byte {
		return testenv.TarGzip(t, text(".sourceignore", strings.Repeat("a", 1<<16))).Data
	}), reason: "SourceIgnoreError", says: []string{".sourceignore:1"}},
}

// negative gives the first entry of a tar archive the size -1.
func negative(archive []byte) []byte {
	copy(archive[124:136], strings.Repeat("\xff", 12))
	copy(archive[148:156], "        ")
	sum := 0
	for _, b := range archive[:512] {
		sum += int(b)
	}
	copy(archive[148:156], fmt.Sprintf("%06o\x00 ", sum))
	return archive
}

func TestHostileLayers(t *testing.T) {
	for _, h := range moreHostileLayers {
		t.Run(h.name, func(t *testing.T) {
			t.Parallel()
			h.try(t, testenv.RegistryConfig{Username: "user", Password: canary})
		})
	}
}

// TestCopyHashes copies with a digest that the store does not compute.
func TestCopyHashes(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: r.Dir, Algorithm: artifact.BLAKE3})
	must(t, err)
	defer store.Close()
	r.Store = store
	obj := r.object("app", copied)
	r.push(testenv.TarGzip(t, text("a", "one\n")))
	r.stored(obj)
	if got := obj.Artifact().Digest; !strings.HasPrefix(got, "blake3:") {
		t.Errorf("digest %s", got)
	}
	r.push(testenv.TarGzip(t, text("a", "two\n")))
	r.g.Break(&testenv.Defect{Phase: testenv.GetBlob, Do: testenv.Flip, After: 50})
	r.refused(obj, obj.Artifact(), pullFailed, "instead of sha256:")
}

// TestStoreAtFault has failures that are not the registry's.
func TestStoreAtFault(t *testing.T) {
	full := errors.New("no space left on device")
	for name, spec := range map[string]func(*source.OCIRepositorySpec){"extract": nil, "copy": copied} {
		t.Run(name, func(t *testing.T) {
			r := newSetup(t, testenv.RegistryConfig{})
			r.push(testenv.TarGzip(t, text("a", "one\n")))
			_, err := contentOf(t, r.object("app", spec), source.Env{Secrets: r.secrets}).WriteTo(t.Context(), failingWriter{full})
			if _, chosen := errors.AsType[*source.StepError](err); !errors.Is(err, full) || chosen {
				t.Errorf("error %v (%T), want the writer's and no step", err, err)
			}
		})
	}
	t.Run("spool", func(t *testing.T) {
		r := newSetup(t, testenv.RegistryConfig{})
		r.push(testenv.TarGzip(t, text("a", "one\n")))
		r.limits.Temp = func() (*os.File, error) { return nil, full }
		obj := r.object("app", nil)
		_, err := r.reconcile(obj)
		if step, ok := errors.AsType[*source.StepError](err); !ok || step.Step != source.StepStore || !errors.Is(err, full) {
			t.Errorf("error %v, want one of the store", err)
		}
	})
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }

func TestProgress(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	layer := testenv.TarGzip(t, text("a", strings.Repeat("one\n", 1000)))
	r.push(layer)
	var last source.Progress
	env := source.Env{Secrets: r.secrets, Progress: func(p source.Progress) {
		if p.Done < last.Done {
			t.Errorf("%+v after %+v", p, last)
		}
		last = p
	}}
	if _, err := contentOf(t, r.object("app", nil), env).WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	n := int64(len(layer.Data))
	if want := (source.Progress{Object: "ocirepository/default/app", Phase: "receiving layer", Done: n, Total: n, Unit: "bytes"}); last != want {
		t.Errorf("last %+v, want %+v", last, want)
	}
}

func TestExplain(t *testing.T) {
	r := newSetup(t, testenv.RegistryConfig{})
	r.push(testenv.TarGzip(t, fstest.MapFS{"a": {Data: []byte("1")}, "logo.png": {}}))
	c := contentOf(t, r.object("app", nil), source.Env{Secrets: r.secrets})
	tree, rules, err := c.Explain(t.Context())
	must(t, err)
	if data, err := fs.ReadFile(tree, "a"); string(data) != "1" || err != nil {
		t.Errorf("a: %q, %v", data, err)
	}
	if rule, ok, err := rules.Match(t.Context(), "logo.png", false); err != nil || !ok || rule.Pattern != "*.png" {
		t.Errorf("logo.png: %+v, %t", rule, ok)
	}
	if report, err := c.WriteTo(t.Context(), io.Discard); err != nil || report.Files != 1 {
		t.Errorf("then %+v, %v", report, err)
	}
	if n := r.g.Count(testenv.GetBlob); n != 1 {
		t.Errorf("%d requests for the layer", n)
	}
	unproved := r.object("app", signed)
	if _, _, err := contentOf(t, unproved, source.Env{Secrets: r.secrets}).Explain(t.Context()); !errors.Is(err, source.ErrVerification) {
		t.Errorf("before it was verified: %v", err)
	}
	_, _, err = contentOf(t, r.object("app", copied), source.Env{Secrets: r.secrets}).Explain(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ignore rules do not apply") {
		t.Errorf("of a copy: %v", err)
	}
}
