package bucket_test

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// A fixture is a bucket with everything needed to reconcile it repeatedly.
type fixture struct {
	*memoryDriver
	obj    *source.Bucket
	env    source.Env
	store  *artifact.Store
	report source.Report // of the last run
}

func newFixture(t *testing.T, d *memoryDriver) *fixture {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { store.Close() })
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	must(t, err)
	t.Cleanup(func() { cache.Close() })
	return &fixture{memoryDriver: d, obj: newBucket(nil), store: store,
		env: source.Env{Cache: cache, Sources: &source.Inventory{Store: store}}}
}

// run reconciles the bucket and returns the keys of the requested objects, sorted.
func (r *fixture) run(t *testing.T) (opened string) {
	t.Helper()
	result, err := (&source.Reconciler{Store: r.store}).Reconcile(t.Context(), r.obj, r.origin(r.obj, r.env))
	must(t, err)
	r.report = result.Report
	return r.opened()
}

func (r *fixture) opened() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := slices.Sorted(slices.Values(r.opens))
	r.opens, r.lists = nil, nil
	return strings.Join(keys, " ")
}

// archive returns the bytes of the published artifact.
func (r *fixture) archive(t *testing.T) []byte {
	t.Helper()
	f, err := r.store.Open(*r.obj.Status.Artifact)
	must(t, err)
	defer f.Close()
	b, err := io.ReadAll(f)
	must(t, err)
	return b
}

// full returns the bytes of an artifact for which all objects were fetched.
func (r *fixture) full(t *testing.T) []byte {
	t.Helper()
	fresh := newFixture(t, r.memoryDriver)
	fresh.obj.Spec = r.obj.Spec
	fresh.run(t)
	return fresh.archive(t)
}

func (r *fixture) same(t *testing.T) {
	t.Helper()
	if got := r.archive(t); !bytes.Equal(got, r.full(t)) {
		t.Error("the artifact is not the one that a full fetch makes")
	}
}

// someText returns size bytes of random text, which compresses a little.
func someText(seed uint64, size int) string {
	b := make([]byte, size)
	r := rand.New(rand.NewPCG(seed, 0))
	for i := range b {
		b[i] = "abcdefghijklmnop0123456789 \n"[r.IntN(28)]
	}
	return string(b)
}

func TestIncremental(t *testing.T) {
	t.Parallel()
	d := newMemory("a", "1", "a-b", "2", "a.d/x", someText(1, 300_000), "b/c", someText(2, 1<<20), "b/d", "", "b/e", someText(3, 100_000), "z", "3", ".sourceignore", "*.png\n", "p.png", "no")
	r := newFixture(t, d)
	steps := []struct {
		name   string
		edit   func()
		opened string
		note   string
	}{
		{"first", func() {}, ".sourceignore a a-b a.d/x b/c b/e z", ""},
		{"one changed", func() { d.put("b/c", someText(4, 1<<20)) }, ".sourceignore b/c", "6 of 7 objects are unchanged"},
		{"one grown", func() { d.put("a", "11") }, ".sourceignore a", "6 of 7 objects"},
		{"one new", func() { d.put("a/b", "11"); d.remove("a") }, ".sourceignore a/b", "6 of 7 objects"},
		{"one gone", func() { d.remove("b/e") }, ".sourceignore", "6 of 6 objects"},
		{"rules that leave more", func() { d.put(".sourceignore", "*.jpg\n") }, ".sourceignore p.png", "6 of 7 objects"},
		{"rules that leave less", func() { d.put(".sourceignore", "*.jpg\na*\n") }, ".sourceignore", "4 of 4 objects"},
		{"spec.ignore", func() { ignore := "!a-b\n"; r.obj.Spec.Ignore = &ignore }, ".sourceignore a-b", "4 of 5 objects"},
		{"all changed", func() { d.put("a-b", "x"); d.put("b/c", "x"); d.put("b/d", "x"); d.put("p.png", "x"); d.put("z", "x") }, ".sourceignore a-b b/c b/d p.png z", ""},
		{"all gone but rules", func() {
			for _, key := range []string{"a-b", "b/c", "b/d", "p.png", "z", "a/b", "a.d/x"} {
				d.remove(key)
			}
		}, ".sourceignore", ""},
		{"back again", func() { d.put("z", "3") }, ".sourceignore z", ""},
		{"nothing", func() {}, ".sourceignore", "-"},
	}
	for _, step := range steps {
		step.edit()
		r.report = source.Report{}
		testenv.Equal(t, r.run(t), step.opened, "%s: opened", step.name)
		notes := strings.Join(r.report.Notes, "\n")
		if !strings.Contains(notes, step.note) && step.note != "-" || step.note == "" && notes != "" {
			t.Errorf("%s: notes %q", step.name, notes)
		}
		r.same(t)
		r.opened()
	}
}

// TestIncrementalWithout checks that everything is fetched if something needed for copying
// is missing.
func TestIncrementalWithout(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(r *fixture){
		"cache":          func(r *fixture) { r.env.Cache = nil },
		"sources":        func(r *fixture) { r.env.Sources = nil },
		"what it was of": func(r *fixture) { r.env.Cache, _ = artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()}) },
		"the artifact":   func(r *fixture) { r.env.Sources = &source.Inventory{} },
		"the place":      func(r *fixture) { r.obj.Spec.Endpoint = "another.example" },
		"the bucket":     func(r *fixture) { r.obj.Spec.BucketName = "another" },
		"a status":       func(r *fixture) { r.obj.Status.Artifact = nil },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMemory("a", "1", "b", "2")
			r := newFixture(t, d)
			r.run(t)
			d.put("b", "3")
			lose(r)
			testenv.Equal(t, r.run(t), "a b", "opened")
			r.same(t)
		})
	}
}

