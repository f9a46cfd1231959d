package local_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/git/internal/object"
)

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
		if got := lines(refs); !slices.Equal(got, want) {
			t.Errorf("packed %v: got\n%s\nwant\n%s", packed, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		exact, err := r.Refs(true, "refs/tags/v1", "refs/tags/v", "refs/tags", "refs/heads/topic/x/y", "../HEAD", "refs/../HEAD", "/etc/passwd", "config")
		if err != nil || len(exact) != 1 || exact[0].Name != "refs/tags/v1" {
			t.Errorf("exact: %v, %v", lines(exact), err)
		}
	}
}

// Refs that git packs meanwhile are not lost.
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
				cmd.Run() // where open files cannot be replaced, git may fail
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

// TestHead has HEAD where it differs from the ordinary.
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
	if got := head(empty); len(got) != 0 {
		t.Errorf("empty: %v", got)
	}
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
		git(t, dir, "init", "-q")
		write(t, filepath.Join(dir, ".git", filepath.FromSlash(test.file)), test.content)
		refs, err := open(t, dir).Refs(false, "refs/")
		if test.want == "" && (err != nil || len(refs) != 0) || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s: %v, %v, want %q", name, lines(refs), err, test.want)
		}
	}
}
