package git_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// A submodule is a submodule: an entry of .gitmodules and a gitlink.
type submodule struct{ path, url, commit string }

// commitFiles commits files and submodules to main, with the .gitmodules that git
// submodule add would write.
func commitFiles(repo *testenv.Repo, plain map[string]string, links ...submodule) string {
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

// withSubmodule serves app.git, which is empty, and sub.git, which has one commit
// with files. It returns that commit as pin.
func withSubmodule(t *testing.T, plain map[string]string) (app *testenv.Repo, server *testenv.GitServer, pin string) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	pin = commitFiles(sub, plain)
	return app, testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub}), pin
}

// recursiveObject returns a GitRepository with submodules.
func recursiveObject(url string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	g.Spec.RecurseSubmodules = true
	if strings.HasPrefix(url, "ssh:") {
		g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	}
	return g
}

// clonedFiles returns the files of a clone that git makes, without those that artifacts
// never hold.
func clonedFiles(t *testing.T, url string) map[string]string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "clone")
	testenv.NewRepo(t).Git("clone", "-q", "--recurse-submodules", url, dir)
	found := testenv.Contents(t, os.DirFS(dir))
	maps.DeleteFunc(found, func(name, _ string) bool {
		return strings.HasPrefix(name, ".git/") || path.Base(name) == ".git" || path.Base(name) == ".gitmodules"
	})
	return found
}

// newNestedSubmodules returns org/app and its submodules. Two of these have the submodule
// base.git, at commits that are not its tip.
func newNestedSubmodules(t *testing.T) map[string]*testenv.Repo {
	app, lib, tools, base := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	old := commitFiles(base, map[string]string{"b": "old"})
	now := commitFiles(base, map[string]string{"b": "new", "d/e": "f"})
	commitFiles(base, map[string]string{"b": "later"})
	inLib := commitFiles(lib, map[string]string{"lib.c": "int"}, submodule{"deep/base", "../../base.git", old})
	commitFiles(lib, map[string]string{"lib.c": "later"})
	inTools := commitFiles(tools, map[string]string{"run": "x", ".sourceignore": "*.txt\n", "a.txt": "1"}, submodule{"base", "./../.././base.git", now})
	commitFiles(app, map[string]string{"README": "r", "vendor/own": "o", "b.txt": "2"},
		submodule{"vendor/lib", "../lib.git", inLib}, submodule{"tools", "../../tools/x", inTools}, submodule{"vendor/base", "./../../base.git/", old})
	return map[string]*testenv.Repo{"org/app.git": app, "org/lib.git": lib, "tools/x": tools, "base.git": base}
}

func fetches(s *testenv.GitServer) map[string]int {
	count := map[string]int{}
	for _, q := range s.Requests() {
		if q.Phase == testenv.Pack {
			count[strings.TrimSuffix(q.Path, "/git-upload-pack")]++
		}
	}
	return count
}

