package git_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A link is a submodule: an entry of .gitmodules and a gitlink.
type link struct{ path, url, commit string }

// linked commits files and submodules to main, with the .gitmodules that git
// submodule add would write.
func linked(repo *testenv.Repo, plain map[string]string, links ...link) string {
	tree := files()
	for name, text := range plain {
		maps.Copy(tree, files(name, text))
	}
	var text strings.Builder
	for _, l := range links {
		fmt.Fprintf(&text, "[submodule %q]\n\tpath = %s\n\turl = %s\n", l.path, l.path, l.url)
		tree[l.path] = testenv.Gitlink(l.commit)
	}
	if len(links) > 0 {
		maps.Copy(tree, files(".gitmodules", text.String()))
	}
	return repo.Commit(testenv.Commit{Branch: "main", Files: tree})
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

// cloned returns the files of a clone that git makes, less those that never
// are in an artifact.
func cloned(t *testing.T, url string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	testenv.NewRepo(t).Git("clone", "-q", "--recurse-submodules", url, dir)
	found := map[string]string{}
	tree := os.DirFS(dir)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == ".git" && d.IsDir() {
			return cmp.Or[error](err, fs.SkipDir)
		}
		if d.Name() == ".git" || d.Name() == ".gitmodules" || !d.Type().IsRegular() {
			return nil
		}
		b, err := fs.ReadFile(tree, name)
		found[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// family is org/app, which has submodules, of which two have the submodule
// base.git, at commits that are not its tip.
func family(t *testing.T) map[string]*testenv.Repo {
	app, lib, tools, base := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	old := linked(base, map[string]string{"b": "old"})
	now := linked(base, map[string]string{"b": "new", "d/e": "f"})
	linked(base, map[string]string{"b": "later"})
	inLib := linked(lib, map[string]string{"lib.c": "int"}, link{"deep/base", "../../base.git", old})
	linked(lib, map[string]string{"lib.c": "later"})
	inTools := linked(tools, map[string]string{"run": "x", ".sourceignore": "*.txt\n", "a.txt": "1"}, link{"base", "./../.././base.git", now})
	linked(app, map[string]string{"README": "r", "vendor/own": "o", "b.txt": "2"},
		link{"vendor/lib", "../lib.git", inLib}, link{"tools", "../../tools/x", inTools}, link{"vendor/base", "./../../base.git/", old})
	return map[string]*testenv.Repo{"org/app.git": app, "org/lib.git": lib, "tools/x": tools, "base.git": base}
}

func fetches(s *testenv.Server) map[string]int {
	count := map[string]int{}
	for _, q := range s.Requests() {
		if q.Phase == testenv.Pack {
			count[strings.TrimSuffix(q.Path, "/git-upload-pack")]++
		}
	}
	return count
}

func TestSubmodules(t *testing.T) {
	repos := family(t)
	server := testenv.ServeAll(t, testenv.HTTP{}, repos)
	want := cloned(t, server.URL+"/org/app.git")
	if len(want) != 11 {
		t.Fatalf("git clones %v", want)
	}
	delete(want, "tools/a.txt") // by the .sourceignore of that submodule, which counts there alone
	identity, public := testenv.UserKey(t, "")
	shell := testenv.ServeAllSSH(t, testenv.SSH{Users: []ssh.PublicKey{public}}, repos)
	keys := sourcetest.Secrets{"default/keys": sourcetest.Secret("identity", string(identity), "known_hosts", string(shell.KnownHosts(false)))}
	var first []byte
	for name, row := range map[string]struct {
		url string
		env source.Env
	}{
		"http":        {server.URL + "/org/app.git", source.Env{}},
		"http, slash": {server.URL + "/org/app.git/", source.Env{}},
		"v0":          {testenv.ServeAll(t, testenv.HTTP{V0: true}, repos).URL + "/org/app.git", source.Env{}},
		"tips only":   {testenv.ServeAll(t, testenv.HTTP{V0: true, NoAnyWant: true}, repos).URL + "/org/app.git", source.Env{}},
		"ssh":         {"ssh://git@" + shell.Addr + "/org/app.git", source.Env{Secrets: keys}},
		"local": {"https://example.com/org/app", source.Env{Local: map[string]string{
			"https://example.com/org/app": repos["org/app.git"].Dir, "https://example.com/org/lib": repos["org/lib.git"].Dir,
			"https://example.com/tools/x.git": repos["tools/x"].Dir, "https://example.com/base.git": repos["base.git"].Dir}}},
	} {
		_, data, report := fetch(t, recursing(row.url), row.env)
		if got := contents(t, data); !maps.Equal(got, want) {
			t.Errorf("%s: content %v, want %v", name, got, want)
		}
		if first == nil {
			first = data
		}
		if !bytes.Equal(data, first) || len(report.LeftOut) != 0 {
			t.Errorf("%s: left out %v, or the archive differs from that of another transport", name, report.LeftOut)
		}
		if notes := map[bool]int{true: 3}[name == "tips only"]; len(report.Notes) < notes || notes == 0 && len(report.Notes) > 0 {
			t.Errorf("%s: notes %q", name, report.Notes)
		}
	}
}

// Each submodule costs one fetch, equal ones together.
func TestSubmoduleFetches(t *testing.T) {
	server := testenv.ServeAll(t, testenv.HTTP{}, family(t))
	g := recursing(server.URL + "/org/app.git")
	o := git.New(g, source.Env{})
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	server.Reset()
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.WriteTo(t.Context(), io.Discard); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{"/org/app.git": 1, "/org/lib.git": 1, "/tools/x": 1, "/base.git": 2}
	if got := fetches(server); !maps.Equal(got, want) {
		t.Errorf("fetches %v, want %v", got, want)
	}
	for _, q := range server.Requests() {
		if q.Phase == testenv.Pack && !bytes.Contains(q.Body, []byte("deepen 1")) {
			t.Errorf("%s: %q: not shallow", q.Path, q.Body)
		}
	}
}

// Without recursion the directory of a submodule is empty, as a checkout has it.
func TestSubmodulesNotRecursed(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"x": "1"})
	linked(app, map[string]string{"own": "o", "vendor/own": "o"}, link{"a", "../sub.git", pin}, link{"vendor/b", "../sub.git", pin})
	server := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	url := server.URL + "/app.git"
	for name, row := range map[string]struct {
		edit        func(*source.GitRepository)
		files, dirs []string
		notes       int
	}{
		"plain":             {func(*source.GitRepository) {}, []string{"own", "vendor/own"}, []string{"a", "vendor/b"}, 1},
		"ignored":           {func(g *source.GitRepository) { g.Spec.Ignore = new("/a/\n") }, []string{"own", "vendor/own"}, []string{"vendor/b"}, 1},
		"ignored but one":   {func(g *source.GitRepository) { g.Spec.Ignore = new("/*\n!/a\n") }, nil, []string{"a"}, 1},
		"a sparse checkout": {func(g *source.GitRepository) { g.Spec.SparseCheckout = []string{"vendor"} }, []string{"vendor/own"}, []string{"vendor/b"}, 1},
	} {
		for where, env := range map[string]source.Env{"remote": {}, "local": {Local: map[string]string{url: app.Dir}}} {
			g := recursing(url)
			g.Spec.RecurseSubmodules = false
			row.edit(g)
			_, data, report := fetch(t, g, env)
			if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, row.files) {
				t.Errorf("%s, %s: files %q, want %q", name, where, got, row.files)
			}
			if got := emptyDirs(t, data); !slices.Equal(got, row.dirs) || len(report.LeftOut) != 0 || len(report.Notes) != row.notes {
				t.Errorf("%s, %s: empty %q, want %q; left out %v, notes %q", name, where, got, row.dirs, report.LeftOut, report.Notes)
			}
		}
	}
	if n := fetches(server)["/sub.git"]; n != 0 {
		t.Errorf("%d fetches of the submodule", n)
	}
}

