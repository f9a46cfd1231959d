package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// newSampleRepo returns a repository whose main branch, tag and pull request have the
// same tree.
func newSampleRepo(t *testing.T) (repo *testenv.Repo, commit string) {
	t.Helper()
	repo = testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{"old": {Data: []byte("old\n")}}})
	commit = repo.Commit(testenv.Commit{Branch: "main", Files: fstest.MapFS{
		"README.md":          {Data: []byte("# sample\n")},
		"deploy/app.yaml":    {Data: []byte(strings.Repeat("replicas: 3\n", 5000))},
		"deploy/run":         {Data: []byte("#!/bin/sh\n"), Mode: 0o755},
		"docs/.sourceignore": {Data: []byte("*.tmp\n")},
		"docs/x.tmp":         {Data: []byte("left out\n")},
		"docs/naïve name":    {Data: []byte("ü\n")},
	}})
	repo.AnnotatedTag("v1.2.3", commit, "release")
	repo.Tag("v1.2.0", repo.ID(commit+"^"))
	repo.Ref("refs/pull/7/head", commit)
	return repo, commit
}

// checkDigest checks that an attempt succeeds with an artifact of this digest, or fails
// as expected.
func (a attempt) checkDigest(t *testing.T, digest string) {
	t.Helper()
	if got, _ := a.fetch(t); a.failed == "" {
		testenv.Equal(t, got.status.Artifact.Digest, digest, "digest")
	}
}

func TestGitOverHTTP(t *testing.T) {
	t.Parallel()
	repo, _ := newSampleRepo(t)
	s := serveGit(t, repo)
	cert, key := s.ca.Client("alice")
	foreign := testenv.NewCA(t)
	foreignCert, foreignKey := foreign.Client("alice")
	ca, mine, theirs := string(s.ca.PEM()), stringMap{"tls.crt": string(cert), "tls.key": string(key)}, stringMap{"tls.crt": string(foreignCert), "tls.key": string(foreignKey)}
	with := func(base stringMap, kv ...string) stringMap {
		out := stringMap{"ca.crt": ca}
		for k, v := range base {
			out[k] = v
		}
		for i := 0; i < len(kv); i += 2 {
			out[kv[i]] = kv[i+1]
		}
		return out
	}
	alice := stringMap{"username": "alice", "password": "s3cret"}
	public := gitSource{url: s.plain + "/public/repo.git"}
	want := fetchSource(t, t.TempDir(), public).status.Artifact
	if want == nil {
		t.Fatal("no artifact of the public repository")
	}
	for _, r := range []attempt{
		{"basic", gitSource{url: s.plain + "/basic/repo.git", secret: alice}, ""},
		{"basic in the URL", gitSource{url: strings.Replace(s.plain, "//", "//alice:s3cret@", 1) + "/basic/repo.git"}, ""},
		{"basic, wrong password", gitSource{url: s.plain + "/basic/repo.git", secret: stringMap{"username": "alice", "password": "canary"}}, "^True AuthenticationFailed: .*401"},
		{"basic, nothing given", gitSource{url: s.plain + "/basic/repo.git"}, "^True AuthenticationFailed: .*401"},
		{"bearer", gitSource{url: s.secure + "/bearer/repo.git", secret: stringMap{"ca.crt": ca, "bearerToken": "token"}}, ""},
		{"bearer, wrong token", gitSource{url: s.secure + "/bearer/repo.git", secret: stringMap{"ca.crt": ca, "bearerToken": "canary"}}, "^True AuthenticationFailed: .*401"},
		{"tls", gitSource{url: s.secure + "/public/repo.git", secret: stringMap{"ca.crt": ca}}, ""},
		{"tls, no CA", gitSource{url: s.secure + "/public/repo.git"}, "^True GitOperationFailed: .*unknown authority"},
		{"tls, wrong CA", gitSource{url: s.secure + "/public/repo.git", secret: stringMap{"ca.crt": string(foreign.PEM())}}, "^True GitOperationFailed: .*unknown authority"},
		{"client certificate", gitSource{url: s.mutual + "/public/repo.git", secret: with(mine)}, ""},
		{"client certificate and basic", gitSource{url: s.mutual + "/basic/repo.git", secret: with(mine, "username", "alice", "password", "s3cret")}, ""},
		{"client certificate, none", gitSource{url: s.mutual + "/public/repo.git", secret: stringMap{"ca.crt": ca}}, "^True GitOperationFailed: .*400"},
		{"client certificate of another CA", gitSource{url: s.mutual + "/public/repo.git", secret: with(theirs)}, "^True GitOperationFailed: .*400"},
		{"no such repository", gitSource{url: s.plain + "/public/other.git"}, "^True GitOperationFailed: .*(not found|404)"},
	} {
		t.Run(r.name, func(t *testing.T) { r.checkDigest(t, want.Digest) })
	}

	// A failed fetch keeps the previous artifact.
	store, basic := t.TempDir(), gitSource{url: s.plain + "/basic/repo.git", secret: alice}
	first := fetchSource(t, store, basic)
	basic.secret = stringMap{"username": "alice", "password": "canary"}
	if second := fetchSource(t, store, basic); second.code != 1 || second.status.Artifact == nil || *second.status.Artifact != *first.status.Artifact {
		t.Errorf("after a good run: %d, %+v, want the artifact %+v still", second.code, second.status.Artifact, first.status.Artifact)
	}
	stored := read(t, filepath.Join(store, filepath.FromSlash(first.status.Artifact.Path)))
	testenv.Equal(t, fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(stored))), first.status.Artifact.Digest, "what is stored still")
}