func TestSubmodules(t *testing.T) {
	t.Parallel()
	repos := newNestedSubmodules(t)
	server := testenv.ServeRepos(t, testenv.GitConfig{}, repos)
	want := clonedFiles(t, server.URL+"/org/app.git")
	if len(want) != 11 {
		t.Fatalf("git clones %v", want)
	}
	delete(want, "tools/a.txt") // the .sourceignore of that submodule excludes it, and applies only there
	shell, keys := serveSSH(t, testenv.SSHConfig{}, repos)
	var first []byte
	for name, row := range map[string]struct {
		url string
		env source.Env
	}{
		"http":        {server.URL + "/org/app.git", source.Env{}},
		"http, slash": {server.URL + "/org/app.git/", source.Env{}},
		"v0":          {testenv.ServeRepos(t, testenv.GitConfig{V0: true}, repos).URL + "/org/app.git", source.Env{}},
		"tips only":   {testenv.ServeRepos(t, testenv.GitConfig{V0: true, NoAnyWant: true}, repos).URL + "/org/app.git", source.Env{}},
		"ssh":         {"ssh://git@" + shell.Addr + "/org/app.git", source.Env{Secrets: keys}},
		"local": {"https://example.com/org/app", source.Env{Local: map[string]string{
			"https://example.com/org/app": repos["org/app.git"].Dir, "https://example.com/org/lib": repos["org/lib.git"].Dir,
			"https://example.com/tools/x.git": repos["tools/x"].Dir, "https://example.com/base.git": repos["base.git"].Dir}}},
	} {
		server.Reset()
		_, data, report := fetch(t, recursiveObject(row.url), row.env)
		testenv.Equal(t, contents(t, data), want, "%s: content", name)
		if name == "http" { // each submodule costs one shallow fetch, equal ones share it
			if got, want := fetches(server), (map[string]int{"/org/app.git": 1, "/org/lib.git": 1, "/tools/x": 1, "/base.git": 2}); !maps.Equal(got, want) {
				t.Errorf("fetches %v, want %v", got, want)
			}
			if slices.ContainsFunc(packRequests(server), func(body string) bool { return !strings.Contains(body, "deepen 1") }) {
				t.Errorf("not shallow: %q", packRequests(server))
			}
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

// Without recursion the directory of a submodule is empty, as in a checkout.
func TestSubmodulesNotRecursed(t *testing.T) {
	app, server, pin := withSubmodule(t, map[string]string{"x": "1"})
	commitFiles(app, map[string]string{"own": "o", "vendor/own": "o"}, submodule{"a", "../sub.git", pin}, submodule{"vendor/b", "../sub.git", pin})
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
			g := recursiveObject(url)
			g.Spec.RecurseSubmodules = false
			row.edit(g)
			_, data, report := fetch(t, g, env)
			testenv.Equal(t, slices.Sorted(maps.Keys(contents(t, data))), row.files, "%s, %s: files", name, where)
			if got := emptyDirs(t, data); !slices.Equal(got, row.dirs) || len(report.LeftOut) != 0 || len(report.Notes) != row.notes {
				t.Errorf("%s, %s: empty %q, want %q; left out %v, notes %q", name, where, got, row.dirs, report.LeftOut, report.Notes)
			}
		}
	}
	testenv.Equal(t, fetches(server)["/sub.git"], 0, "fetches of the submodule")
}

// A submodule that spec.ignore certainly excludes is not fetched, and may be broken.
func TestSubmodulesLeftOut(t *testing.T) {
	app, server, pin := withSubmodule(t, map[string]string{"keep.yaml": "k", "drop.md": "d", "dir/x": "x", ".sourceignore": "!drop.md\n"})
	commitFiles(app, map[string]string{"own": "o"}, submodule{"a", "../sub.git", pin}, submodule{"vendor/b", "../sub.git", pin}, submodule{"vendor/broken", "ext::sh", pin})
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
		"/a/\n/vendor/\n!keep.yaml":       {1, nil}, // vendor/broken may hold a file keep.yaml
		"/vendor/broken\n*.md":            {1, []string{"a/.sourceignore", "a/dir/x", "a/keep.yaml", "own", "vendor/b/.sourceignore", "vendor/b/dir/x", "vendor/b/keep.yaml"}},
		"/vendor/b/\n/a\n/vendor/broken/": {0, []string{"own"}},
		"/vendor/\n!/vendor/b/dir/\n/a/":  {1, []string{"own", "vendor/b/dir/x"}},
		"/vendor/**\n/a/**\n":             {0, []string{"own"}}, // the patterns match a and vendor too
	} {
		g := recursiveObject(server.URL + "/app.git")
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
		testenv.Equal(t, fetches(server)["/sub.git"], row.fetches, "%q: fetches", ignore)
	}
	g := recursiveObject(server.URL + "/app.git")
	g.Spec.Ignore = new("/vendor/\n")
	o := git.New(g, source.Env{})
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	defer c.Close()
	tree, _, _ := c.(source.Explainer).Explain(t.Context()) // Explain shows it as a directory
	if info, err := fs.Stat(tree, "vendor/b"); err != nil || !info.IsDir() {
		t.Errorf("vendor/b: %v, %v", info, err)
	}
	tooLong := strings.Repeat("x", 2<<20)
	g.Spec.Ignore = &tooLong
	wantFetchError(t, g, source.Env{}, "SourceIgnoreError", "")
}

