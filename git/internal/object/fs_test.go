package object_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/git/internal/objecttest"
	"github.com/headgate-io/headgate/internal/testenv"
)

// A database holds SHA-1 objects.
type database struct{ objecttest.Database }

func newDatabase() database { return database{objecttest.Database{}} }

func (d database) add(t object.Type, data string) object.ID { return d.Add(object.SHA1, t, data) }

// entry returns an entry of a tree.
func entry(mode, name string, id object.ID) string {
	return mode + " " + name + "\x00" + string(id.Bytes())
}

// sample returns a database and its root: files, an executable, a link, a
// submodule, an empty folder, and a name that sorts differently in Git.
func sample() (database, object.ID) {
	d := newDatabase()
	blob := func(s string) object.ID { return d.add(object.Blob, s) }
	sub := d.add(object.Tree, entry("100644", "inner.txt", blob("inner\n")))
	lib := d.add(object.Tree, entry("100644", "deep\xff", blob("latin"))+entry("40000", "sub", sub))
	empty := d.add(object.Tree, "")
	module := blob("stands in for a commit")
	root := d.add(object.Tree,
		entry("100644", "a.txt", blob("hello\n"))+
			entry("40000", "empty", empty)+
			entry("100664", "lib.go", blob("package lib\n"))+
			entry("040000", "lib", lib)+
			entry("120000", "link", blob("a.txt"))+
			entry("160000", "module", module)+
			entry("100755", "run.sh", blob("#!/bin/sh\n"))+
			entry("40000", "sub", sub))
	return d, root
}

func TestTreeFS(t *testing.T) {
	d := newDatabase() // without submodules and names that are not UTF-8: fstest cannot handle them
	sub := d.add(object.Tree, entry("100644", "inner.txt", d.add(object.Blob, "inner\n")))
	plain := d.add(object.Tree, entry("100644", "a.txt", d.add(object.Blob, "hello\n"))+
		entry("100644", "lib.go", d.add(object.Blob, ""))+entry("40000", "lib", sub)+
		entry("40000", "z", d.add(object.Tree, "")))
	if err := fstest.TestFS(object.TreeFS(d, plain), "a.txt", "lib.go", "lib/inner.txt", "z"); err != nil {
		t.Error(err)
	}
}

func TestTreeFSModes(t *testing.T) {
	d, root := sample()
	fsys := object.TreeFS(d, root)
	var got []string
	err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		i, err := e.Info()
		if err != nil {
			return err
		}
		s, err := fs.Stat(fsys, name)
		if err != nil || s.Mode() != i.Mode() || s.Size() != i.Size() {
			t.Errorf("%s: Stat and Info differ: %v and %v, %v", name, s, i, err)
		}
		got = append(got, fmt.Sprintf("%v %q %d", i.Mode(), name, i.Size()))
		return nil
	})
	must(t, err)
	want := []string{
		`drwxr-xr-x "." 0`,
		`-rw-r--r-- "a.txt" 6`,
		`drwxr-xr-x "empty" 0`,
		`drwxr-xr-x "lib" 0`,
		`-rw-r--r-- "lib/deep\xff" 5`,
		`drwxr-xr-x "lib/sub" 0`,
		`-rw-r--r-- "lib/sub/inner.txt" 6`,
		`-rw-r--r-- "lib.go" 12`,
		`Lrwxrwxrwx "link" 5`,
		`?--------- "module" 0`,
		`-rwxr-xr-x "run.sh" 10`,
		`drwxr-xr-x "sub" 0`,
		`-rw-r--r-- "sub/inner.txt" 6`,
	}
	testenv.Equal(t, got, want)
	for name, content := range map[string]string{"link": "a.txt", "lib/deep\xff": "latin", "run.sh": "#!/bin/sh\n"} {
		if b, err := fs.ReadFile(fsys, name); err != nil || string(b) != content {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

func TestTreeFSErrors(t *testing.T) {
	d, root := sample()
	missing := d.add(object.Blob, "gone")
	delete(d.Database, missing)
	commit := d.add(object.Commit, "")
	twice := d.add(object.Tree, entry("100644", "x", commit)+entry("100644", "x.y", commit)+entry("40000", "x", root))
	bad := d.add(object.Tree, entry("40000", "blob", d.add(object.Blob, "?"))+entry("100644", "commit", commit)+entry("40000", "dup", twice)+
		entry("100644", "gone", missing)+entry("40000", "gonedir", missing)+entry("40000", "root", root))
	fsys := object.TreeFS(d, bad)
	for name, want := range map[string]error{
		"absent": fs.ErrNotExist, "root/a.txt/b": fs.ErrNotExist, "gone": fs.ErrNotExist, "gonedir": fs.ErrNotExist,
		"commit": object.ErrCorrupt, "blob/x": object.ErrCorrupt, "dup/x": object.ErrCorrupt, "dup": object.ErrCorrupt,
		"": fs.ErrInvalid, "/root": fs.ErrInvalid, "root/": fs.ErrInvalid, "root/../gone": fs.ErrInvalid, "./root": fs.ErrInvalid,
		strings.Repeat("a/", 512) + "a": object.ErrCorrupt, strings.Repeat("a", 4097): object.ErrCorrupt,
	} {
		_, err := fsys.Open(name)
		var path *fs.PathError
		if !errors.Is(err, want) || !errors.As(err, &path) || path.Path != name {
			t.Errorf("Open %.80q: %v, want %v", name, err, want)
		}
	}
	if _, err := fsys.Open("gone"); !strings.Contains(err.Error(), missing.String()) {
		t.Errorf("%v does not name the object %v", err, missing)
	}
	if _, err := fs.ReadDir(fsys, "root/a.txt"); err == nil {
		t.Error("a file could be listed")
	}
	if _, err := fs.ReadFile(fsys, "root"); err == nil {
		t.Error("a folder could be read")
	}
	if _, err := fsys.Open("root/module"); err == nil || !strings.Contains(err.Error(), "submodule") {
		t.Errorf("Open of a submodule: %v", err)
	}
}

// TestTreeFSConcurrent walks one file system from several goroutines, with a
// folder larger than the cache.
func TestTreeFSConcurrent(t *testing.T) {
	t.Parallel()
	d := newDatabase()
	blob := d.add(object.Blob, "x")
	var huge strings.Builder
	for i := range 10_000 {
		huge.WriteString(entry("100644", fmt.Sprintf("%06d", i), blob))
	}
	root := d.add(object.Tree, entry("40000", "huge", d.add(object.Tree, huge.String()))+entry("100644", "x", blob))
	fsys := object.TreeFS(d, root)
	var walks sync.WaitGroup
	for range 4 {
		walks.Go(func() {
			n := 0
			err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
				if err != nil || e.IsDir() {
					return err
				}
				n++
				_, err = fs.Stat(fsys, name)
				return err
			})
			if err != nil || n != 10_001 {
				t.Errorf("%d files, %v", n, err)
			}
		})
	}
	walks.Wait()
}