func TestGitOverSSH(t *testing.T) {
	t.Parallel()
	repo, _ := newSampleRepo(t)
	identity, public := userKey(t, "ed25519", "")
	sealed, sealedPublic := userKey(t, "ed25519", "open sesame")
	rsa, rsaPublic := userKey(t, "rsa", "")
	ecdsa, ecdsaPublic := userKey(t, "ecdsa", "open sesame")
	stranger, _ := userKey(t, "ed25519", "")
	s := serveSSH(t, repo, public, sealedPublic, rsaPublic, ecdsaPublic)
	web := gitSource{url: serveGit(t, repo).plain + "/public/repo.git"}
	want := fetchSource(t, t.TempDir(), web).status.Artifact
	if want == nil {
		t.Fatal("no artifact over http")
	}
	hosts := s.knownHosts(t, false, "ed25519", "ecdsa", "rsa")
	other := serveSSH(t, repo)
	other.addr = s.addr // the host keys of another server at the address of s
	at := func(identity, hosts string, kv ...string) gitSource {
		secret := stringMap{"identity": identity, "known_hosts": hosts}
		for i := 0; i < len(kv); i += 2 {
			secret[kv[i]] = kv[i+1]
		}
		return gitSource{url: s.url, secret: secret}
	}
	for _, r := range []attempt{
		{"key", at(identity, hosts), ""},
		{"rsa key", at(rsa, hosts), ""},
		{"key with passphrase", at(sealed, hosts, "password", "open sesame"), ""},
		{"ecdsa key with passphrase", at(ecdsa, hosts, "password", "open sesame"), ""},
		{"hashed hosts", at(identity, s.knownHosts(t, true, "ed25519", "ecdsa", "rsa")), ""},
		{"only the rsa host key is known", at(identity, s.knownHosts(t, false, "rsa")), ""},
		{"only the ecdsa host key is known, hashed", at(identity, s.knownHosts(t, true, "ecdsa")), ""},
		{"stranger's key", at(stranger, hosts), "^True AuthenticationFailed: .*does not accept the key"},
		{"host is not known", at(identity, "example.org "+s.keys["ed25519"]), "^True AuthenticationFailed: .*SHA256:"},
		{"host has another key", at(identity, other.knownHosts(t, false, "ed25519")), "^True AuthenticationFailed: .*SHA256:.*SHA256:"},
		{"no such repository", gitSource{url: s.url + "x", secret: at(identity, hosts).secret}, "^True GitOperationFailed: "},
	} {
		t.Run(r.name, func(t *testing.T) { r.checkDigest(t, want.Digest) })
	}
}

func TestGitThroughProxies(t *testing.T) {
	t.Parallel()
	repo, _ := newSampleRepo(t)
	s := serveGit(t, repo)
	identity, public := userKey(t, "ed25519", "")
	shell := serveSSH(t, repo, public)
	direct := gitSource{url: s.plain + "/public/repo.git"}
	want := fetchSource(t, t.TempDir(), direct).status.Artifact
	if want == nil {
		t.Fatal("no artifact without a proxy")
	}
	sources := map[string]gitSource{
		"http":  direct,
		"https": {url: s.secure + "/basic/repo.git", secret: stringMap{"ca.crt": string(s.ca.PEM()), "username": "alice", "password": "s3cret"}},
		"ssh":   {url: shell.url, secret: stringMap{"identity": identity, "known_hosts": shell.knownHosts(t, true, "ed25519")}},
	}
	for _, p := range []struct {
		name  string
		proxy proxy
		kinds []string
	}{
		{"tinyproxy", serveHTTPProxy(t), []string{"http", "https", "ssh"}},
		{"microsocks", serveSOCKS(t), []string{"http", "https", "ssh"}},
		{"proxy behind TLS", serveHTTPSProxy(t, s.ca), []string{"https"}}, // trusted by the ca.crt of the source's Secret
	} {
		for _, kind := range p.kinds {
			good, bad := sources[kind], sources[kind]
			good.proxy = stringMap{"address": p.proxy.url, "username": "pat", "password": "pr0xy"}
			bad.proxy = stringMap{"address": p.proxy.url, "username": "pat", "password": "canary"}
			t.Run(kind+" through "+p.name, func(t *testing.T) { attempt{kind, good, ""}.checkDigest(t, want.Digest) })
			t.Run(kind+" through "+p.name+", wrong password", func(t *testing.T) {
				attempt{"", bad, "^True (AuthenticationFailed|GitOperationFailed): .*(407|401|authentication failed)"}.checkDigest(t, want.Digest)
			})
			if port := good.url[strings.LastIndex(good.url[:strings.Index(good.url[8:], "/")+8], ":")+1:][:4]; !strings.Contains(p.proxy.log(), port) {
				t.Errorf("%s did not pass through %s:\n%s", kind, p.name, p.proxy.log())
			}
		}
	}
}