// update = none leaves the directory of a submodule empty, with a note.
func TestSubmoduleNotUpdated(t *testing.T) {
	app, server, pin := withSubmodule(t, map[string]string{"x": "1"})
	tree := files("own", "o", ".gitmodules", "[submodule \"s\"]\npath = s\nurl = ../sub.git\nupdate = none\nbranch = .\nshallow = true\n[submodule \"gone\"]\npath = gone\nurl = ext::sh\n")
	tree["s"] = testenv.Gitlink(pin)
	app.Commit(testenv.Commit{Branch: "main", Files: tree})
	_, data, report := fetch(t, recursiveObject(server.URL+"/app.git"), source.Env{})
	if got := contents(t, data); !maps.Equal(got, map[string]string{"own": "o"}) || len(report.LeftOut) != 0 || !slices.Equal(emptyDirs(t, data), []string{"s"}) {
		t.Errorf("content %v; left out %v, empty %q", got, report.LeftOut, emptyDirs(t, data))
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "its update is none in .gitmodules") {
		t.Errorf("notes %q", report.Notes)
	}
}

// A server of any version may refuse to send a commit that is not a tip.
func TestSubmoduleThatIsNotOffered(t *testing.T) {
	for name, at := range map[string]int{"tip": 3, "in the history": 1} {
		sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
		var pins []string
		for i := range 4 {
			pins = append(pins, commitFiles(sub, map[string]string{"x": fmt.Sprint(i)}))
		}
		server := testenv.ServeGit(t, testenv.GitConfig{}, sub)
		server.Break(respondToFetch(pkt("ERR upload-pack: not our ref "+pins[at]+"\n"), map[string]int{"tip": 1, "in the history": 2}[name]))
		commitFiles(app, nil, submodule{"s", server.Repo(), pins[at]})
		_, data, _, err := try(t.Context(), recursiveObject(testenv.ServeGit(t, testenv.GitConfig{}, app).Repo()), source.Env{})
		if err != nil || contents(t, data)["s/x"] != fmt.Sprint(at) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// No submodule is fetched before the signature of the commit is verified.
func TestSubmodulesOfUnverified(t *testing.T) {
	repos := newNestedSubmodules(t)
	server := testenv.ServeRepos(t, testenv.GitConfig{}, repos)
	g := recursiveObject(server.URL + "/org/app.git")
	g.Spec.Verify = &source.GitRepositoryVerification{Mode: source.VerifyHEAD, SecretRef: source.LocalReference{Name: "trusted"}}
	signer := newSigned(t)
	_, _, _, err := try(t.Context(), g, source.Env{Secrets: sourcetest.Secrets{"default/trusted": signer.secret("ssh-ed25519")}})
	if !errors.Is(err, source.ErrVerification) {
		t.Errorf("%v: want a refused verification", err)
	}
	testenv.Equal(t, len(fetches(server)), 1, "fetches")
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// receivedCredentials returns the credentials of the requests below path, each once.
func receivedCredentials(s *testenv.GitServer, path string) (all []string) {
	for _, q := range s.Requests() {
		if strings.HasPrefix(q.Path, path) && !slices.Contains(all, q.Authorization) {
			all = append(all, q.Authorization)
		}
	}
	return all
}

// A submoduleServers is a server with app.git and its submodule own.git, and another
// server with its submodule sub.git.
type submoduleServers struct {
	app *testenv.Repo
	pin string
	own *testenv.GitServer
	sub *testenv.GitServer
}

func newSubmoduleServers(t *testing.T, appConfig, sub testenv.GitConfig) submoduleServers {
	app, inner, outer := testenv.NewRepo(t), testenv.NewRepo(t), testenv.NewRepo(t)
	w := submoduleServers{app: app, pin: commitFiles(inner, map[string]string{"x": "1"})}
	commitFiles(outer, map[string]string{"x": "1"})
	w.own = testenv.ServeRepos(t, appConfig, map[string]*testenv.Repo{"app.git": app, "own.git": inner})
	w.sub = testenv.ServeRepos(t, sub, map[string]*testenv.Repo{"sub.git": outer})
	commitFiles(app, map[string]string{"a": "1"}, submodule{"own", "../own.git", w.pin}, submodule{"vendor/sub", w.sub.URL + "/sub.git", w.pin})
	return w
}

func (w submoduleServers) object(ref string) *source.GitRepository {
	g := recursiveObject(w.own.URL + "/app.git")
	if ref != "" {
		g.Spec.SecretRef = &source.LocalReference{Name: ref}
	}
	return g
}

// wantRecoverableError checks reason and text of an error; say holds parts separated by |.
func wantRecoverableError(t *testing.T, err error, reason, say string) {
	t.Helper()
	wantStep(t, err, reason, say)
	if step, ok := errors.AsType[*source.StepError](err); ok && (step.Step != source.StepFetch || errors.Is(err, source.ErrInvalid)) {
		t.Errorf("%v: is no failure of the fetch, or stalls, though a commit can mend it", err)
	}
}

// wantRecoverableFetchError checks that a fetch fails with an error that a new commit can correct; see
// wantRecoverableError.
func wantRecoverableFetchError(t *testing.T, g *source.GitRepository, env source.Env, reason, say string) {
	t.Helper()
	_, _, _, err := try(t.Context(), g, env)
	wantRecoverableError(t, err, reason, say)
}

// Credentials are sent only to the origin for which they were given.
func TestSubmoduleCredentials(t *testing.T) {
	alice, bob := testenv.GitConfig{Username: "alice", Password: "al1ce-canary"}, testenv.GitConfig{Username: "bob", Password: "b0b-canary"}
	secrets := sourcetest.Secrets{
		"default/alice": sourcetest.Secret("username", "alice", "password", "al1ce-canary"),
		"default/bob":   sourcetest.Secret("username", "bob", "password", "b0b-canary"),
		"default/carol": sourcetest.Secret("bearerToken", "car0l-canary"),
	}
	entry := func(s *testenv.GitServer, name string) source.GitSubmoduleCredential {
		return source.GitSubmoduleCredential{URL: s.URL, SecretRef: source.LocalReference{Name: name}}
	}
	asAlice, asBob := basic("alice", "al1ce-canary"), basic("bob", "b0b-canary")
	for _, row := range []struct {
		name     string
		own, sub testenv.GitConfig
		change   func(submoduleServers, *source.GitRepository)
		shown    [3]string // to app.git, own.git, sub.git; "-" for none
		reason   string
		say      string // SUB stands for the URL of sub
	}{
		{"public submodule", alice, testenv.GitConfig{}, nil, [3]string{asAlice, asAlice, ""}, "", ""},
		{"entry for the other origin", alice, bob, func(w submoduleServers, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "bob")}
		}, [3]string{asAlice, asAlice, asBob}, "", ""},
		{"entry for the own origin", testenv.GitConfig{}, bob, func(w submoduleServers, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.own, "carol"), entry(w.sub, "bob")}
		}, [3]string{asAlice, "Bearer car0l-canary", asBob}, "", ""},
		{"in the URL", alice, testenv.GitConfig{}, func(w submoduleServers, g *source.GitRepository) {
			g.Spec.URL, g.Spec.SecretRef = strings.Replace(g.Spec.URL, "://", "://alice:al1ce-canary@", 1), nil
		}, [3]string{asAlice, asAlice, ""}, "", ""},
		{"private submodule", alice, bob, nil, [3]string{asAlice, asAlice, ""}, authFailed,
			`submodule "vendor/sub" at SUB/sub.git|no credentials were sent|spec.submoduleCredentials|url SUB and a secretRef`},
		{"wrong entry", alice, bob, func(w submoduleServers, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "carol")}
		}, [3]string{asAlice, asAlice, "Bearer car0l-canary"}, authFailed, `submodule "vendor/sub" at SUB/sub.git|check the credentials`},
		{"entry without its Secret", alice, bob, func(w submoduleServers, g *source.GitRepository) {
			g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{entry(w.sub, "absent")}
		}, [3]string{asAlice, asAlice, "-"}, authFailed, `submodule "vendor/sub"|spec.submoduleCredentials[0].secretRef|default/absent`},
		{"gone", alice, testenv.GitConfig{Defect: testenv.Status(404)}, nil, [3]string{asAlice, asAlice, ""}, gitFailed,
			`submodule "vendor/sub" at SUB/sub.git|not found|if it is private|url SUB`},
		{"redirected to the own origin", alice, testenv.GitConfig{}, func(w submoduleServers, _ *source.GitRepository) { w.sub.Break(testenv.Redirect(w.own.URL)) },
			[3]string{asAlice, asAlice, ""}, authFailed, `submodule "vendor/sub"`},
		{"broken", alice, testenv.GitConfig{Defect: testenv.Status(500)}, nil, [3]string{asAlice, asAlice, ""}, gitFailed, `submodule "vendor/sub"|500`},
		{"truncated", alice, testenv.GitConfig{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.End, After: 80}}, nil,
			[3]string{asAlice, asAlice, ""}, gitFailed, `submodule "vendor/sub"`},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newSubmoduleServers(t, row.own, row.sub)
			g := w.object("alice")
			if row.change != nil {
				row.change(w, g)
			}
			_, archive, _, err := try(t.Context(), g, source.Env{Secrets: secrets})
			if row.reason != "" {
				wantRecoverableError(t, err, row.reason, strings.ReplaceAll(row.say, "SUB", w.sub.URL))
			} else if err != nil || contents(t, archive)["vendor/sub/x"] != "1" {
				t.Errorf("%v", err)
			}
			if err != nil && (strings.Contains(err.Error(), "canary") || strings.Contains(err.Error(), w.own.URL+"/app.git")) {
				t.Errorf("%v: shows a secret or blames the repository itself", err)
			}
			if got := receivedCredentials(w.own, "/sub.git"); slices.ContainsFunc(got, func(a string) bool { return a != "" }) {
				t.Errorf("what was redirected was shown %q", got)
			}
			for i, got := range [][]string{receivedCredentials(w.own, "/app.git"), receivedCredentials(w.own, "/own.git"), receivedCredentials(w.sub, "/")} {
				if row.shown[i] == "-" && len(got) == 0 || i == 1 && len(got) == 0 && err != nil {
					continue
				}
				if len(got) != 1 || got[0] != row.shown[i] {
					t.Errorf("server %d was shown %q, want %q", i, got, row.shown[i])
				}
			}
		})
	}
}