// TestIncrementalSpoiled checks that a damaged published artifact is detected, and that
// the bucket is then listed again and fetched completely.
func TestIncrementalSpoiled(t *testing.T) {
	t.Parallel()
	large := someText(7, 300_000)
	objects := []string{"a", "1", "b", large, "c", someText(8, 100_000), "d", "4", "e", "5"}
	for name, spoil := range map[string]func(archive []byte) io.Reader{
		"empty":           func([]byte) io.Reader { return strings.NewReader("") },
		"not compressed":  func([]byte) io.Reader { return strings.NewReader("hello") },
		"torn at once":    func(b []byte) io.Reader { return bytes.NewReader(b[:20]) },
		"torn":            func(b []byte) io.Reader { return bytes.NewReader(b[:len(b)/2]) },
		"torn at its end": func(b []byte) io.Reader { return bytes.NewReader(b[:len(b)-1]) },
		"damaged":         func(b []byte) io.Reader { b[len(b)/2] ^= 0xff; return bytes.NewReader(b) },
		"damaged first":   func(b []byte) io.Reader { b[12] ^= 0xff; return bytes.NewReader(b) },
		"damaged sum":     func(b []byte) io.Reader { b[len(b)-5] ^= 1; return bytes.NewReader(b) },
		"another content": func([]byte) io.Reader {
			return bytes.NewReader(packed("a", "1", "b", someText(9, 300_000), "c", "3", "d", "4", "e", "5"))
		},
		"another size":         func([]byte) io.Reader { return bytes.NewReader(packed("a", "22", "b", large, "d", "4", "e", "5")) },
		"without the first":    func([]byte) io.Reader { return bytes.NewReader(packed("b", large, "d", "4", "e", "5")) },
		"without another":      func([]byte) io.Reader { return bytes.NewReader(packed("a", "1", "b", large, "e", "5")) },
		"without the last":     func([]byte) io.Reader { return bytes.NewReader(packed("a", "1", "b", large, "d", "4")) },
		"nothing in it":        func([]byte) io.Reader { return bytes.NewReader(packed()) },
		"out of order":         func([]byte) io.Reader { return bytes.NewReader(packed("b", large, "a", "1", "d", "4", "e", "5")) },
		"a directory":          func([]byte) io.Reader { return bytes.NewReader(packed("a/", "", "b", large, "d", "4", "e", "5")) },
		"a failing disk":       func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b[:len(b)/3]), brokenDisk{}) },
		"a failing disk, late": func(b []byte) io.Reader { return io.MultiReader(bytes.NewReader(b), brokenDisk{}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newMemory(objects...)
			r := newFixture(t, d)
			r.run(t)
			d.put("c", "3")
			archive := r.archive(t)
			sources := &spoiledSources{Sources: r.env.Sources, content: func() io.Reader { return spoil(slices.Clone(archive)) }}
			r.env.Sources = sources
			r.run(t)
			r.same(t)
			r.opened()
			if notes := strings.Join(r.report.Notes, " "); sources.opened != 1 || strings.Contains(notes, "are unchanged") {
				t.Errorf("opened %d times, notes %q", sources.opened, notes)
			}
			r.env.Sources = sources.Sources
			d.put("c", "4")
			testenv.Equal(t, r.run(t), "c", "then it opened")
			r.same(t)
		})
	}
}

// A spoiledSources returns other content than was published. Its readers report that as
// late as they may.
type spoiledSources struct {
	source.Sources
	content func() io.Reader
	opened  int
}

func (s *spoiledSources) Open(_ context.Context, a artifact.Artifact) (io.ReadCloser, error) {
	s.opened++
	r, err := artifact.VerifyReader(s.content(), a.Digest)
	return io.NopCloser(r), err
}

type brokenDisk struct{}

func (brokenDisk) Read([]byte) (int, error) { return 0, fs.ErrInvalid }

// packed returns an archive of files NAME, DATA, …; a name that ends in a slash is a directory.
func packed(files ...string) []byte {
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	w := tar.NewWriter(z)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: ".", Mode: 0o750})
	for i := 0; i < len(files); i += 2 {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: files[i], Mode: 0o600, Size: int64(len(files[i+1]))}
		if name, ok := strings.CutSuffix(files[i], "/"); ok {
			h.Typeflag, h.Name = tar.TypeDir, name
		}
		err = cmp.Or(err, w.WriteHeader(h))
		_, failed := io.WriteString(w, files[i+1])
		err = cmp.Or(err, failed)
	}
	if err = cmp.Or(err, w.Close(), z.Close()); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// TestIncrementalNames tests names that need extended headers in an archive, or whose order
// in an archive differs from that of keys.
func TestIncrementalNames(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 255)
	keys := []string{
		"é/ü", "a b", "con", "a:b", "A", "e\u0301", "\U0001f600", "PaxHeaders.0/x", "x.", "-", "~", "..a", "a/" + long, "a-" + long[:99], "a." + long[:98],
		long[:100], long[:101], long + "/" + long + "/x", "d/" + strings.Repeat(long+"/", 15) + "x", "d!/x", "d/x", "d0/x", "d.x", " /x", "\ufeffx", "a\u2028b",
	}
	d := newMemory("changes", "1")
	for _, key := range keys {
		d.put(key, "content of "+key)
	}
	r := newFixture(t, d)
	r.run(t)
	d.put("changes", "2")
	testenv.Equal(t, r.run(t), "changes", "opened")
	r.same(t)
}