func TestMeasure(t *testing.T) {
	d, root := sample()
	total, err := object.Measure(t.Context(), d, root, false)
	if want := (object.Totals{Entries: 12, Files: 8, Bytes: 50, Modules: 1}); err != nil || total != want {
		t.Errorf("got %+v, %v, want %+v", total, err, want)
	}
	bomb := root
	for range 100 {
		bomb = d.add(object.Tree, entry("40000", "a", bomb)+entry("40000", "b", bomb))
	}
	total, err = object.Measure(t.Context(), d, bomb, false)
	if want := (object.Totals{Entries: math.MaxInt64, Files: math.MaxInt64, Bytes: math.MaxInt64, Modules: math.MaxInt64}); err != nil || total != want {
		t.Errorf("bomb: got %+v, %v, want %+v", total, err, want)
	}
	deep := root
	for range 600 {
		deep = d.add(object.Tree, entry("40000", "a", deep))
	}
	if _, err = object.Measure(t.Context(), d, deep, false); !errors.Is(err, object.ErrCorrupt) || len(err.Error()) > 300 {
		t.Errorf("deep: %v", err)
	}
	missing := d.add(object.Blob, "gone")
	delete(d.Database, missing)
	holder := d.add(object.Tree, entry("40000", "dir", d.add(object.Tree, entry("100644", "file", missing))))
	if _, err = object.Measure(t.Context(), d, holder, false); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "dir/file: object "+missing.String()) {
		t.Errorf("missing blob: %v", err)
	}
	if _, err = object.Measure(t.Context(), d, missing, false); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing root: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = object.Measure(ctx, d, root, false); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// If a database lacks every blob, a tree shows everything except the content of its