// Certificate authorities and client certificates are bound to an origin too.
func TestSubmoduleTLS(t *testing.T) {
	ca := testenv.NewCA(t)
	cert, key := ca.Client("alice")
	subCert, subKey := ca.Client("bob")
	w := newSubmoduleServers(t, testenv.GitConfig{CA: ca, Mutual: true}, testenv.GitConfig{CA: ca, Mutual: true})
	secrets := sourcetest.Secrets{
		"default/alice": sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(cert), "tls.key", string(key)),
		"default/bob":   sourcetest.Secret("ca.crt", string(ca.PEM()), "tls.crt", string(subCert), "tls.key", string(subKey)),
	}
	g := w.object("alice")
	wantRecoverableFetchError(t, g, source.Env{Secrets: secrets}, gitFailed, `submodule "vendor/sub"|certificate`)
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: w.sub.URL + "/", SecretRef: source.LocalReference{Name: "bob"}}}
	if _, _, _, err := try(t.Context(), g, source.Env{Secrets: secrets}); err != nil {
		t.Error(err)
	}
	for _, q := range slices.Concat(w.own.Requests(), w.sub.Requests()) {
		if want := map[bool]string{true: "bob", false: "alice"}[strings.HasPrefix(q.Path, "/sub.git")]; q.Certificate != want {
			t.Errorf("%s: certificate of %q, want %q", q.Path, q.Certificate, want)
		}
	}
}

