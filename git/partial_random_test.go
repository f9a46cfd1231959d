package git_test

import (
	"bytes"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// Whatever the tree and the spec, a lean fetch, a whole fetch and a local
// repository make the same bytes or fail alike.
func TestPartialFetchIsWholeFetch(t *testing.T) {
	repo := testenv.NewRepo(t)
	lean := testenv.ServeHTTP(t, testenv.HTTP{}, repo).Repo()
	whole := testenv.ServeHTTP(t, testenv.HTTP{NoFilter: true}, repo).Repo()
	const here = "https://example.com/app"
	random := rand.New(rand.NewPCG(1, 2))
	stored := 0
	for range 30 {
		tree, dirs := randomTree(random)
		repo.Commit(testenv.Commit{Branch: "main", Files: tree})
		g := sparse("", dirs...)
		if ignore := randomIgnore(random, tree); random.IntN(3) > 0 {
			g.Spec.Ignore = &ignore
		}
		_, want, _, wantErr := try(t.Context(), withURL(g, whole), source.Env{})
		for name, row := range map[string]struct {
			url string
			env source.Env
		}{"lean": {lean, source.Env{}}, "local": {here, source.Env{Local: map[string]string{here: repo.Dir}}}} {
			_, got, _, err := try(t.Context(), withURL(g, row.url), row.env)
			if (err == nil) != (wantErr == nil) || err != nil && strings.Contains(err.Error(), "spec.") && after(err) != after(wantErr) {
				t.Errorf("%s: sparse %q: %v, whole fetch: %v", name, dirs, err, wantErr)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s: sparse %q, ignore %v: %v, but the whole fetch makes %v", name, dirs, g.Spec.Ignore,
					slices.Sorted(maps.Keys(contents(t, got))), slices.Sorted(maps.Keys(contents(t, want))))
			}
		}
		if wantErr == nil {
			stored++
		}
	}
	if stored < 15 {
		t.Errorf("only %d of 30 random specs can work", stored)
	}
}

// after is what an error says from the field of the spec on.
func after(err error) string { return err.Error()[strings.Index(err.Error(), "spec."):] }

var elements = []string{"a", "b", "c", "A", "a-b", "[a]", "*", "x y", ".github", "a.yaml"}

// randomTree returns a tree and directories of it, mostly.
func randomTree(random *rand.Rand) (fstest.MapFS, []string) {
	tree := fstest.MapFS{"top": {Data: []byte("top"), Mode: 0o644}}
	dirs := map[string]bool{}
	for i := range 5 + random.IntN(60) {
		parts := make([]string, 1+random.IntN(4))
		for j := range parts {
			parts[j] = elements[random.IntN(len(elements))]
		}
		name := path.Join(parts...) + []string{"", ".md", ".yaml"}[random.IntN(3)]
		if random.IntN(8) == 0 {
			name = path.Join(path.Dir(name), ".sourceignore")
		}
		if clashes(tree, dirs, name) {
			continue
		}
		data := []string{strconv.Itoa(i), "same", elements[random.IntN(len(elements))] + "/\n", "*.md\n!a.md\n"}[random.IntN(4)]
		tree[name] = &fstest.MapFile{Data: []byte(data), Mode: []fs.FileMode{0o644, 0o755, fs.ModeSymlink | 0o777}[random.IntN(3)*random.IntN(2)]}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			dirs[dir] = true
		}
	}
	known := slices.Sorted(maps.Keys(dirs))
	var list []string
	for range random.IntN(5) {
		if random.IntN(20) == 0 {
			list = append(list, path.Join("a", elements[random.IntN(len(elements))]))
		} else if len(known) > 0 {
			list = append(list, []string{"", "./"}[random.IntN(2)]+known[random.IntN(len(known))]+[]string{"", "/"}[random.IntN(2)])
		}
	}
	return tree, list
}

// clashes reports whether name is a directory of the tree or below a file of it.
func clashes(tree fstest.MapFS, dirs map[string]bool, name string) bool {
	for at := name; at != "."; at = path.Dir(at) {
		if tree[at] != nil {
			return true
		}
	}
	return dirs[name]
}

func randomIgnore(random *rand.Rand, tree fstest.MapFS) string {
	names := slices.Sorted(maps.Keys(tree))
	var b strings.Builder
	for range random.IntN(4) {
		name := names[random.IntN(len(names))]
		b.WriteString([]string{"/*", "!/a", "b/", "*.md", "!**/c/*", "/" + name, "!/" + path.Dir(name), path.Base(name)}[random.IntN(8)] + "\n")
	}
	return b.String()
}
