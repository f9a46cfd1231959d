package git_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// large returns a repository with some files that stand for LFS objects.
func large(t *testing.T, objects *testenv.LFS) *testenv.Repo {
	repo := testenv.NewRepo(t)
	tree := files(
		".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\nsmall.bin !filter\n",
		"a.bin", objects.Add("content of a"),
		"dir/.gitattributes", "raw.* filter=lfs\nplain.bin -filter\n",
		"dir/raw.dat", objects.Add(strings.Repeat("raw", 100_000)),
		"dir/again.bin", objects.Add("content of a"),
		"dir/plain.bin", objects.Add("never asked for 1"),
		"small.bin", objects.Add("never asked for 2"),
		"empty.bin", "",
		"hidden/b.bin", objects.Add("never asked for 3"),
		"text.md", "text\n",
	)
	tree["run.bin"] = &fstest.MapFile{Data: []byte(objects.Add("#!/bin/sh\n")), Mode: 0o755}
	repo.Commit(testenv.Commit{Branch: "main", Files: tree})
	return repo
}

// wantLFSFiles returns the files of large after its pointers are replaced.
func wantLFSFiles() map[string]string {
	return map[string]string{
		"a.bin": "content of a", "dir/again.bin": "content of a", "dir/raw.dat": strings.Repeat("raw", 100_000),
		"dir/plain.bin": pointer("never asked for 1"), "small.bin": pointer("never asked for 2"),
		"empty.bin": "", "text.md": "text\n", "run.bin": "#!/bin/sh\n",
	}
}

func pointer(content string) string { return new(testenv.LFS).Add(content) }

func lfsObject(url string) *source.GitRepository {
	g := object(url, source.GitRepositoryRef{Branch: "main"})
	g.Spec.LFS, g.Spec.Ignore = true, new("hidden/\n")
	return g
}

func phases(s *testenv.GitServer, phase testenv.Phase) (found []testenv.Request) {
	for _, q := range s.Requests() {
		if q.Phase == phase {
			found = append(found, q)
		}
	}
	return found
}

func TestLFS(t *testing.T) {
	objects := new(testenv.LFS)
	repo := large(t, objects)
	server := testenv.ServeGit(t, testenv.GitConfig{LFS: objects, Username: "alice", Password: "s3cret pass"}, repo)
	g := lfsObject(server.Repo())
	g.Spec.SecretRef = &source.LocalReference{Name: "login"}
	env := source.Env{Secrets: sourcetest.Secrets{"default/login": sourcetest.Secret("username", "alice", "password", "s3cret pass")}}
	_, archive, report := fetch(t, g, env)
	if got := contents(t, archive); !maps.Equal(got, wantLFSFiles()) {
		t.Errorf("content %v", slices.Sorted(maps.Keys(got)))
		for name, text := range wantLFSFiles() {
			if got[name] != text {
				t.Errorf("%s: %.80q, want %.80q", name, got[name], text)
			}
		}
	}
	testenv.Equal(t, len(report.Notes), 0, "notes %q", report.Notes)
	testenv.Equal(t, server.Count(testenv.LFSObject), 3, "downloads")
	g.Spec.LFS = false
	_, archive, report = fetch(t, g, env)
	testenv.Equal(t, contents(t, archive)["a.bin"], pointer("content of a"), "without lfs")
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "6 files are Git LFS pointers") {
		t.Errorf("notes %q", report.Notes)
	}
}

// serveLFSOverSSH returns a GitRepository over ssh, whose server answers git-lfs-authenticate
// with grant.
func serveLFSOverSSH(t *testing.T, repo *testenv.Repo, grant string) (*source.GitRepository, source.Env, *testenv.SSHServer) {
	s, keys := serveSSH(t, testenv.SSHConfig{Grant: grant}, map[string]*testenv.Repo{"repo.git": repo})
	g := lfsObject(s.Repo())
	g.Spec.SecretRef = &source.LocalReference{Name: "keys"}
	return g, source.Env{Secrets: keys}, s
}