// What spec.ignore leaves out for certain is not fetched, and may be broken.
func TestSubmodulesLeftOut(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"keep.yaml": "k", "drop.md": "d", "dir/x": "x", ".sourceignore": "!drop.md\n"})
	linked(app, map[string]string{"own": "o"}, link{"a", "../sub.git", pin}, link{"vendor/b", "../sub.git", pin}, link{"vendor/broken", "ext::sh", pin})
	server := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	all := []string{"a/.sourceignore", "a/dir/x", "a/drop.md", "a/keep.yaml"}
	for ignore, row := range map[string]struct {
		fetches int
		want    []string
	}{
		"/vendor/":                        {1, append(slices.Clone(all), "own")},
		"/a/\nvendor":                     {0, []string{"own"}},
		"/a\n/vendor\n":                   {0, []string{"own"}},
		"/*\n!/a/":                        {1, all},
		"/*\n!/a/keep.yaml":               {1, []string{"a/keep.yaml"}},
		"/a/\n/vendor/\n!keep.yaml":       {1, nil}, // vendor/broken may hold such a file
		"/vendor/broken\n*.md":            {1, []string{"a/.sourceignore", "a/dir/x", "a/keep.yaml", "own", "vendor/b/.sourceignore", "vendor/b/dir/x", "vendor/b/keep.yaml"}},
		"/vendor/b/\n/a\n/vendor/broken/": {0, []string{"own"}},
		"/vendor/\n!/vendor/b/dir/\n/a/":  {1, []string{"own", "vendor/b/dir/x"}},
		"/vendor/**\n/a/**\n":             {0, []string{"own"}}, // which match a and vendor too
	} {
		g := recursing(server.URL + "/app.git")
		g.Spec.Ignore = &ignore
		server.Reset()
		_, data, report, err := try(t.Context(), g, source.Env{})
		if row.want == nil {
			if err == nil || !strings.Contains(err.Error(), "vendor/broken") {
				t.Errorf("%q: %v: want an error about vendor/broken", ignore, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", ignore, err)
			continue
		}
		if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, row.want) || len(report.LeftOut) != 0 {
			t.Errorf("%q: content %q, want %q; left out %v", ignore, got, row.want, report.LeftOut)
		}
		if n := fetches(server)["/sub.git"]; n != row.fetches {
			t.Errorf("%q: %d fetches of the submodule, want %d", ignore, n, row.fetches)
		}
	}
	g := recursing(server.URL + "/app.git")
	ignore := "/vendor/\n"
	g.Spec.Ignore = &ignore
	o := git.New(g, source.Env{})
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tree, _, _ := c.(source.Explainer).Explain(t.Context()) // it is a directory to who asks why
	if info, err := fs.Stat(tree, "vendor/b"); err != nil || !info.IsDir() {
		t.Errorf("vendor/b: %v, %v", info, err)
	}
	bad := strings.Repeat("x", 2<<20)
	g.Spec.Ignore = &bad
	_, _, _, err = try(t.Context(), g, source.Env{})
	var step *source.StepError
	if !errors.As(err, &step) || step.Reason != "SourceIgnoreError" {
		t.Errorf("%v: want SourceIgnoreError", err)
	}
}

