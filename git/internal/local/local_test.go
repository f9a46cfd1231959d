package local_test

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/internal/testenv"
)

// git runs git in dir, without the configuration of the machine.
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

// initialize creates an empty repository.
func initialize(t testing.TB, dir string) *testenv.Repo {
	t.Helper()
	repo := testenv.NewRepo(t)
	must(t, os.Rename(repo.Dir, filepath.Join(dir, ".git")))
	repo.Dir = filepath.Join(dir, ".git")
	write(t, filepath.Join(repo.Dir, "config"), "[core]\n\trepositoryformatversion = 0\n[gc]\n\tauto = 0\n[uploadpack]\n\tallowFilter = true\n")
	return repo
}

func write(t testing.TB, file, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(file), 0o777))
	must(t, os.WriteFile(file, []byte(content), 0o666))
}

// repository creates a repository of loose objects: four commits of similar files, a
// branch, and tags of both kinds.
func repository(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	repo := initialize(t, dir)
	text := strings.Repeat("the quick brown fox jumps over the lazy dog, and so on and on\n", 200)
	noise := make([]byte, 100_000)
	rand.NewChaCha8([32]byte{}).Read(noise)
	for i, last := range []string{"one", "two", "three", "four"} {
		repo.Tag(last, repo.Commit(testenv.Commit{Branch: "main", Message: last, Files: fstest.MapFS{
			"a":     {Data: []byte(text[100*i:] + last)},
			"b/c":   {Data: []byte(last + text[:len(text)-100*i] + last)},
			"noise": {Data: []byte(string(noise) + last)},
			"empty": {},
		}}))
	}
	repo.AnnotatedTag("v1-again", repo.AnnotatedTag("v1", "main", "tagged"), "a tag of a tag")
	repo.Ref("refs/heads/topic/x", repo.ID("refs/tags/three"))
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
	t.Parallel()
	clone := func(remote bool, args ...string) string {
		origin, dir := repository(t), filepath.Join(t.TempDir(), "clone")
		url := origin
		if remote {
			url = "file://" + filepath.ToSlash(origin)
		}
		git(t, origin, append(append([]string{"clone", "-q"}, args...), url, dir)...)
		return dir
	}
	for name, make := range map[string]func() string{
		"loose": func() string { return repository(t) },
		"deltas by id": func() string {
			dir := repository(t)
			git(t, dir, "-c", "repack.useDeltaBaseOffset=false", "repack", "-adfq", "--depth=50")
			return dir
		},
		"packed, large offsets": func() string {
			dir := repository(t)
			git(t, dir, "gc", "-q")
			packs, _ := filepath.Glob(filepath.Join(dir, ".git/objects/pack/*.pack"))
			os.Remove(strings.TrimSuffix(packs[0], ".pack") + ".idx")
			git(t, dir, "index-pack", "--index-version=2,0x40", packs[0])
			return dir
		},
		"bare and shallow": func() string { return clone(true, "--bare", "--depth=1", "--no-single-branch") },
		"shared":           func() string { return clone(false, "--shared") },
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

// TestMissing reads objects that a clone does not have.
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

var must = testenv.Must

func TestRefs(t *testing.T) {
	dir := repository(t)
	rev := func(name string) string { return strings.TrimSpace(git(t, dir, "rev-parse", name)) }
	for _, packed := range []bool{false, true} {
		if packed {
			git(t, dir, "pack-refs", "--all")
			git(t, dir, "branch", "later")
		}
		r := open(t, dir)
		refs, err := r.Refs(false, "HEAD", "refs/heads/", "refs/tags/v")
		must(t, err)
		want := []string{
			"HEAD " + rev("HEAD") + " symref refs/heads/main",
			"refs/heads/main " + rev("HEAD"),
			"refs/heads/topic/x " + rev("HEAD~1"),
			"refs/tags/v1 " + rev("v1") + " peeled " + rev("HEAD"),
			"refs/tags/v1-again " + rev("v1-again") + " peeled " + rev("HEAD"),
		}
		if packed {
			want = slices.Insert(want, 1, "refs/heads/later "+rev("HEAD"))
		}
		testenv.Equal(t, lines(refs), want, "packed %v", packed)
		exact, err := r.Refs(true, "refs/tags/v1", "refs/tags/v", "refs/tags", "refs/heads/topic/x/y", "../HEAD", "refs/../HEAD", "/etc/passwd", "config")
		if err != nil || len(exact) != 1 || exact[0].Name != "refs/tags/v1" {
			t.Errorf("exact: %v, %v", lines(exact), err)
		}
	}
}

// No ref is missed if git packs refs while they are read.
func TestRefsPackedMeanwhile(t *testing.T) {
	dir := repository(t)
	r := open(t, dir)
	old, tip := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD~1")), strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
	git(t, dir, "tag", "v0")
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 4 {
			for _, args := range [][]string{{"pack-refs", "--all"}, {"update-ref", "refs/tags/v0", old}, {"pack-refs", "--all"}, {"update-ref", "refs/tags/v0", tip}} {
				cmd := exec.Command("git", args...)
				cmd.Dir = dir
				cmd.Run() // git may fail on systems where open files cannot be replaced
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		list, err := r.Refs(false, "refs/heads/", "refs/tags/")
		if err != nil || len(list) != 9 {
			t.Fatalf("%v, %v", lines(list), err)
		}
		for _, name := range []string{"refs/heads/main", "refs/tags/v0"} {
			if list, err := r.Refs(true, name); err != nil || len(list) != 1 {
				t.Fatalf("%s: %v, %v", name, lines(list), err)
			}
		}
	}
}

func lines(refs []object.Ref) (all []string) {
	for _, r := range refs {
		line := r.Name + " " + r.ID.String()
		if r.Symref != "" {
			line += " symref " + r.Symref
		}
		if !r.Peeled.IsZero() {
			line += " peeled " + r.Peeled.String()
		}
		all = append(all, line)
	}
	return all
}

// TestHead reads HEAD in a linked worktree, detached, and in an empty repository.
func TestHead(t *testing.T) {
	head := func(dir string) []string {
		refs, err := open(t, dir).Refs(true, "HEAD")
		if err != nil {
			t.Error(err)
		}
		return lines(refs)
	}
	dir, tree := repository(t), filepath.Join(t.TempDir(), "tree")
	git(t, dir, "worktree", "add", "-q", tree, "topic/x")
	if got := head(tree); len(got) != 1 || !strings.HasSuffix(got[0], "symref refs/heads/topic/x") {
		t.Errorf("worktree: %v", got)
	}
	git(t, dir, "checkout", "-q", "--detach")
	if got := head(dir); len(got) != 1 || strings.Contains(got[0], "symref") {
		t.Errorf("detached: %v", got)
	}
	empty := t.TempDir()
	git(t, empty, "init", "-q")
	testenv.Equal(t, len(head(empty)), 0, "empty")
}

func TestRefsHostile(t *testing.T) {
	id := strings.Repeat("1", 40)
	for name, test := range map[string]struct{ file, content, want string }{
		"not hexadecimal":       {"refs/heads/x", "nonsense\n", "40 or 64"},
		"in a circle":           {"refs/heads/x", "ref: refs/heads/x\n", "symbolic refs in a row"},
		"packed nonsense":       {"packed-refs", "nonsense\n", "line"},
		"packed peel first":     {"packed-refs", "^" + id + "\n", "line"},
		"packed without name":   {"packed-refs", id + "\n", "line"},
		"packed endless line":   {"packed-refs", id + " " + strings.Repeat("x", 1<<17), "token too long"},
		"huge":                  {"refs/heads/x", strings.Repeat("0", 1<<20+1), "more than 1048576 bytes"},
		"out of the repository": {"refs/heads/x", "ref: refs/../../../secret\n", ""},
		"to the configuration":  {"refs/heads/x", "ref: config\n", ""},
		"to nothing":            {"refs/heads/x", "ref: refs/heads/absent\n", ""},
		"locked":                {"refs/heads/x.lock", "nonsense", ""},
	} {
		dir := t.TempDir()
		initialize(t, dir)
		write(t, filepath.Join(dir, ".git", filepath.FromSlash(test.file)), test.content)
		refs, err := open(t, dir).Refs(false, "refs/")
		if test.want == "" && (err != nil || len(refs) != 0) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, %v, want %q", name, lines(refs), err, test.want)
		}
	}
}
