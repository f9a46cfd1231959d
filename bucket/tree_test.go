package bucket

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// listingOf returns the sorted listing of objects; the rules leave out those
// whose keys are in left.
func listingOf(objects []Object, left map[string]bool) *listing {
	slices.SortFunc(objects, func(a, b Object) int { return strings.Compare(a.Key, b.Key) })
	l := new(listing)
	for _, o := range objects {
		l.objects = append(l.objects, listedObject{Object: o, ignored: left[o.Key]})
	}
	return l
}

// keyed returns a snapshot of objects that hold their keys; keys that begin
// with ! are left out by the rules.
func keyed(keys ...string) *snapshot {
	var objects []Object
	dropped := map[string]bool{}
	for _, key := range keys {
		key, out := strings.CutPrefix(key, "!")
		dropped[key] = out
		objects = append(objects, Object{Key: key, ETag: "e", Size: int64(len(key))})
	}
	return &snapshot{list: listingOf(objects, dropped), driver: echo{}}
}

// An echo is a store whose objects hold their keys.
type echo struct{ Driver }

func (echo) Open(_ context.Context, o Object, offset int64) (io.ReadCloser, error) {
	return io.NopCloser(strings.NewReader(o.Key[offset:])), nil
}

func walked(t *testing.T, tree fs.FS) (list []string) {
	t.Helper()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if d.IsDir() {
			name += "/"
		}
		list = append(list, name)
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return list
}

func TestTree(t *testing.T) {
	for name, c := range map[string]struct {
		keys      []string
		kept, all string
	}{
		"empty":          {nil, "./", "./"},
		"order of names": {[]string{"a-b", "a/b", "a0", "a.x/c", "a/-/d", "a/-e"}, "./ a/ a/-/ a/-/d a/-e a/b a-b a.x/ a.x/c a0", "./ a/ a/-/ a/-/d a/-e a/b a-b a.x/ a.x/c a0"},
		"left out":       {[]string{"!a/b", "!c", "d/e", "!d/f"}, "./ d/ d/e", "./ a/ a/b c d/ d/e d/f"},
		"deep":           {[]string{strings.Repeat("d/", 100) + "f"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := keyed(c.keys...)
			kept := s.tree(false, func(i int) (io.ReadCloser, error) { return receive(t.Context(), s.driver, s.list.at(i)), nil })
			all := s.plain(t.Context())
			if got := strings.Join(walked(t, kept), " "); c.kept != "" && got != c.kept {
				t.Errorf("kept: %q, want %q", got, c.kept)
			}
			if got := strings.Join(walked(t, all), " "); c.all != "" && got != c.all {
				t.Errorf("all: %q, want %q", got, c.all)
			}
			for _, tree := range []*tree{kept, all} {
				var files []string
				for _, name := range walked(t, tree) {
					if !strings.HasSuffix(name, "/") {
						files = append(files, name)
					}
				}
				if len(files) == 0 {
					continue
				}
				if err := fstest.TestFS(tree, files...); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

func TestTreeIgnoreFile(t *testing.T) {
	for name, keys := range map[string][]string{
		"not listed": {".a", ".sourceignore", "z"},
		"neighbours": {".a", ".sourceignore", ".sourceignore-x", ".sourceignore.bak", "z"},
	} {
		t.Run(name, func(t *testing.T) {
			want := "./ " + strings.Join(keys, " ")
			s := keyed(slices.DeleteFunc(keys, func(key string) bool { return key == ".sourceignore" })...)
			s.ignore, s.text = &Object{Key: ".sourceignore"}, "*.png\n"
			for _, tree := range []*tree{s.plain(t.Context()), s.tree(false, nil)} {
				if got := strings.Join(walked(t, tree), " "); got != want {
					t.Error(got)
				}
				if text, err := fs.ReadFile(tree, ".sourceignore"); err != nil || string(text) != s.text {
					t.Errorf("%q, %v", text, err)
				}
				if info, err := fs.Stat(tree, ".sourceignore"); err != nil || info.Size() != 6 {
					t.Error(info, err)
				}
			}
		})
	}
}

func TestTreeAbsent(t *testing.T) {
	tree := keyed("a/b", "c").plain(t.Context())
	for _, name := range []string{"b", "a/c", "c/d", "a/b/c", ".sourceignore"} {
		if _, err := tree.Open(name); !isNotExist(err) {
			t.Errorf("open %s: %v", name, err)
		}
		if _, err := tree.ReadDir(name); !isNotExist(err) {
			t.Errorf("read directory %s: %v", name, err)
		}
	}
	for _, name := range []string{"", "/a", "a/", "../a"} {
		if _, err := tree.Open(name); err == nil {
			t.Errorf("open %q: no error", name)
		}
	}
}

func isNotExist(err error) bool {
	e, ok := err.(*fs.PathError)
	return ok && e.Err == fs.ErrNotExist
}

// manyKeys returns n keys as buckets have them.
func manyKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("apps/%03d/overlays-%02d/production/resource-%07d.yaml", i%1000, i%37, i)
	}
	return keys
}

func BenchmarkWalk(b *testing.B) {
	s := keyed(manyKeys(1_000_000)...)
	b.Run("each", func(b *testing.B) {
		for b.Loop() {
			n, tree := 0, s.tree(false, nil)
			tree.each(tree.folder("."), func(int) bool { n++; return true })
			if n != 1_000_000 {
				b.Fatal(n)
			}
		}
	})
	b.Run("WalkDir", func(b *testing.B) {
		for b.Loop() {
			n := 0
			fs.WalkDir(s.tree(false, nil), ".", func(_ string, d fs.DirEntry, _ error) error {
				if !d.IsDir() {
					n++
				}
				return nil
			})
			if n != 1_000_000 {
				b.Fatal(n)
			}
		}
	})
}