// A worktree is a clone that uses the real git-lfs.
type worktree struct {
	t   *testing.T
	dir string
	env []string
}

func newWorktree(t *testing.T) worktree {
	return worktree{t, filepath.Join(t.TempDir(), "work"), testenv.GitEnv(t)}
}

func (w worktree) git(args ...string) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), "git", args...)
	cmd.Env = w.env
	if args[0] != "clone" && args[0] != "init" {
		cmd.Dir = w.dir
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, errs.Bytes())
	}
}

func (w worktree) write(name, content string) {
	w.t.Helper()
	at := filepath.Join(w.dir, filepath.FromSlash(name))
	must(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
	must(w.t, os.WriteFile(at, []byte(content), 0o644))
}

// worktreeFiles returns the files below dir that an artifact can contain.
func worktreeFiles(t *testing.T, dir string) stringMap {
	t.Helper()
	found := filesOf(t, os.DirFS(dir))
	maps.DeleteFunc(found, func(name, _ string) bool {
		return strings.HasPrefix(name, ".git/") || path.Base(name) == ".gitattributes"
	})
	return found
}

// TestLFS compares files from git-lfs with those in a clone that git-lfs made. It
// fetches from the server and from a local repository.
func TestLFS(t *testing.T) {
	t.Parallel()
	objects, repo := new(testenv.LFS), testenv.NewRepo(t)
	server := testenv.ServeGit(t, testenv.GitConfig{LFS: objects, Username: "alice", Password: "s3cret"}, repo)
	withLogin := strings.Replace(server.Repo(), "://", "://alice:s3cret@", 1)

	w := newWorktree(t)
	w.git("init", "-q", "-b", "main", w.dir)
	w.git("lfs", "install", "--local")
	w.git("lfs", "track", "*.bin", "data/**", "with space.dat")
	w.write("[x]/.gitattributes", "[attr]none filter=lfs\n*.txt filter=lfs -text\n*.md none\n")
	w.write("[x]/n.md", "a macro below the top")
	w.write("a.bin", "a")
	w.write("data/deep/table.csv", strings.Repeat("1,2,3\n", 100_000))
	w.write("data/copy.csv", strings.Repeat("1,2,3\n", 100_000))
	w.write("data/empty", "")
	w.write("with space.dat", "spaced")
	w.write("[x]/y.txt", "bracketed")
	w.write("plain.txt", "plain")
	w.write("data/raw/.gitattributes", "* -filter -diff -merge\n")
	w.write("data/raw/r.csv", "raw")
	w.git("add", ".")
	w.git("commit", "-q", "-m", "large files")
	w.git("push", "-q", "file://"+repo.Dir, "main") // git-lfs stores the objects there, too
	w.git("lfs", "push", "--all", withLogin, "main")
	pushed := 0
	for _, q := range server.Requests() {
		if q.Method == http.MethodPut && q.Status < http.StatusBadRequest {
			pushed++
		}
	}
	if pushed != 4 {
		t.Fatalf("git-lfs pushed %d objects", pushed)
	}

	clone := newWorktree(t)
	clone.git("clone", "-q", "-c", "filter.lfs.smudge=git-lfs smudge -- %f", "-c", "filter.lfs.required=true", withLogin, clone.dir)
	want := worktreeFiles(t, clone.dir)
	if want["data/deep/table.csv"] != strings.Repeat("1,2,3\n", 100_000) || len(want) != 9 {
		t.Fatalf("git-lfs checked out %v", slices.Sorted(maps.Keys(want)))
	}

	s := gitSource{url: server.Repo(), secret: stringMap{"username": "alice", "password": "s3cret"}, lfs: true}
	out := filepath.Join(t.TempDir(), "out")
	remote := fetchSource(t, t.TempDir(), s, "--out", out)
	if got := worktreeFiles(t, out); remote.code != 0 || !maps.Equal(got, want) {
		t.Errorf("exit code %d, %v, want %v\n%s", remote.code, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), remote.stderr)
	}
	server.Reset()
	local := fetchSource(t, t.TempDir(), s, "--from", server.Repo()+"="+repo.Dir)
	if local.code != 0 || local.status.Artifact == nil || local.status.Artifact.Digest != remote.status.Artifact.Digest || len(server.Requests()) != 0 {
		t.Errorf("the repository on this machine: %+v", local)
	}
	s.secret["password"] = "wrong-canary"
	if got := fetchSource(t, t.TempDir(), s); got.code != 1 || strings.Contains(got.stderr, "canary") {
		t.Errorf("wrong password: %+v", got)
	}
}
