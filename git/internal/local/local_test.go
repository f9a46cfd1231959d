package local_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"

	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
)

// git runs git in dir, apart from the configuration of the machine.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = dir, append(testenv.GitEnv(t), "GIT_ALLOW_PROTOCOL=file")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

func write(t testing.TB, file, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o777))
	must(t, os.WriteFile(file, []byte(content), 0o666))
}

// original is what repository copies: git takes its time.
var original = fstest.MapFS{}

// repository makes a repository whose objects are files, with four commits of
// similar files, a branch, and tags of both kinds.
func repository(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if len(original) > 0 {
		must(t, os.CopyFS(dir, original))
		return dir
	}
	git(t, dir, "init", "-q", "-b", "main")
	git(t, dir, "config", "gc.auto", "0")
	git(t, dir, "config", "uploadpack.allowFilter", "true")
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 200)
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for i, last := range []string{"one", "two", "three", "four"} {
		write(t, filepath.Join(dir, "a"), text[100*i:]+last)
		write(t, filepath.Join(dir, "b/c"), last+text[:len(text)-100*i]+last)
		write(t, filepath.Join(dir, "noise"), string(noise)+last)
		write(t, filepath.Join(dir, "empty"), "")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-q", "-m", last)
		git(t, dir, "tag", last)
	}
	git(t, dir, "tag", "-a", "-m", "tagged", "v1")
	git(t, dir, "tag", "-a", "-m", "a tag of a tag", "v1-again", "v1")
	git(t, dir, "branch", "topic/x", "HEAD~1")
	made := os.DirFS(dir)
	err := fs.WalkDir(made, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			original[name] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
		} else if err == nil {
			var data []byte
			data, err = fs.ReadFile(made, name)
			original[name] = &fstest.MapFile{Data: data, Mode: 0o644}
		}
		return err
	})
	must(t, err)
	return dir
}

func open(t testing.TB, dir string) *local.Repo {
	t.Helper()
	r, err := local.Open(dir, 0)
	must(t, err)
	t.Cleanup(func() { r.Close() })
	return r
}

// TestObjects compares all objects of repositories of all kinds with git.
func TestObjects(t *testing.T) {
	clone := func(from, bare bool, args ...string) string {
		origin, dir := repository(t), filepath.Join(t.TempDir(), "clone")
		url := origin
		if from {
			url = "file://" + filepath.ToSlash(origin)
		}
		git(t, origin, append(append([]string{"clone", "-q"}, args...), url, dir)...)
		return dir
	}
	for name, make := range map[string]func() string{
		"loose": func() string { return repository(t) },
		"packed": func() string {
			dir := repository(t)
			git(t, dir, "gc", "-q")
			return dir
		},
		"deltas by id": func() string {
			dir := repository(t)
			git(t, dir, "-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--depth=50")
			return dir
		},
		"large offsets": func() string {
			dir := repository(t)
			git(t, dir, "repack", "-adq")
			packs, _ := filepath.Glob(filepath.Join(dir, ".git/objects/pack/*.pack"))
			os.Remove(strings.TrimSuffix(packs[0], ".pack") + ".idx")
			git(t, dir, "index-pack", "--index-version=2,0x40", packs[0])
			return dir
		},
		"bare":    func() string { return clone(true, true, "--bare") },
		"shallow": func() string { return clone(true, false, "--depth=1", "--no-single-branch") },
		"shared":  func() string { return clone(false, false, "--shared") },
		"worktree": func() string {
			dir, tree := repository(t), filepath.Join(t.TempDir(), "tree")
			git(t, dir, "worktree", "add", "-q", tree, "topic/x")
			return tree
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := make()
			r := open(t, dir)
			all := git(t, dir, "cat-file", "--batch-all-objects", "--batch", "--unordered")
			n := 0
			for ; all != ""; n++ {
				head, rest, _ := strings.Cut(all, "\n")
				fields := strings.Fields(head)
				size, _ := strconv.Atoi(fields[2])
				checkObject(t, r, fields[0], fields[1], rest[:size])
				all = rest[size+1:]
			}
			if n < 6 {
				t.Errorf("only %d objects", n)
			}
			tree, err := object.ParseID(strings.TrimSpace(git(t, dir, "rev-parse", "HEAD^{tree}")))
			must(t, err)
			if err := fstest.TestFS(object.TreeFS(r, tree), "a", "b/c", "noise", "empty"); err != nil {
				t.Error(err)
			}
		})
	}
}

func checkObject(t *testing.T, r *local.Repo, name, typ, want string) {
	t.Helper()
	id, err := object.ParseID(name)
	must(t, err)
	ty, size, err := r.Stat(id)
	if err != nil || ty.String() != typ || size != int64(len(want)) {
		t.Fatalf("%v: %v of %d bytes, %v; want %s of %d", id, ty, size, err, typ, len(want))
	}
	got, err := object.Read(r, id, ty, 1<<20)
	if err != nil || string(got) != want {
		t.Fatalf("%v: %.80q, %v, want %.80q", id, got, err, want)
	}
}

// TestMissing reads objects that a clone left behind.
func TestMissing(t *testing.T) {
	origin := repository(t)
	for hint, args := range map[string][]string{
		"shallow clone": {"--depth=1"},
		"partial clone": {"--filter=blob:none", "--no-checkout"},
	} {
		dir := filepath.Join(t.TempDir(), "clone")
		git(t, origin, append(append([]string{"clone", "-q"}, args...), "file://"+filepath.ToSlash(origin), dir)...)
		id, _ := object.ParseID(strings.TrimSpace(git(t, origin, "rev-parse", "HEAD~2:a")))
		_, _, _, err := open(t, dir).Open(id)
		if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), id.String()) || !strings.Contains(err.Error(), hint) {
			t.Errorf("%s: %v", hint, err)
		}
	}
}

// TestObjectsConcurrent reads one repository from several goroutines while git moves its objects.
func TestObjectsConcurrent(t *testing.T) {
	dir := repository(t)
	r := open(t, dir)
	names := strings.Fields(git(t, dir, "cat-file", "--batch-all-objects", "--batch-check=%(objectname)"))
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			for range 5 {
				for _, name := range names {
					id, _ := object.ParseID(name)
					typ, size, content, err := r.Open(id)
					if err != nil {
						t.Error(err)
						return
					}
					if n, err := io.Copy(io.Discard, content); n != size || err != nil {
						t.Errorf("%v %v: %d of %d bytes, %v", typ, id, n, size, err)
					}
					content.Close()
				}
			}
		})
	}
	git(t, dir, "repack", "-adq")
	readers.Wait()
}

// must ends the test if there is an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
