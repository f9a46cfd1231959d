package git

import (
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/source"
)

// FuzzSparseView compares what a sparse checkout shows with what the beginnings
// of the paths say.
func FuzzSparseView(f *testing.F) {
	f.Add("a/b.txt|a/c/d|b", "a/c")
	f.Add("a/x|a-b/x|a b /x|[a]/x|*/x", "a|a-b|[a]|*|a b ")
	f.Add("a/b/c/d|a/b/e|a/f", "a/b/c|./a/b/|a/b/c")
	f.Add("!a/x|#b/x|c?/x|**/x", "!a|#b|c?|**")
	f.Add("a/x", "a/x|.|A|a/../a|/a|")
	f.Fuzz(func(t *testing.T, files, list string) {
		tree := fstest.MapFS{}
		for _, name := range strings.Split(files, "|") {
			if !fs.ValidPath(name) || name == "." || len(name) > 200 || strings.ContainsAny(name, "\x00") {
				return
			}
			tree[name] = &fstest.MapFile{Data: []byte(name), Mode: 0o644}
		}
		for name := range tree { // a file that others lie below
			for above := path.Dir(name); above != "."; above = path.Dir(above) {
				if tree[above] != nil {
					return
				}
			}
		}
		spec := source.GitRepositorySpec{SparseCheckout: strings.Split(list, "|")}
		view, err := sparseView(t.Context(), &spec, tree)
		if err != nil {
			if !errors.Is(err, source.ErrInvalid) && !strings.HasPrefix(err.Error(), "spec.sparseCheckout[") {
				t.Errorf("%q: %v does not name the entry", list, err)
			}
			return
		}
		dirs, err := spec.Directories()
		if err != nil {
			t.Fatalf("%q works and is invalid: %v", list, err)
		}
		listed := func(name string) bool {
			return dirs == nil || slices.ContainsFunc(dirs, func(dir string) bool { return strings.HasPrefix(name, dir+"/") })
		}
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(tree)), func(name string) bool { return !listed(name) })
		var got []string
		err = fs.WalkDir(view, ".", func(name string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, name)
			}
			return err
		})
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%q of %q shows %q, %v; want %q", list, files, got, err, want)
		}
		for name := range tree {
			if _, err := fs.ReadFile(view, name); (err == nil) != listed(name) {
				t.Errorf("%q of %q: reading %q: %v", list, files, name, err)
			}
		}
	})
}
