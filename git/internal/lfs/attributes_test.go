package lfs_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
)

var tree = testenv.Files

// tracked returns which of names have filter=lfs.
func tracked(t *testing.T, tree fstest.MapFS, names []string) []string {
	t.Helper()
	a, err := lfs.ReadAttributes(tree)
	must(t, err)
	found := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !a.Tracks(name) })
	return found
}

// A checker asks git which files have filter=lfs.
type checker struct{ *testenv.Repo }

func newChecker(t *testing.T) checker {
	c := checker{testenv.NewRepo(t)}
	c.Git("config", "core.bare", "false")
	c.Git("config", "core.worktree", c.Dir)
	return c
}

func (c checker) tracked(t *testing.T, tree fstest.MapFS, names []string) (found []string) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(tree)) {
		at := filepath.Join(c.Dir, filepath.FromSlash(name))
		must(t, os.MkdirAll(filepath.Dir(at), 0o755))
		must(t, os.WriteFile(at, tree[name].Data, 0o644))
	}
	out := strings.Split(c.GitInput(strings.Join(names, "\x00")+"\x00", "check-attr", "--stdin", "-z", "filter"), "\x00")
	for i := 0; i+2 < len(out); i += 3 {
		if out[i+2] == "lfs" {
			found = append(found, out[i])
		}
	}
	return found
}

var names = []string{
	"a", "b.bin", "b.bin.x", "dir/a", "dir/b.bin", "dir/sub/a", "dir/sub/b.bin", "dir/sub/deep/c.dat", "other/a", "other/b.bin",
	"with space.bin", " ", "#hash", "!bang", "tab\tname", "quote\"d", "[x]", "back\\slash", "ü.bin", "-dash", "a ", "dir/a ",
}

var lines = []string{
	"*.bin filter=lfs", "*.bin filter=lfs diff=lfs merge=lfs -text", "* filter=lfs", "*.bin -filter", "*.bin !filter", "*.bin filter",
	"*.bin filter=other", "a filter=lfs", "/a filter=lfs", "dir filter=lfs", "dir/ filter=lfs", "dir/** filter=lfs", "dir/* filter=lfs",
	"**/a filter=lfs", "sub/a filter=lfs", "/sub/** filter=lfs", "dir/**/c.dat filter=lfs", "!*.bin filter=lfs", "\\!bang filter=lfs",
	"# * filter=lfs", "\\#hash filter=lfs", "#hash filter=lfs", "\"#hash\" filter=lfs", "\"with space.bin\" filter=lfs", "\"a \" filter=lfs", "\" \" filter=lfs",
	"\"tab\\tname\" filter=lfs", "\"\\303\\274.bin\" filter=lfs", "\"quote\\\"d\" filter=lfs", "\"unterminated filter=lfs", "\"bad\\q\" filter=lfs",
	"\"a\"filter=lfs", "  *.bin   filter=lfs  ", "\t*.bin\tfilter=lfs", "*.bin filter=lfs -filter", "*.bin -filter filter=lfs", "*.bin =x filter=lfs", "*.bin filter=lfs -",
	"*.bin filter=LFS", "*.bin Filter=lfs", "*.bin filter=lfs=x", "*.bin -filter=lfs", "*.bin filter=", "*.bin filter=lfs bad/name", "*.bin filter=lfs --x",
	"[attr]big filter=lfs -text", "[attr]big filter=other", "[attr]small -filter", "[attr]huge big", "[attr]loop loop2 filter=lfs", "[attr]loop2 loop",
	"[attr]cancel -big filter=x", "[attr] big filter=lfs", "[attr]big", "[attr]bad/name filter=lfs", "\"[attr]big x\" filter=lfs", "[attr]big2 !filter big",
	"*.bin big", "*.bin -big", "*.bin !big", "*.bin big=x", "a huge", "dir/* small", "b.bin loop", "b.bin loop2", "a cancel big", "a big cancel", "*.bin big filter=other", "*.bin filter=other big", "a big2",
	"[attr]filter big", "[attr]filter filter=lfs", "b.* binary", "[xb].bin filter=lfs", "[[]x] filter=lfs", "\\[x\\] filter=lfs", "?.bin filter=lfs", "[!a].bin filter=lfs", "[[:alpha:]].bin filter=lfs",
	"[a-z].bin filter=lfs", "[^b].bin filter=lfs", "[]x].bin filter=lfs", "[z-a].bin filter=lfs", "[b-]*.bin filter=lfs", "[[:nope:]].bin filter=lfs", "[[:lower:] filter=lfs", "[a- filter=lfs",
	"dir[/]a filter=lfs", "dir[!x]a filter=lfs", "dir[,-9]a filter=lfs", "dir?a filter=lfs", "[[:space:]] filter=lfs", "[[:punct:]]* filter=lfs", "[\\]x[]x]* filter=lfs", "[[:alpha:]-z].bin filter=lfs",
	"d**/a filter=lfs", "dir/**a filter=lfs", "** filter=lfs", "**/sub/** filter=lfs", "dir/**/**/b.bin filter=lfs", "*/**/deep/* filter=lfs", "**.bin filter=lfs", "/**/a filter=lfs", "[\xbc]* filter=lfs", "??.bin filter=lfs",
	"back\\\\slash filter=lfs", "*\\ * filter=lfs", "a\\  filter=lfs", "-dash filter=lfs", "* -filter", "* !filter", "", " ", "\\", "*", "filter=lfs",
}

