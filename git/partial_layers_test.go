package git_test

import (
	"bytes"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// withIncluded returns an environment where a GitRepository called other has tree as
// its artifact.
func withIncluded(t *testing.T, tree fstest.MapFS) source.Env {
	t.Helper()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	a, err := store.Put(t.Context(), "gitrepository/default/other", "other.tar.gz", func(w io.Writer) error {
		_, err := artifact.Pack(t.Context(), w, tree)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	a.Revision = "main@sha1:" + strings.Repeat("1", 40)
	other := object("https://example.com/other", source.GitRepositoryRef{Branch: "main"})
	other.Metadata.Name, other.Status.Artifact = "other", &a
	return source.Env{Sources: &source.Inventory{Objects: []source.Object{other}, Store: store}}
}

// What is laid over a partial fetch (submodules, LFS content, includes) finds
// what it needs, and the artifact is that of a whole fetch.
func TestPartialFetchUnderLayers(t *testing.T) {
	large := new(testenv.LFS)
	app, lib := testenv.NewRepo(t), testenv.NewRepo(t)
	inLib := linked(lib, map[string]string{"lib.c": "int", "skip/x": "x"})
	tree := map[string]string{
		".gitattributes": "*.bin filter=lfs\n", "top.txt": "top", ".sourceignore": "nothing",
		"deploy/app.yaml": "app", "deploy/large.bin": large.Add("large content"), "deploy/.sourceignore": "*.log\n",
		"docs/.gitattributes": "plain.bin -filter\n", "docs/plain.bin": large.Add("not asked for"), "docs/x.log": "log",
	}
	for i := range 30 {
		tree["beside/"+strings.Repeat("x", i+1)] = strings.Repeat("y", i)
	}
	linked(app, tree, link{"deploy/lib", "../lib.git", inLib}, link{"beside/lib", "../lib.git", inLib})
	repos := map[string]*testenv.Repo{"org/app.git": app, "org/lib.git": lib}
	part := testenv.ServeAll(t, testenv.HTTP{LFS: large}, repos)
	whole := testenv.ServeAll(t, testenv.HTTP{LFS: large, NoFilter: true}, repos)
	include := []source.GitRepositoryInclude{{Repository: source.IncludeReference{Name: "other"}, FromPath: "in", ToPath: "deploy"}}
	env := withIncluded(t, files("in/app.yaml", "from other", "in/more/y.log", "y", "in/more/.sourceignore", "!y.log\n"))
	for name, row := range map[string]struct {
		change func(*source.GitRepositorySpec)
		want   map[string]string // some of the files; "" for those that must not be there
	}{
		"submodules": {func(s *source.GitRepositorySpec) { s.RecurseSubmodules = true },
			map[string]string{"deploy/lib/lib.c": "int", "deploy/app.yaml": "app", "beside/lib/lib.c": ""}},
		"a submodule alone": {func(s *source.GitRepositorySpec) {
			s.RecurseSubmodules, s.SparseCheckout = true, []string{"deploy/lib"}
		},
			map[string]string{"deploy/lib/lib.c": "int", "deploy/app.yaml": ""}},
		"LFS": {func(s *source.GitRepositorySpec) { s.LFS = true },
			map[string]string{"deploy/large.bin": "large content", "docs/plain.bin": testenv.LFSPointer("8c1aa5b2", 0)[:40]}},
		"include": {func(s *source.GitRepositorySpec) { s.Include = include },
			map[string]string{"deploy/app.yaml": "from other", "deploy/more/y.log": "y"}},
		"all": {func(s *source.GitRepositorySpec) { s.RecurseSubmodules, s.LFS, s.Include = true, true, include },
			map[string]string{"deploy/app.yaml": "from other", "deploy/large.bin": "large content", "deploy/lib/lib.c": "int", "deploy/lib/skip/x": "x"}},
		"all, by ignore rules": {func(s *source.GitRepositorySpec) {
			ignore := "/beside/\nskip/\n"
			s.SparseCheckout, s.Ignore = nil, &ignore
			s.RecurseSubmodules, s.LFS, s.Include = true, true, include
		}, map[string]string{"top.txt": "top", "deploy/lib/lib.c": "int", "deploy/lib/skip/x": "", "docs/x.log": "log"}},
	} {
		g := sparse(part.URL+"/org/app.git", "deploy", "docs")
		row.change(&g.Spec)
		part.Reset()
		_, data, report := fetch(t, g, env)
		_, want, _ := fetch(t, withURL(g, whole.URL+"/org/app.git"), env)
		got := contents(t, data)
		if !bytes.Equal(data, want) {
			t.Errorf("%s: %v, but a whole fetch makes %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(contents(t, want))))
		}
		for file, text := range row.want {
			if got, ok := got[file]; ok != (text != "") || text != "" && !strings.HasPrefix(got, strings.SplitN(text, "\n", 2)[0]) {
				t.Errorf("%s: %s is %q, %v; want %q", name, file, got, ok, text)
			}
		}
		fellBack := slices.ContainsFunc(report.Notes, func(note string) bool { return strings.Contains(note, "whole tree") })
		if n := strings.Count(strings.Join(packs(part), ""), "filter blob:none"); n != 1 || fellBack {
			t.Errorf("%s: %d requests for trees, notes %q; want 1 and no fall-back", name, n, report.Notes)
		}
	}
}

// A plain directory that stands in for a repository is sparse, too.
func TestSparseCheckoutOfDirectory(t *testing.T) {
	dir := t.TempDir()
	for name, file := range forest() {
		if !file.Mode.IsRegular() {
			continue
		}
		at := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, file.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const at = "https://example.com/app"
	env := source.Env{Local: map[string]string{at: dir}}
	_, data, _ := fetch(t, sparse(at, "./docs/", "deploy/base"), env)
	want := []string{"deploy/base/deep/y.yaml", "deploy/base/x.yaml", "docs/.sourceignore", "docs/a.md", "docs/img/c.md", "docs/run.sh"}
	if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, want) {
		t.Errorf("content %q, want %q", got, want)
	}
	for entry, say := range map[string]string{"absent": "does not exist", "README.md": "is a file", "../x": "must not", "Docs": `there is "docs"`} {
		_, _, _, err := try(t.Context(), sparse(at, "docs", entry), env)
		if err == nil || !strings.Contains(err.Error(), say) || !strings.Contains(err.Error(), "spec.sparseCheckout[1]") {
			t.Errorf("%q: %v: want an error that says %q", entry, err, say)
		}
	}
}

// A cache that holds the repository already is used in place of a partial fetch.
func TestPartialFetchAndCache(t *testing.T) {
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: forest()})
	server := testenv.ServeHTTP(t, testenv.HTTP{}, repo)
	env := source.Env{Cache: newCache(t, t.TempDir())}
	g := sparse(server.Repo(), "deploy")
	var first []byte
	for _, step := range []struct {
		name         string
		object       *source.GitRepository
		packs, notes int
	}{
		{"cold", g, 2, 0}, {"still cold", g, 2, 0}, {"everything", sparse(server.Repo()), 1, 1 /* a submodule */}, {"warm", g, 0, 0},
	} {
		server.Reset()
		_, data, report := fetch(t, step.object, env)
		if n := len(packs(server)); n != step.packs || len(report.Notes) != step.notes {
			t.Errorf("%s: %d packs, notes %q; want %d and %d", step.name, n, report.Notes, step.packs, step.notes)
		}
		if step.object == g && first != nil && !bytes.Equal(data, first) {
			t.Errorf("%s: another archive", step.name)
		}
		if step.object == g {
			first = data
		}
	}
}