// files.
func TestTreeWithoutBlobs(t *testing.T) {
	full, root := sample()
	d := newDatabase()
	for id, o := range full.Database {
		if o.Type == object.Tree {
			d.Database[id] = o
		}
	}
	if total, err := object.Measure(t.Context(), d, root, true); err != nil || total != (object.Totals{Entries: 12, Files: 8, Modules: 1}) {
		t.Errorf("got %+v, %v", total, err)
	}
	fsys, other := object.TreeFS(d, root), object.TreeFS(full, root)
	err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		tree, id := object.EntryID(e)
		if o := full.Database[id]; tree != fsys || (o.Type == object.Tree) != e.IsDir() {
			t.Errorf("%s: id %v of a %v", name, id, o.Type)
		}
		info, err := fs.Lstat(fsys, name)
		if err != nil {
			return err
		}
		want, err := fs.Lstat(other, name)
		if err != nil {
			return err
		}
		size := int64(-1)
		if e.IsDir() || e.Type() == fs.ModeIrregular {
			size = 0
		}
		if info.Mode() != want.Mode() || info.Name() != want.Name() || info.Size() != size {
			t.Errorf("%s: %v of %d bytes, want %v and %d", name, info, info.Size(), want, size)
		}
		if _, err := fs.Stat(fsys, name); size < 0 && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: Stat: %v", name, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestLinks(t *testing.T) {
	d, root := sample()
	long := d.add(object.Tree, entry("120000", "long", d.add(object.Blob, strings.Repeat("x", object.MaxPath+1)))+entry("40000", "sample", root))
	fsys := object.TreeFS(d, long)
	if target, err := fs.ReadLink(fsys, "sample/link"); err != nil || target != "a.txt" {
		t.Errorf("%q, %v", target, err)
	}
	for name, want := range map[string]error{"sample/a.txt": fs.ErrInvalid, "sample": fs.ErrInvalid, "absent": fs.ErrNotExist, "long": nil} {
		target, err := fs.ReadLink(fsys, name)
		var path *fs.PathError
		if !errors.As(err, &path) || target != "" || want != nil && !errors.Is(err, want) {
			t.Errorf("%s: %q, %v; want %v", name, target, err, want)
		}
	}
	if _, err := fs.Lstat(fsys, "absent"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Lstat of nothing: %v", err)
	}
}

// Replaced content is shown in every view of the tree.
func TestReplace(t *testing.T) {
	d, root := sample()
	fsys := object.TreeFS(d, root)
	info, err := fs.Stat(fsys, "sub/inner.txt")
	must(t, err)
	if tree, name := object.Locate(info); tree != fsys || name != "sub/inner.txt" {
		t.Errorf("it comes from %p, %s", tree, name)
	}
	fsys.Replace("sub/inner.txt", io.NewSectionReader(strings.NewReader("other content"), 0, 13))
	for name, want := range map[string]string{"sub/inner.txt": "other content", "lib/sub/inner.txt": "inner\n"} {
		b, err := fs.ReadFile(fsys, name)
		f, openErr := fsys.Open(name)
		if err != nil || openErr != nil || string(b) != want {
			t.Fatalf("%s: %q, %v, %v", name, b, err, openErr)
		}
		info, err := fs.Stat(fsys, name)
		if b, readErr := io.ReadAll(f); err != nil || readErr != nil || string(b) != want || info.Size() != int64(len(want)) {
			t.Errorf("%s: %q of %d bytes, %v, %v", name, b, info.Size(), err, readErr)
		}
	}
	if info, err := fs.Stat(fstest.MapFS{"a": {}}, "a"); err != nil {
		t.Error(err)
	} else if tree, _ := object.Locate(info); tree != nil {
		t.Error("a file of another file system comes from a tree")
	}
}

// A linked tree appears in place of the submodule; without a tree, the submodule is
// an empty folder.
func TestLink(t *testing.T) {
	d := newDatabase()
	file := func(text string) string { return entry("100644", "file", d.add(object.Blob, text)) }
	commit := d.add(object.Blob, "stands in for a commit")
	sub := object.TreeFS(d, d.add(object.Tree, file("sub")+entry("160000", "inner", commit)))
	top := object.TreeFS(d, d.add(object.Tree, entry("160000", "empty", commit)+file("top")+entry("40000", "z", d.add(object.Tree, entry("160000", "sub", commit)))))
	inner := object.TreeFS(d, d.add(object.Tree, file("inner")))
	top.Link("empty", nil)
	top.Link("z/sub", sub)
	top.Link("z/sub", nil)
	sub.Link("inner", inner)
	if err := fstest.TestFS(top, "empty", "file", "z/sub/file", "z/sub/inner/file"); err != nil {
		t.Error(err)
	}
	info, err := fs.Stat(top, "z/sub/inner/file")
	must(t, err)
	if tree, name := object.Locate(info); tree != inner || name != "file" {
		t.Errorf("it comes from %p, %s", tree, name)
	}
	for _, name := range []string{"empty/x", "z/sub/absent", "z/sub/inner/file/x", "z/sub/inner/absent/x"} {
		if _, err := top.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := top.Open("z/sub/../x"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("a path that is not valid: %v", err)
	}
}

var must = testenv.Must
