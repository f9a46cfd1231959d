package object_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A database that lacks every blob tells all about a tree but what is in its files.
func TestTreeWithoutBlobs(t *testing.T) {
	full, root := sample()
	d := database{}
	for id, o := range full {
		if o.typ == object.Tree {
			d[id] = o
		}
	}
	if total, err := object.Count(t.Context(), d, root); err != nil || total != (object.Totals{Entries: 12, Files: 8, Modules: 1}) {
		t.Errorf("got %+v, %v", total, err)
	}
	fsys, other := object.TreeFS(d, root), object.TreeFS(full, root)
	err := fs.WalkDir(fsys, ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		id, ok := object.EntryID(e)
		if o := full[id]; !ok || (o.typ == object.Tree) != e.IsDir() {
			t.Errorf("%s: id %v of a %v, %v", name, id, o.typ, ok)
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

func TestEntryIDOfOthers(t *testing.T) {
	info, err := fs.Stat(object.TreeFS(sample()), "a.txt")
	if err != nil {
		t.Fatal(err)
	}
	if id, ok := object.EntryID(fs.FileInfoToDirEntry(info)); ok || !id.IsZero() {
		t.Errorf("an entry of no tree has the id %v", id)
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