// For random .gitattributes files the attributes equal those that git reports.
func TestAttributesAgreeWithGit(t *testing.T) {
	c := newChecker(t)
	for seed := range uint64(25) {
		r := rand.New(rand.NewPCG(seed, 1))
		var pairs []string
		for _, dir := range []string{"", "dir/", "dir/sub/", "other/"} {
			var text strings.Builder
			if r.IntN(8) == 0 {
				text.WriteString("\ufeff")
			}
			for range r.IntN(7) {
				text.WriteString(lines[r.IntN(len(lines))])
				text.WriteString([]string{"\n", "\n", "\r\n"}[r.IntN(3)])
			}
			if r.IntN(4) == 0 {
				text.WriteString(lines[r.IntN(len(lines))])
			}
			pairs = append(pairs, dir+".gitattributes", text.String())
		}
		m := tree(pairs...)
		got, want := tracked(t, m, names), c.tracked(t, m, names)
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: got %q, git has %q, for %q", seed, got, want, pairs)
		}
	}
}

// Each line is tested in a directory of its own. Lines about macros are also tested
// at the top, after the definition of a macro.
func TestAttributeLines(t *testing.T) {
	c, m, all := newChecker(t), fstest.MapFS{}, []string(nil)
	for i, line := range lines {
		dir := fmt.Sprintf("%d/", i)
		maps.Copy(m, tree(dir+".gitattributes", "* filter=lfs\n"+line+"\n"))
		for _, name := range names {
			all = append(all, dir+name)
		}
	}
	got, want := tracked(t, m, all), c.tracked(t, m, all)
	for _, name := range all {
		if slices.Contains(got, name) != slices.Contains(want, name) {
			i, _, _ := strings.Cut(name, "/")
			t.Errorf("%s: tracked by git: %v, for %q", name, slices.Contains(want, name), m[i+"/.gitattributes"].Data)
		}
	}
	for _, line := range lines {
		if !aboutMacros.MatchString(line) {
			continue
		}
		m := tree(".gitattributes", "[attr]big filter=lfs\n"+line+"\n")
		if got, want := tracked(t, m, names), c.tracked(t, m, names); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, git has %q", line, got, want)
		}
	}
}

var aboutMacros = regexp.MustCompile(`\[attr]|big|small|huge|loop|cancel|binary`)

func TestHostileAttributes(t *testing.T) {
	measure.WithoutRace(t)
	t.Parallel()
	many := func(n int, line func(i int) string) string {
		var b strings.Builder
		for i := range n {
			b.WriteString(line(i) + "\n")
		}
		return b.String()
	}
	chain := func(n int) string {
		return "[attr]m0 filter=lfs\n" + many(n, func(i int) string { return fmt.Sprintf("[attr]m%d m%d", i+1, i) })
	}
	dense := many(16, func(i int) string {
		line := fmt.Sprintf("[attr]m%d filter=lfs", i)
		for j := range 16 {
			line += fmt.Sprintf(" m%d", j)
		}
		return line
	}) + "* m3\n"
	wild := many(300, func(int) string { return strings.Repeat("*a", 1000) + " filter=lfs" })
	for name, row := range map[string]struct {
		tree    fstest.MapFS
		say     string // in the error; "" for none
		tracked string
	}{
		"one file too large":    {tree(".gitattributes", strings.Repeat("#", 1<<20+1)), "more than 1048576 bytes", ""},
		"too many lines":        {tree("d/.gitattributes", many(70_000, func(i int) string { return "x filter=lfs" })), "d/.gitattributes: the patterns for filter up to here take more than 4194304 bytes", ""},
		"too many macros":       {tree(".gitattributes", chain(40)), "more than 16 macros", ""},
		"macros that name all":  {tree(".gitattributes", dense), "", "x"},
		"too many patterns":     {tree("a/.gitattributes", wild, "b/.gitattributes", wild), "/.gitattributes: the patterns for filter up to here take more than 4194304 bytes", ""},
		"as many paths":         {tree("b/.gitattributes", strings.ReplaceAll(wild, "*", "b")+"x filter=lfs\n"), "", "b/x"},
		"line too long":         {tree(".gitattributes", "* filter=lfs "+strings.Repeat("x", 2048)+"\n"), "", ""},
		"NUL":                   {tree(".gitattributes", "x\x00 filter=lfs\nx filter=lfs\n"), "", "x"},
		"symbolic link":         {fstest.MapFS{".gitattributes": {Mode: os.ModeSymlink | 0o777, Data: []byte("x")}}, "", ""},
		"macro below the top":   {tree("d/.gitattributes", "[attr]big filter=lfs\n* big\n"), "", ""},
		"directory of the name": {tree("d/.gitattributes/.gitattributes", "x filter=lfs\n"), "", "d/.gitattributes/x"},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := lfs.ReadAttributes(row.tree)
			if row.say != "" {
				if err == nil || !strings.Contains(err.Error(), row.say) || !strings.Contains(err.Error(), "git attributes") {
					t.Errorf("got %v, want %s", err, row.say)
				}
				return
			}
			must(t, err)
			if row.tracked != "" && !a.Tracks(row.tracked) || a.Tracks("nothing") && row.tracked != "x" {
				t.Errorf("tracks %s: %v, nothing: %v", row.tracked, a.Tracks(row.tracked), a.Tracks("nothing"))
			}
		})
	}
}

