package artifact_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// tree returns a tree of files, which are empty unless they are written as "name=content".
func tree(files ...string) fstest.MapFS {
	m := fstest.MapFS{}
	for _, f := range files {
		name, content, _ := strings.Cut(f, "=")
		m[name] = &fstest.MapFile{Data: []byte(content), Mode: 0o644}
	}
	return m
}

// compile compiles i for tree, which may be nil.
func compile(t testing.TB, i artifact.Ignore, tree fs.FS) *artifact.Rules {
	t.Helper()
	r, err := i.Compile(t.Context(), tree)
	must(t, err)
	return r
}

// kept returns the files of tree and the directories an archive of it would have.
func kept(t testing.TB, tree fs.FS) []string {
	t.Helper()
	o, _ := tree.(interface{ Omits(string) bool })
	var names []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			names = append(names, name)
		case name != "." && (o == nil || !o.Omits(name)):
			names = append(names, name+"/")
		}
		return nil
	})
	must(t, err)
	return names
}

func TestIgnoreView(t *testing.T) {
	git := artifact.DefaultIgnore()
	with := func(extra string) artifact.Ignore { i := git; i.Extra = extra; return i }
	for _, test := range []struct {
		name   string
		ignore artifact.Ignore
		tree   []string
		want   string
	}{
		{"defaults", git,
			[]string{".git/config", ".gitignore", ".github/ci.yml", "a.yaml", "docs/logo.png", "x/.sops.yaml", "x/.gitmodules"},
			"a.yaml docs/ x/"},
		{"spec.ignore replaces the defaults but not the VCS patterns", with("/x\n"),
			[]string{".git/config", ".github/ci.yml", "docs/logo.png", "x/y"},
			".github/ .github/ci.yml docs/ docs/logo.png"},
		{"comments and blank lines replace nothing", with("# nothing\n\n   \n"),
			[]string{"a.png", "b"}, "b"},
		{"any pattern replaces the defaults", with("!*"),
			[]string{".git/config", "a.png"}, ".git/ .git/config a.png"},
		{"a nested file replaces the defaults", git,
			[]string{"a.png", "sub/.sourceignore=none", "sub/b.png"},
			"a.png sub/ sub/.sourceignore sub/b.png"},
		{"VCS patterns can be re-included", with("!.gitignore"),
			[]string{".gitignore", ".gitattributes"}, ".gitignore"},
		{"a nested file applies below its directory", git,
			[]string{"sub/.sourceignore=*.txt\n/only\n", "a.txt", "only", "sub/a.txt", "sub/x/only", "sub/only", "sub/x/b.txt"},
			"a.txt only sub/ sub/.sourceignore sub/x/ sub/x/only"},
		{"a deeper file wins", git,
			[]string{".sourceignore=*.txt", ".a/.sourceignore=!*.txt", ".a/k.txt", "a.txt", ".a/b/.sourceignore=*.txt", ".a/b/no.txt"},
			".a/ .a/.sourceignore .a/b/ .a/b/.sourceignore .a/k.txt .sourceignore"},
		{"spec.ignore wins over files", with("!a.txt"),
			[]string{"s/.sourceignore=*.txt", "s/a.txt", "s/b.txt"}, "s/ s/.sourceignore s/a.txt"},
		{"ignore files inside .git are not read", git,
			[]string{".git/.sourceignore=!*", "sub/.git/.sourceignore=x", "a.png"}, "sub/"},
		{"ignore files of excluded directories are read", git,
			[]string{".sourceignore=vendor/\n", "vendor/.sourceignore=!keep", "vendor/keep", "vendor/drop"},
			".sourceignore vendor/keep"},
		{"everything but one directory", with("/*\n!/deploy\n/deploy/**/*.md\n"),
			[]string{"a", "b/c", "deploy/x", "deploy/y/z", "deploy/README.md", "deploy/y/b.md"},
			"deploy/ deploy/x deploy/y/ deploy/y/z"},
		{"everything", with("*"), []string{"a", "b/c"}, ""},
		{"a file below an excluded directory", with("dir/\n!dir/keep\n"),
			[]string{"dir/keep", "dir/drop", "dir/sub/keep", "dir/sub/x"}, "dir/keep"},
		{"a directory below an excluded directory", with("/a\n!/a/b/c\n"),
			[]string{"a/x", "a/b/x", "a/b/c/x", "a/b/c/d/x"}, "a/b/c/ a/b/c/d/ a/b/c/d/x a/b/c/x"},
		{"a name and a directory", with("*\n!/deploy\n"),
			[]string{"a", "b/c", "deploy/x", "deploy/y/z"}, "deploy/ deploy/x deploy/y/ deploy/y/z"},
		{"an earlier negation does not re-include", with("!dir/keep\ndir/\n"), []string{"dir/keep"}, ""},
		{"a negated directory re-includes all that is in it", with("*.txt\n!/keep\n"),
			[]string{"keep/a.txt", "keep/b", "a.txt"}, "keep/ keep/a.txt keep/b"},
		{"a pattern for what is below matches the directory too", with("a/**\n"), []string{"a/b/c", "d"}, "d"},
		{"no named classes, no !", with("[!a]\n[[:alpha:]]\n"), []string{"b", "a", "!"}, "b"},
		{"a byte order mark is part of a name", with("\ufeffa\n"), []string{"a"}, "a"},
		{"NUL matches nothing", with("\xff\xfea\x00\n\x00"), []string{"a", "b.png"}, "a b.png"},
		{"not well formed", with("[\na[\n[z-a]\n[]a]\n\\\n"), []string{"[", "a", "]"}, "[ a ]"},
		{"spaces at the end", with("a  \nb\\ \n"), []string{"a", "b ", "b"}, "b"},
		{"directories only", with("build/"), []string{"a/build", "b/build/x"}, "a/ a/build b/"},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := tree(test.tree...)
			got := strings.Join(kept(t, compile(t, test.ignore, tree).View(t.Context(), tree)), " ")
			want := strings.Fields(test.want)
			slices.Sort(want)
			if gots := strings.Fields(got); !slices.Equal(sorted(gots), want) {
				t.Errorf("got  %s\nwant %s", strings.Join(sorted(gots), " "), strings.Join(want, " "))
			}
		})
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }

func TestMatchExplains(t *testing.T) {
	i := artifact.DefaultIgnore()
	i.Extra = "# comment\r\n*.md \r\n!/keep.md\n/vendor/\n"
	r := compile(t, i, tree("sub/.sourceignore=\n\n!x.md\n"))
	for _, test := range []struct {
		name string
		dir  bool
		want string
	}{
		{"a.md", false, "true spec.ignore:2 *.md "},
		{"keep.md", false, "false spec.ignore:3 !/keep.md"},
		{"vendor", true, "true spec.ignore:4 /vendor/"},
		{"vendor", false, "false :0 "},
		{"vendor/x/y", false, "true spec.ignore:4 /vendor/"},
		{"vendor/keep.md", false, "true spec.ignore:4 /vendor/"},
		{"sub/.git", true, "true default:0 .git/"},
		{"sub/x.md", false, "true spec.ignore:2 *.md "},
		{"sub/x/.md", false, "true spec.ignore:2 *.md "},
		{"sub", true, "false :0 "},
		{".", true, "false :0 "},
	} {
		rule, ignored, err := r.Match(t.Context(), test.name, test.dir)
		must(t, err)
		testenv.Equal(t, fmt.Sprintf("%v %s:%d %s", ignored, rule.Source, rule.Line, rule.Pattern), test.want, test.name)
	}
}

func TestViewHidesIgnoredPaths(t *testing.T) {
	tree := tree("a/x", "b/x", "c/keep", "c/x", "d")
	view := compile(t, artifact.Ignore{Extra: "/a/\n/c\n!/c/keep\n/d/\n"}, nil).View(t.Context(), tree)
	if err := fstest.TestFS(view, "b/x", "c/keep", "d"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a", "a/x", "c/x", "c/none"} {
		for op, err := range map[string]error{
			"open":    second(view.Open(name)),
			"stat":    second(fs.Stat(view, name)),
			"lstat":   second(fs.Lstat(view, name)),
			"read":    second(fs.ReadFile(view, name)),
			"readdir": second(fs.ReadDir(view, name)),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s %s: got %v, want not exist", op, name, err)
			}
		}
	}
	sub, err := fs.Sub(view, "c")
	must(t, err)
	testenv.Equal(t, kept(t, sub), []string{"keep"}, "sub")
}

func second[T any](_ T, err error) error { return err }

// TestPackLeavesOutIgnoredDirectories tests the contract between views and Pack: an ignored
// directory has no entry, but the files kept below it do.
func TestPackLeavesOutIgnoredDirectories(t *testing.T) {
	files := tree("dir/keep=1", "dir/drop", "dir/sub/x", "other/a", "vendor/x")
	i := artifact.DefaultIgnore()
	i.Extra = "dir/\n!dir/keep\n/vendor\n"
	var archive bytes.Buffer
	report, err := artifact.Tar(t.Context(), &archive, compile(t, i, files).View(t.Context(), files))
	must(t, err)
	var names []string
	r := tar.NewReader(&archive)
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		names = append(names, h.Name)
	}
	if want := []string{".", "dir/keep", "other", "other/a"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	if report.Files != 2 || report.Dirs != 2 {
		t.Errorf("got %+v", report)
	}
}

func ExampleIgnore() {
	files := fstest.MapFS{
		"README.md":              {},
		"deploy/app.yaml":        {},
		"deploy/.sourceignore":   {Data: []byte("*.md\n")},
		"deploy/notes.md":        {},
		"vendor/lib/lib.yaml":    {},
		"vendor/lib/license.txt": {},
	}
	ignore := artifact.DefaultIgnore()
	ignore.Extra = "vendor/\n!vendor/**/*.txt\n" // spec.ignore
	rules, err := ignore.Compile(context.Background(), files)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, name := range []string{"deploy/notes.md", "vendor/lib/lib.yaml", "vendor/lib/license.txt", "README.md"} {
		rule, ignored, _ := rules.Match(context.Background(), name, false)
		fmt.Println(name, ignored, rule.Source, rule.Line, rule.Pattern)
	}
	// Output:
	// deploy/notes.md true deploy/.sourceignore 1 *.md
	// vendor/lib/lib.yaml true spec.ignore 1 vendor/
	// vendor/lib/license.txt false spec.ignore 2 !vendor/**/*.txt
	// README.md false  0
}