// Submodules outside of the listed directories are not fetched; one may be
// listed itself.
func TestSubmodulesOfSparseCheckout(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"x": "1", "d/y": "2"})
	linked(app, map[string]string{"own": "o", "vendor/z": "3"}, link{"vendor/a", "../sub.git", pin}, link{"vendor/b", "../sub.git", pin}, link{"other", "../absent.git", pin})
	for name, config := range map[string]testenv.HTTP{"partial": {}, "whole": {NoFilter: true}} {
		server := testenv.ServeAll(t, config, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
		for _, row := range []struct{ dirs, want []string }{
			{[]string{"vendor"}, []string{"vendor/a/d/y", "vendor/a/x", "vendor/b/d/y", "vendor/b/x", "vendor/z"}},
			{[]string{"vendor/b"}, []string{"vendor/b/d/y", "vendor/b/x"}},
		} {
			g := recursing(server.URL + "/app.git")
			g.Spec.SparseCheckout = row.dirs
			_, data, _ := fetch(t, g, source.Env{})
			if got := slices.Sorted(maps.Keys(contents(t, data))); !slices.Equal(got, row.want) {
				t.Errorf("%s, %q: %q, want %q", name, row.dirs, got, row.want)
			}
		}
	}
}

// update = none leaves the directory of a submodule empty, as git does, with a note.
func TestSubmoduleNotUpdated(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := linked(sub, map[string]string{"x": "1"})
	tree := files("own", "o", ".gitmodules", "[submodule \"s\"]\npath = s\nurl = ../sub.git\nupdate = none\nbranch = .\nshallow = true\n[submodule \"gone\"]\npath = gone\nurl = ext::sh\n")
	tree["s"] = testenv.Gitlink(pin)
	app.Commit(testenv.Commit{Branch: "main", Files: tree})
	server := testenv.ServeAll(t, testenv.HTTP{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	want := cloned(t, server.URL+"/app.git")
	_, data, report := fetch(t, recursing(server.URL+"/app.git"), source.Env{})
	if got := contents(t, data); !maps.Equal(got, want) || len(report.LeftOut) != 0 || !slices.Equal(emptyDirs(t, data), []string{"s"}) {
		t.Errorf("content %v, want %v; left out %v, empty %q", got, want, report.LeftOut, emptyDirs(t, data))
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "its update is none in .gitmodules") {
		t.Errorf("notes %q", report.Notes)
	}
}

// A server may refuse to send what is no tip, whatever version it speaks.
func TestSubmoduleThatIsNotOffered(t *testing.T) {
	for name, at := range map[string]int{"tip": 3, "in the history": 1} {
		sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
		var pins []string
		for i := range 4 {
			pins = append(pins, linked(sub, map[string]string{"x": fmt.Sprint(i)}))
		}
		linked(app, nil, link{"s", testenv.ServeHTTP(t, testenv.HTTP{}, sub).Repo(), pins[at]})
		server := testenv.ServeHTTP(t, testenv.HTTP{}, sub)
		refusal := "ERR upload-pack: not our ref " + pins[at] + "\n"
		times := map[string]int{"tip": 1, "in the history": 2}[name]
		server.Break(&testenv.Defect{Phase: testenv.Pack, Do: testenv.Answer, Times: times, Status: 200,
			Header: map[string][]string{"Content-Type": {"application/x-git-upload-pack-result"}}, Body: fmt.Sprintf("%04x%s", len(refusal)+4, refusal)})
		linked(app, nil, link{"s", server.Repo(), pins[at]})
		_, data, _, err := try(t.Context(), recursing(testenv.ServeHTTP(t, testenv.HTTP{}, app).Repo()), source.Env{})
		if err != nil || contents(t, data)["s/x"] != fmt.Sprint(at) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Nothing that a commit says is acted upon before its signature is verified.
func TestSubmodulesOfUnverified(t *testing.T) {
	repos := family(t)
	server := testenv.ServeAll(t, testenv.HTTP{}, repos)
	g := recursing(server.URL + "/org/app.git")
	g.Spec.Verify = &source.GitRepositoryVerification{Mode: source.VerifyHEAD, SecretRef: source.LocalReference{Name: "trusted"}}
	signer := newSigned(t)
	_, _, _, err := try(t.Context(), g, source.Env{Secrets: sourcetest.Secrets{"default/trusted": signer.secret("ssh-ed25519")}})
	if !errors.Is(err, source.ErrVerification) {
		t.Errorf("%v: want a refused verification", err)
	}
	if got := fetches(server); len(got) != 1 {
		t.Errorf("fetches %v", got)
	}
}
