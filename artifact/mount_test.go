package artifact_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestMount(t *testing.T) {
	type at struct {
		dir  string
		tree fs.FS
	}
	for _, test := range []struct {
		name   string
		tree   fs.FS
		mounts []at
		want   string
	}{
		{"at a new directory", tree("a=1"), []at{{"b", tree("c=2")}}, "a=1 b/ b/c=2"},
		{"below missing parents", tree("a=1"), []at{{"x/y/z", tree("c=2")}}, "a=1 x/ x/y/ x/y/z/ x/y/z/c=2"},
		{"over everything", tree("a=1", "b=1", "d/e=1"), []at{{".", tree("a=2", "d/f=2")}}, "a=2 b=1 d/ d/e=1 d/f=2"},
		{"directories merge and the later file wins", tree("d/a=1", "d/b=1", "e=1"), []at{{"d", tree("b=2", "c=2")}}, "d/ d/a=1 d/b=2 d/c=2 e=1"},
		{"an empty tree", tree("a=1"), []at{{"m", tree()}}, "a=1 m/"},
		{"names with a common beginning", tree("lib=1", "lib-x/a=1"), []at{{"lib-", tree("b=2")}}, "lib=1 lib-/ lib-/b=2 lib-x/ lib-x/a=1"},
		{"a mount in a mount", tree("a=1"), []at{{"m", tree("n/b=2")}, {"m/n", tree("b=3", "c=3")}}, "a=1 m/ m/n/ m/n/b=3 m/n/c=3"},
		{"a mount above a mount", tree("a=1"), []at{{"m/n", tree("b=2")}, {"m", tree("n/b=3", "o=3")}}, "a=1 m/ m/n/ m/n/b=3 m/o=3"},
		{"siblings", tree(), []at{{"m/a", tree("x=1")}, {"m/b", tree("x=2")}, {"c", tree("x=3")}}, "c/ c/x=3 m/ m/a/ m/a/x=1 m/b/ m/b/x=2"},
		{"a mounted mount", tree("a=1"), []at{{"m", artifact.Mount(tree("b=2"), "n", tree("c=3"))}}, "a=1 m/ m/b=2 m/n/ m/n/c=3"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := test.tree
			for _, m := range test.mounts {
				all = artifact.Mount(all, m.dir, m.tree)
			}
			want := strings.Fields(test.want)
			got := strings.Fields(entriesOf(t, all))
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				t.Errorf("got  %s\nwant %s", strings.Join(got, " "), strings.Join(want, " "))
			}
			var files []string
			for _, w := range want {
				files = append(files, strings.TrimSuffix(strings.SplitN(w, "=", 2)[0], "/"))
			}
			if err := fstest.TestFS(all, files...); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestMountConflict(t *testing.T) {
	for _, test := range []struct {
		name          string
		base          fs.FS
		dir           string
		sub           fs.FS
		lists, denies string // listing this path fails; everything at or below this path fails
		want          string
	}{
		{"a file where a directory is mounted", tree("m=1", "n=1"), "m", tree("a"), ".", "m",
			"m: a directory in the tree mounted at m but none in the tree: mount at another path"},
		{"a file where a parent of the mount is", tree("m=1"), "m/n", tree("a"), ".", "m/n",
			"m: a directory in the tree mounted at m/n but none in the tree: mount at another path"},
		{"a mounted file against a directory", tree("m/d/x=1"), "m", tree("d=2"), "m", "m/d",
			"m/d: a directory in the tree but none in the tree mounted at m: mount at another path"},
		{"a mounted directory against a file", tree("m/d=1"), "m", tree("d/x=2"), "m", "m/d",
			"m/d: a directory in the tree mounted at m but none in the tree: mount at another path"},
		{"a link against a directory", fstest.MapFS{"d": {Mode: fs.ModeSymlink, Data: []byte("e")}, "e/x": {}}, ".", tree("d/x"), ".", "d",
			"d: a directory in the tree but none in the tree: mount at another path"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := artifact.Mount(test.base, test.dir, test.sub)
			errs := map[string]error{
				"list":     second(fs.ReadDir(all, test.lists)),
				"open":     second(all.Open(test.denies)),
				"stat":     second(fs.Stat(all, test.denies)),
				"lstat":    second(fs.Lstat(all, test.denies)),
				"read":     second(fs.ReadFile(all, test.denies)),
				"readdir":  second(fs.ReadDir(all, test.denies)),
				"readlink": second(fs.ReadLink(all, test.denies)),
				"below":    second(all.Open(test.denies + "/x/y")),
			}
			for op, err := range errs {
				var p *fs.PathError
				if !errors.As(err, &p) || !errors.Is(err, fs.ErrExist) || !strings.HasSuffix(err.Error(), " "+test.want) {
					t.Errorf("%s: got %v, want … %s", op, err, test.want)
				}
			}
		})
	}
}

func TestMountErrors(t *testing.T) {
	if _, err := artifact.Mount(tree("a"), "../b", tree("c")).Open("a"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("an invalid directory: got %v", err)
	}
	broken := errors.New("disk on fire")
	all := artifact.Mount(tree("m/a", "b"), "m", failingFS{broken})
	for op, err := range map[string]error{
		"list": second(fs.ReadDir(all, "m")),
		"open": second(all.Open("m/a")),
		"stat": second(fs.Stat(all, "m/a")),
	} {
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), " m") {
			t.Errorf("%s: got %v", op, err)
		}
	}
	if _, err := fs.ReadFile(all, "b"); err != nil {
		t.Errorf("a path outside the mount: %v", err)
	}
	all = artifact.Mount(tree("m/a=1"), "m", tree("b"))
	for name, want := range map[string]error{"m/none": fs.ErrNotExist, "m/a/x": fs.ErrNotExist, "/m": fs.ErrInvalid, "n/x": fs.ErrNotExist} {
		if _, err := all.Open(name); !errors.Is(err, want) {
			t.Errorf("open %s: got %v", name, err)
		}
	}
	if _, err := fs.ReadFile(all, "m"); err == nil {
		t.Error("read a directory")
	}
	if _, err := fs.ReadLink(all, "m"); !errors.Is(err, fs.ErrInvalid) {
		t.Errorf("read a directory as a link: got %v", err)
	}
	d, err := all.Open("m")
	must(t, err)
	if _, err := d.Read(make([]byte, 1)); err == nil {
		t.Error("read an open directory")
	}
	list := d.(fs.ReadDirFile)
	for range 2 {
		if e, err := list.ReadDir(1); len(e) != 1 || err != nil {
			t.Errorf("ReadDir(1): %v %v", e, err)
		}
	}
	if _, err := list.ReadDir(1); err != io.EOF {
		t.Errorf("ReadDir at the end: %v", err)
	}
	must(t, d.Close())
}