const (
	v1    = "version https://git-lfs.github.com/spec/v1\n"
	some  = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824" // of hello
	empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

var pointers = []struct {
	name, text string
	err        error
}{
	{"as written", v1 + "oid sha256:" + some + "\nsize 5\n", nil},
	{"before the first release", "version https://hawser.github.com/spec/v1\noid sha256:" + some + "\nsize 5\n", nil},
	{"no last line break", v1 + "oid sha256:" + some + "\nsize 5", nil},
	{"CR LF", strings.ReplaceAll(v1+"oid sha256:"+some+"\nsize 5\n", "\n", "\r\n"), nil},
	{"blank lines around", "\n" + v1 + "oid sha256:" + some + "\nsize 5\n\n", nil},
	{"nothing", "", lfs.ErrNotPointer},
	{"text", "hello\n", lfs.ErrNotPointer},
	{"another version", "version https://git-lfs.github.com/spec/v2\noid sha256:" + some + "\nsize 5\n", lfs.ErrNotPointer},
	{"first line alone", v1, lfs.ErrNotPointer},
	{"no size", v1 + "oid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"wrong order", v1 + "size 5\noid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"unknown key", v1 + "oid sha256:" + some + "\nsize 5\nzzz 1\n", lfs.ErrNotPointer},
	{"two oids", v1 + "oid sha256:" + some + "\noid sha256:" + some + "\n", lfs.ErrNotPointer},
	{"other hash", v1 + "oid sha512:" + some + "\nsize 5\n", lfs.ErrNotPointer},
	{"short oid", v1 + "oid sha256:" + some[1:] + "\nsize 5\n", lfs.ErrNotPointer},
	{"oid in upper case", v1 + "oid sha256:" + strings.ToUpper(some) + "\nsize 5\n", lfs.ErrNotPointer},
	{"oid that is a path", v1 + "oid sha256:../../../../../../../../../../../../../../../../../../../../etc/passwd\nsize 5\n", lfs.ErrNotPointer},
	{"negative size", v1 + "oid sha256:" + some + "\nsize -5\n", lfs.ErrNotPointer},
	{"huge size", v1 + "oid sha256:" + some + "\nsize 9223372036854775808\n", lfs.ErrNotPointer},
	{"size of nothing", v1 + "oid sha256:" + some + "\nsize 0\n", lfs.ErrNotPointer},
	{"nothing of a size", v1 + "oid sha256:" + empty + "\nsize 5\n", lfs.ErrNotPointer},
	{"the empty object", v1 + "oid sha256:" + empty + "\nsize 0\n", nil},
	{"too long", v1 + "oid sha256:" + some + "\nsize 5\n" + strings.Repeat("\n", 1024), lfs.ErrNotPointer},
	{"extension", v1 + "ext-0-foo sha256:" + some + "\noid sha256:" + some + "\nsize 5\n", lfs.ErrExtension},
}

func TestPointers(t *testing.T) {
	for _, row := range pointers {
		p, err := lfs.ParsePointer([]byte(row.text))
		if !errors.Is(err, row.err) {
			t.Errorf("%s: %v, want %v", row.name, err, row.err)
		}
		if err == nil && !strings.Contains(row.text, p.OID) {
			t.Errorf("%s: %+v", row.name, p)
		}
	}
}