func TestLFSOverSSH(t *testing.T) {
	objects := &testenv.LFS{Token: "RemoteAuth cAnArY-grant"}
	repo := large(t, objects)
	server := testenv.ServeGit(t, testenv.GitConfig{LFS: objects}, repo)
	at := server.Repo() + "/info/lfs"
	g, env, ssh := serveLFSOverSSH(t, repo, `{"href": "`+at+`", "header": {"Authorization": "RemoteAuth cAnArY-grant"}, "expires_in": 600}`)
	_, archive, _ := fetch(t, g, env)
	testenv.Equal(t, contents(t, archive), wantLFSFiles(), "content")
	var commands []string
	for _, s := range ssh.Sessions() {
		commands = append(commands, s.Command)
	}
	if n := len(commands); n == 0 || commands[n-1] != "git-lfs-authenticate '/repo.git' download" {
		t.Errorf("commands %q", commands)
	}
	for name, row := range map[string]struct{ grant, reason, say string }{
		"expired":          {`{"href": "` + at + `", "header": {"Authorization": "RemoteAuth cAnArY-old"}, "expires_in": -600}`, authFailed, "status 401"},
		"wrong token":      {`{"href": "` + at + `", "header": {"Authorization": "RemoteAuth cAnArY-old"}}`, authFailed, "status 401"},
		"no JSON":          {`Welcome!`, gitFailed, "git-lfs-authenticate"},
		"no HTTP":          {`{"href": "ssh://127.0.0.1/x"}`, gitFailed, "no HTTP address"},
		"header injected":  {`{"href": "` + at + `", "header": {"X": "a\nb"}}`, gitFailed, "invalid header field"},
		"endless":          {strings.Repeat(" ", 64<<10+1), gitFailed, "more than 65536 bytes"},
		"no such program":  {"", gitFailed, "https://127.0.0.1/repo.git/info/lfs/objects/batch|git-lfs-authenticate|no credentials were sent"},
		"default endpoint": {`{"header": {"Authorization": "RemoteAuth cAnArY-old"}}`, gitFailed, "https://127.0.0.1/repo.git/info/lfs/objects/batch"},
	} {
		t.Run(name, func(t *testing.T) {
			g, env, _ := serveLFSOverSSH(t, repo, row.grant)
			wantFetchError(t, g, env, row.reason, row.say)
		})
	}
}

// A local repository that replaces the URL provides its LFS objects too, and no
// server is contacted.
func TestLFSOfLocalRepositories(t *testing.T) {
	objects := new(testenv.LFS)
	repo := large(t, objects)
	keep := func(dir string) {
		for _, content := range []string{"content of a", strings.Repeat("raw", 100_000), "#!/bin/sh\n"} {
			p, _, _ := strings.Cut(strings.SplitAfter(pointer(content), "sha256:")[1], "\n")
			at := filepath.Join(dir, "lfs", "objects", p[:2], p[2:4], p)
			must(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(content), 0o644)))
		}
	}
	clone := filepath.Join(t.TempDir(), "clone")
	repo.Git("-c", "protocol.file.allow=always", "clone", "-q", repo.Dir, clone)
	const at = "https://example.com/app"
	g := lfsObject(at)
	for name, dir := range map[string]string{repo.Dir: repo.Dir, clone: filepath.Join(clone, ".git")} {
		env := source.Env{Local: map[string]string{at: name}}
		wantFetchError(t, g, env, gitFailed, "of a.bin|local repository "+name+"|git lfs fetch")
		keep(dir)
		if _, archive, _ := fetch(t, g, env); !maps.Equal(contents(t, archive), wantLFSFiles()) {
			t.Errorf("%s: other content", name)
		}
		found, err := filepath.Glob(filepath.Join(dir, "lfs", "objects", "*", "*", "*"))
		if err != nil || len(found) != 3 {
			t.Fatal(found, err)
		}
		for content, say := range map[string]string{"content of b": "SHA-256", "content": "ends after", strings.Repeat("long", 100_000): "more than"} {
			for _, f := range found {
				must(t, os.WriteFile(f, []byte(content), 0o644))
			}
			wantFetchError(t, g, env, gitFailed, say)
		}
	}
}