// failingFS is a tree that cannot be read.
type failingFS struct{ err error }

func (f failingFS) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: f.err}
}

func TestMountReadsLinks(t *testing.T) {
	sub := fstest.MapFS{"l": {Mode: fs.ModeSymlink, Data: []byte("x")}}
	all := artifact.Mount(tree("m/l"), "m", sub)
	if target, err := fs.ReadLink(all, "m/l"); target != "x" || err != nil {
		t.Errorf("got %q, %v", target, err)
	}
	info, err := fs.Lstat(all, "m/l")
	if err != nil || info.Mode().Type() != fs.ModeSymlink {
		t.Errorf("got %v, %v", info, err)
	}
	view := compile(t, artifact.Ignore{Extra: "m/k"}, nil).View(t.Context(), all)
	if target, err := fs.ReadLink(view, "m/l"); target != "x" || err != nil {
		t.Errorf("through a view: got %q, %v", target, err)
	}
}

// countFS counts the calls that reach a tree.
type countFS struct {
	fs.FS
	calls *int
}

func (c countFS) Open(name string) (fs.File, error) { *c.calls++; return c.FS.Open(name) }

func TestMountTouchesOneTree(t *testing.T) {
	var base, sub int
	var all fs.FS = countFS{tree("a/b/c/d", "third/x"), &base}
	for i := range 100 {
		all = artifact.Mount(all, fmt.Sprintf("third/party/m%d", i), countFS{tree("q/r/s"), &sub})
	}
	if _, err := fs.ReadFile(all, "a/b/c/d"); err != nil || base != 1 || sub != 0 {
		t.Errorf("outside: %v, %d calls of the base, %d of mounts", err, base, sub)
	}
	base, sub = 0, 0
	if _, err := fs.ReadFile(all, "third/party/m7/q/r/s"); err != nil || base > 2 || sub != 1 {
		t.Errorf("inside: %v, %d calls of the base, %d of mounts", err, base, sub)
	}
}

func TestMountOmits(t *testing.T) {
	rules := compile(t, artifact.Ignore{Extra: "d/\n!d/keep"}, nil)
	files := tree("d/keep", "d/x", "e/d/keep")
	for _, test := range []struct {
		name string
		tree fs.FS
		want string
	}{
		{"a view below", artifact.Mount(rules.View(t.Context(), files), "m", tree("a")), "d/keep e/ m/ m/a"},
		{"a view mounted", artifact.Mount(tree("a"), "m", rules.View(t.Context(), files)), "a m/ m/d/keep m/e/"},
		{"views on both sides", artifact.Mount(rules.View(t.Context(), files), ".", rules.View(t.Context(), files)), "d/keep e/"},
		{"a plain directory over a view", artifact.Mount(rules.View(t.Context(), files), ".", tree("d/y")), "d/ d/keep d/y e/"},
		{"a view of a mount", rules.View(t.Context(), artifact.Mount(tree("a"), "d", tree("keep", "x"))), "a d/keep"},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := strings.Fields(test.want)
			slices.Sort(want)
			testenv.Equal(t, sorted(kept(t, test.tree)), want)
		})
	}
}
