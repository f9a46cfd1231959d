package git_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// with returns tree with submodules: NAME=PATH URL, each at a commit.
type link struct{ path, url, commit string }

// linked commits tree with submodules, as git submodule add writes them.
func linked(repo *testenv.Repo, tree map[string]string, links ...link) string {
	all := files()
	for name, text := range tree {
		all[name] = files(name, text)[name]
	}
	var text strings.Builder
	for _, l := range links {
		fmt.Fprintf(&text, "[submodule %q]\n\tpath = %s\n\turl = %s\n", l.path, l.path, l.url)
		all[l.path] = testenv.Gitlink(l.commit)
	}
	if len(links) > 0 {
		all[".gitmodules"] = files("", text.String())[""]
	}
	return repo.Commit(testenv.Commit{Branch: "main", Files: all})
}

// recursing returns a GitRepository with submodules.
func recursing(url string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	g.Spec.RecurseSubmodules = true
	if strings.HasPrefix(url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

// cloned returns the files of a clone that git makes, without those that an
// artifact leaves out.
func cloned(t *testing.T, url string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	testenv.NewRepo(t).Git("clone", "-q", "--recurse-submodules", url, dir)
	found := map[string]string{}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() == ".git" {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err != nil || !d.Type().IsRegular() || d.Name() == ".gitmodules" {
			return err
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		found[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// family is a server with a repository that has submodules in submodules:
//
//	org/app.git    vendor/lib → ../lib.git, tools → ./app.git/../../tools/x
//	org/lib.git    deep/base → ../../base.git
//	tools/x        base → ../../base.git?
//	base.git
func family(t *testing.T, c testenv.HTTP) *testenv.Server {
	app, lib, tools, base := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	server := testenv.ServeAll(t, c, map[string]*testenv.Repo{"org/app.git": app, "org/lib.git": lib, "tools/x": tools, "base.git": base})
	old := linked(base, map[string]string{"b": "old"})
	now := linked(base, map[string]string{"b": "new", "d/e": "f"})
	linked(base, map[string]string{"b": "later"})
	inLib := linked(lib, map[string]string{"lib.c": "int"}, link{"deep/base", "../../base.git", old})
	linked(lib, map[string]string{"lib.c": "later"})
	inTools := linked(tools, map[string]string{"run": "x"}, link{"base", server.URL + "/base.git", now})
	linked(app, map[string]string{"README": "r", "vendor/own": "o"},
		link{"vendor/lib", "../lib.git", inLib}, link{"tools", "../../tools/x", inTools}, link{"vendor/base", "./../../base.git/", old})
	return server
}

func TestSubmodules(t *testing.T) {
	server := family(t, testenv.HTTP{})
	want := cloned(t, server.URL+"/org/app.git")
	if len(want) != 8 {
		t.Fatalf("git clones %v", want)
	}
	server.Reset()
	_, data, report := fetch(t, recursing(server.URL+"/org/app.git"), source.Env{})
	if got := contents(t, data); !maps.Equal(got, want) {
		t.Errorf("content %v, want %v", got, want)
	}
	if len(report.LeftOut) != 0 || len(report.Notes) != 0 {
		t.Errorf("left out %v, notes %q", report.LeftOut, report.Notes)
	}
	count := map[string]int{}
	for _, q := range server.Requests() {
		if q.Phase == testenv.Pack {
			count[q.Path]++
		}
	}
	if want := map[string]int{
		"/org/app.git/git-upload-pack": 1, "/org/lib.git/git-upload-pack": 1, "/tools/x/git-upload-pack": 1,
		"/base.git/git-upload-pack": 2, // two commits, one of which is in two places
	}; !maps.Equal(count, want) {
		t.Errorf("fetches %v, want %v", count, want)
	}
}

var _ = errors.Is
var _ = slices.Sort[[]int]