// lfs.url of .lfsconfig may lead to the origin of spec.url, with the credentials, and
// over https to other origins, without credentials.
func TestLFSConfig(t *testing.T) {
	t.Parallel()
	objects, ca := new(testenv.LFS), testenv.NewCA(t)
	repo := large(t, objects)
	login := sourcetest.Secret("username", "alice", "password", "cAnArY pass", "ca.crt", string(ca.PEM()))
	env := source.Env{Secrets: sourcetest.Secrets{"default/login": login}}
	ownServer := testenv.ServeGit(t, testenv.GitConfig{LFS: objects, Username: "alice", Password: "cAnArY pass", NoFilter: true}, repo) // without filters, one fetch is enough
	plain := testenv.ServeGit(t, testenv.GitConfig{LFS: objects}, repo)
	secure := testenv.ServeGit(t, testenv.GitConfig{LFS: objects, CA: ca}, repo)
	for name, row := range map[string]struct {
		config string
		at     *testenv.GitServer
		path   string
		say    string
	}{
		"none":                {"", ownServer, "/repo.git/info/lfs/objects/batch", ""},
		"own origin":          {"[lfs]\n\turl = " + ownServer.URL + "/other/info/lfs\n", ownServer, "/other/info/lfs/objects/batch", ""},
		"own origin and user": {"[lfs]\n\turl = " + strings.Replace(ownServer.URL, "://", "://bob:x@", 1) + "/other/info/lfs/?q#f\n", ownServer, "/other/info/lfs/objects/batch", ""},
		"elsewhere":           {"[lfs]\n\turl = \"" + secure.URL + "/x/info/lfs\" # there\n", secure, "/x/info/lfs/objects/batch", ""},
		"last one counts":     {"[lfs]\n\turl = ftp://a\n\tURL = " + secure.URL + "/x/info/lfs\n", secure, "/x/info/lfs/objects/batch", ""},
		"other settings":      {"[lfs]\n\tfetchexclude = *\n[remote \"origin\"]\n\tlfsurl = " + plain.URL + "\n[lfs \"x\"]\n\turl = ftp://a\n", ownServer, "/repo.git/info/lfs/objects/batch", ""},
		"elsewhere in clear":  {"[lfs]\n\turl = " + plain.URL + "/x\n", nil, "", ".lfsconfig|must be https"},
		"a file":              {"[lfs]\n\turl = file:///etc\n", nil, "", ".lfsconfig|must be https"},
		"ssh":                 {"[lfs]\n\turl = ssh://git@127.0.0.1/x\n", nil, "", ".lfsconfig|must be https"},
		"no URL":              {"[lfs]\n\turl = http://[::1\n", nil, "", ".lfsconfig|no URL"},
		"malformed":           {"[lfs\n", nil, "", ".lfsconfig: line 1"},
		"too large":           {strings.Repeat("#", 64<<10+1), nil, "", ".lfsconfig: more than 65536 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			tree := files(".gitattributes", "*.bin filter=lfs", "a.bin", objects.Add("content of a"))
			if row.config != "" {
				tree[".lfsconfig"] = files("", row.config)[""]
			}
			repo.Commit(testenv.Commit{Branch: "main", Files: tree})
			g := lfsObject(ownServer.Repo())
			g.Spec.SecretRef, g.Spec.Ignore = &source.LocalReference{Name: "login"}, nil
			for _, s := range []*testenv.GitServer{ownServer, plain, secure} {
				s.Reset()
			}
			if row.say != "" {
				wantFetchError(t, g, env, gitFailed, row.say)
				return
			}
			_, archive, _ := fetch(t, g, env)
			testenv.Equal(t, contents(t, archive)["a.bin"], "content of a", "content")
			requests := phases(row.at, testenv.LFSBatch)
			if len(requests) != 1 || requests[0].Path != row.path || (requests[0].Authorization != "") != (row.at == ownServer) {
				t.Errorf("requests %+v", requests)
			}
		})
	}
}