// A repository over http may have submodules over ssh, and the reverse.
func TestSubmodulesOverBoth(t *testing.T) {
	app, sub := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := commitFiles(sub, map[string]string{"x": "1"})
	shell, keys := serveSSH(t, testenv.SSHConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	web := testenv.ServeRepos(t, testenv.GitConfig{}, map[string]*testenv.Repo{"app.git": app, "sub.git": sub})
	private := testenv.ServeRepos(t, testenv.GitConfig{Bearer: "t0ken"}, map[string]*testenv.Repo{"sub.git": sub})
	at := "ssh://" + shell.Addr
	env := source.Env{Secrets: keys}

	commitFiles(app, nil, submodule{"s", "ssh://git@" + shell.Addr + "/sub.git", pin})
	g := recursiveObject(web.URL + "/app.git")
	wantRecoverableFetchError(t, g, env, authFailed, `submodule "s" at ssh://`+shell.Addr+`/sub.git|ssh needs a key|spec.url are not for this host|spec.submoduleCredentials, with url `+at+`|identity and known_hosts`)
	testenv.Equal(t, len(shell.Sessions()), 0, "sessions without a key")
	g.Spec.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: at, SecretRef: source.LocalReference{Name: "keys"}}}
	if _, archive, _, err := try(t.Context(), g, env); err != nil || contents(t, archive)["s/x"] != "1" {
		t.Errorf("ssh in http: %v", err)
	}

	commitFiles(app, nil, submodule{"s", web.URL + "/sub.git", pin}, submodule{"t", "../sub.git", pin}, submodule{"u", at + "/sub.git", pin})
	overSSH := recursiveObject("ssh://git@" + shell.Addr + "/app.git")
	if _, archive, _, err := try(t.Context(), overSSH, env); err != nil || contents(t, archive)["s/x"]+contents(t, archive)["t/x"]+contents(t, archive)["u/x"] != "111" {
		t.Errorf("http in ssh: %v", err)
	}
	commitFiles(app, nil, submodule{"s", private.URL + "/sub.git", pin})
	wantRecoverableFetchError(t, overSSH, env, authFailed, `submodule "s"|no credentials were sent|with url `+private.URL+`|username and password`)
}

