package e2e

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A worktree is a clone in which the real git-lfs is at work.
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
	check(w.t, os.MkdirAll(filepath.Dir(at), 0o755))
	check(w.t, os.WriteFile(at, []byte(content), 0o644))
}

// checkedOut returns the files below dir that an artifact may hold.
func checkedOut(t *testing.T, dir string) map[string]string {
	t.Helper()
	found := map[string]string{}
	check(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == ".gitattributes" {
			return err
		}
		if d.IsDir() {
			if d.Name() == ".git" {
				return fs.SkipDir
			}
			return nil
		}
		b, err := os.ReadFile(name)
		rel, _ := filepath.Rel(dir, name)
		found[filepath.ToSlash(rel)] = string(b)
		return err
	}))
	return found
}

// What git-lfs put into a repository and onto a server comes out as it does in a
// clone that git-lfs made, from the server and from the repository on this machine.
func TestLFS(t *testing.T) {
	objects, repo := new(testenv.LFS), testenv.NewRepo(t)
	server := testenv.ServeHTTP(t, testenv.HTTP{LFS: objects, Username: "alice", Password: "s3cret"}, repo)
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
	w.git("push", "-q", "file://"+repo.Dir, "main") // git-lfs puts the objects there, too
	w.git("lfs", "push", "--all", withLogin, "main")
	if n := len(objects.OIDs()); n != 4 {
		t.Fatalf("git-lfs pushed %d objects", n)
	}

	clone := newWorktree(t)
	clone.git("clone", "-q", "-c", "filter.lfs.smudge=git-lfs smudge -- %f", "-c", "filter.lfs.required=true", withLogin, clone.dir)
	want := checkedOut(t, clone.dir)
	if want["data/deep/table.csv"] != strings.Repeat("1,2,3\n", 100_000) || len(want) != 9 {
		t.Fatalf("git-lfs checked out %v", slices.Sorted(maps.Keys(want)))
	}

	s := gitSource{url: server.Repo(), secret: keys{"username": "alice", "password": "s3cret"}, lfs: true}
	out := filepath.Join(t.TempDir(), "out")
	remote := fetchGit(t, t.TempDir(), s, "--out", out)
	if got := checkedOut(t, out); remote.code != 0 || !maps.Equal(got, want) {
		t.Errorf("exit code %d, %v, want %v\n%s", remote.code, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)), remote.stderr)
	}
	server.Reset()
	local := fetchGit(t, t.TempDir(), s, "--from", server.Repo()+"="+repo.Dir)
	if local.code != 0 || local.status.Artifact == nil || local.status.Artifact.Digest != remote.status.Artifact.Digest || len(server.Requests()) != 0 {
		t.Errorf("the repository on this machine: %+v", local)
	}
	s.secret["password"] = "wrong-canary"
	if got := fetchGit(t, t.TempDir(), s); got.code != 1 || strings.Contains(got.stderr, "canary") {
		t.Errorf("wrong password: %+v", got)
	}
}