// With a sparse checkout, attributes from above the listed directories apply, and
// objects outside of them are not fetched.
func TestLFSOfSparseCheckouts(t *testing.T) {
	objects := new(testenv.LFS)
	repo := testenv.NewRepo(t)
	for name, config := range map[string]testenv.GitConfig{"partial": {}, "whole": {NoFilter: true}} {
		config.LFS = objects
		server := testenv.ServeGit(t, config, repo)
		commit := func(endpoint string) {
			repo.Commit(testenv.Commit{Branch: "main", Files: files(
				".gitattributes", "*.bin filter=lfs\n", "top.bin", objects.Add("top"), ".lfsconfig", "[lfs]\n\turl = "+endpoint+"\n",
				"a/.gitattributes", "*.dat filter=lfs\nno.bin -filter\n", "a/x.dat", objects.Add("beside"),
				"a/b/x.dat", objects.Add("dat"), "a/b/y.bin", objects.Add("bin"), "a/b/no.bin", objects.Add("no"), "a/b/c/.gitattributes", "* !filter\n", "a/b/c/z.bin", objects.Add("z"))})
		}
		g := sparse(server.Repo(), "a/b")
		g.Spec.LFS = true
		commit("/elsewhere")
		wantFetchError(t, g, source.Env{}, gitFailed, ".lfsconfig")
		commit(server.URL + "/elsewhere/info/lfs")
		_, archive, report := fetch(t, g, source.Env{})
		want := map[string]string{"a/b/x.dat": "dat", "a/b/y.bin": "bin", "a/b/no.bin": pointer("no"), "a/b/c/z.bin": pointer("z")}
		if got := contents(t, archive); !maps.Equal(got, want) {
			t.Errorf("%s: content %q, notes %q", name, got, report.Notes)
		}
		if n := server.Count(testenv.LFSObject); n != 2 || phases(server, testenv.LFSBatch)[0].Path != "/elsewhere/info/lfs/objects/batch" {
			t.Errorf("%s: %d downloads", name, n)
		}
	}
}

// The objects of a submodule come from its own endpoint; an object that two places
// hold is fetched once.
func TestLFSOfSubmodules(t *testing.T) {
	objects := new(testenv.LFS)
	app, lib := testenv.NewRepo(t), testenv.NewRepo(t)
	commit := lib.Commit(testenv.Commit{Branch: "main", Files: files(".gitattributes", "*.dat filter=lfs\n", "l.dat", objects.Add("of lib"), "l.bin", objects.Add("no filter there"))})
	commitFiles(app, map[string]string{".gitattributes": "*.bin filter=lfs\n", "a.bin": objects.Add("of app"), "a.dat": "plain"},
		submodule{"one", "../lib.git", commit}, submodule{"two/deep", "../lib.git", commit})
	server := testenv.ServeRepos(t, testenv.GitConfig{LFS: objects}, map[string]*testenv.Repo{"app.git": app, "lib.git": lib})
	g := recursiveObject(server.URL + "/app.git")
	g.Spec.LFS = true
	_, archive, report := fetch(t, g, source.Env{})
	wanted := map[string]string{"a.bin": "of app", "a.dat": "plain", "one/l.dat": "of lib", "two/deep/l.dat": "of lib", "one/l.bin": pointer("no filter there"), "two/deep/l.bin": pointer("no filter there")}
	if got := contents(t, archive); !maps.Equal(got, wanted) || len(report.Notes) != 0 {
		t.Errorf("content %q, notes %q", got, report.Notes)
	}
	var paths []string
	for _, q := range phases(server, testenv.LFSBatch) {
		paths = append(paths, q.Path)
	}
	slices.Sort(paths)
	if !slices.Equal(paths, []string{"/app.git/info/lfs/objects/batch", "/lib.git/info/lfs/objects/batch"}) || server.Count(testenv.LFSObject) != 2 {
		t.Errorf("requests to %q, %d downloads", paths, server.Count(testenv.LFSObject))
	}
	g.Spec.Ignore = new("one/\n/two/deep/l.dat\n")
	server.Reset()
	_, archive, _ = fetch(t, g, source.Env{})
	if got := contents(t, archive); got["a.bin"] != "of app" || got["one/l.dat"] != "" || server.Count(testenv.LFSObject) != 1 {
		t.Errorf("content %q", got)
	}
}

// A file that has the attribute and is no pointer is packed unchanged and reported in
// a note.
func TestLFSNotes(t *testing.T) {
	objects := new(testenv.LFS)
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: files(".gitattributes", "*.bin filter=lfs\n",
		"a.bin", "no pointer", "b.bin", strings.Repeat("large", 1000), "c.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "d.bin", "x")})
	server := testenv.ServeGit(t, testenv.GitConfig{LFS: objects}, repo)
	_, archive, report := fetch(t, lfsObject(server.Repo()), source.Env{})
	if got := contents(t, archive); got["a.bin"] != "no pointer" || len(got) != 4 {
		t.Errorf("content %q", got)
	}
	if len(report.Notes) != 1 || !strings.Contains(report.Notes[0], "4 files have the attribute filter=lfs and are no LFS pointers") || !strings.Contains(report.Notes[0], "a.bin, b.bin, c.bin …") {
		t.Errorf("notes %q", report.Notes)
	}
	testenv.Equal(t, server.Count(testenv.LFSBatch), 0, "batches for nothing")
}