// The proxy is used for the repository and all submodules.
func TestSubmodulesThroughProxy(t *testing.T) {
	w := newSubmoduleServers(t, testenv.GitConfig{}, testenv.GitConfig{})
	p := testenv.ServeProxy(t, testenv.ProxyConfig{Username: "proxy", Password: "pr0xy-pass"})
	g := w.object("")
	g.Spec.ProxySecretRef = &source.LocalReference{Name: "proxy"}
	fetch(t, g, source.Env{Secrets: sourcetest.Secrets{"default/proxy": sourcetest.Secret("address", p.URL, "username", "proxy", "password", "pr0xy-pass")}})
	for _, s := range []*testenv.GitServer{w.own, w.sub} {
		if u, _ := url.Parse(s.URL); !slices.ContainsFunc(p.Requests(), func(seen string) bool { return strings.Contains(seen, u.Host) }) {
			t.Errorf("the proxy saw %q and not %s", p.Requests(), u.Host)
		}
	}
}

// A spec that was never validated stalls the object, and the error names the entry.
func TestInvalidSpec(t *testing.T) {
	for field, edit := range map[string]func(*source.GitRepositorySpec){
		"spec.submoduleCredentials[0].url": func(s *source.GitRepositorySpec) {
			s.SubmoduleCredentials = []source.GitSubmoduleCredential{{URL: "http://[::1"}}
		},
		"spec.sparseCheckout[1]": func(s *source.GitRepositorySpec) { s.SparseCheckout = []string{"docs", "../x"} }, // source.TestDirectories has more of them
	} {
		g := newSubmoduleServers(t, testenv.GitConfig{}, testenv.GitConfig{}).object("")
		edit(&g.Spec)
		_, _, _, err := try(t.Context(), g, source.Env{})
		if !errors.Is(err, source.ErrInvalid) || !strings.Contains(err.Error(), field) {
			t.Errorf("%v: want ErrInvalid that names %s", err, field)
		}
	}
}

// The fetch of a stalled submodule ends when the context is canceled, and every spool
// is closed.
func TestSubmoduleStalls(t *testing.T) {
	sub, app := testenv.NewRepo(t), testenv.NewRepo(t)
	pin := commitFiles(sub, map[string]string{"x": "1"})
	slow := testenv.ServeGit(t, testenv.GitConfig{Defect: &testenv.Defect{Phase: testenv.Pack, Do: testenv.Stall, After: 20}}, sub)
	good := testenv.ServeGit(t, testenv.GitConfig{}, sub)
	commitFiles(app, nil, submodule{"a", good.Repo(), pin}, submodule{"b", slow.Repo(), pin})
	env := source.Env{Limits: artifact.Limits{Temp: testenv.NewTempFiles(t).Create}}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-slow.Stalled()
		cancel()
	}()
	_, _, _, err := try(ctx, recursiveObject(testenv.ServeGit(t, testenv.GitConfig{}, app).Repo()), env)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v: want the cancellation", err)
	}
}

// Progress reports the transfers of all submodules as one.
func TestSubmoduleProgress(t *testing.T) {
	server := testenv.ServeRepos(t, testenv.GitConfig{}, newNestedSubmodules(t))
	var mu sync.Mutex
	last := map[string]source.Progress{}
	_, _, _ = fetch(t, recursiveObject(server.URL+"/org/app.git"), source.Env{Progress: func(p source.Progress) {
		mu.Lock()
		defer mu.Unlock()
		if was := last[p.Phase]; p.Done < was.Done || p.Object != "gitrepository/default/app" && was.Object != "" && p.Object != was.Object {
			t.Errorf("%+v after %+v", p, was)
		}
		last[p.Phase] = p
	}})
	got := last["receiving objects of submodules"]
	if got.Done == 0 || got.Done != got.Total || last["receiving objects"].Total == 0 {
		t.Errorf("progress %+v", last)
	}
}
