package artifact_test

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
)

// A verdict is the last pattern that decides about a path: the ignore file and
// the line it stands in, or the zero verdict.
type verdict struct {
	file   string
	line   int
	negate bool
}

func (v verdict) excludes() bool { return v.line > 0 && !v.negate }

// after reports whether the pattern of v stands later than that of w, of two
// patterns that match one path.
func (v verdict) after(w verdict) bool {
	return cmp.Or(cmp.Compare(strings.Count(v.file, "/"), strings.Count(w.file, "/")), cmp.Compare(v.line, w.line)) > 0
}

// A gitCase is a tree with ignore files, and the paths to ask about.
type gitCase struct {
	ignore map[string][]string // by directory, "" is the top
	paths  map[string]bool     // whether it is a directory
}

// askGit returns what git check-ignore says about the paths of all cases, by
// index, from one process. It answers twice: about each path as it is, and about
// each path if none of its parents were excluded, which is the last pattern that
// matches the path itself.
func askGit(t *testing.T, cases []gitCase) (direct, own []map[string]verdict) {
	t.Helper()
	root := t.TempDir()
	var input bytes.Buffer
	for i, c := range cases {
		for depth := range 1 + c.depth() {
			at := fmt.Sprintf("c%d-%d", i, depth)
			c.write(t, filepath.Join(root, at), depth)
			for _, name := range c.at(depth) {
				input.WriteString(at + "/" + name + "\x00")
			}
		}
	}
	runGit(t, root, nil, "init", "-q", "--template=")
	out := runGit(t, root, &input, "-c", "core.ignoreCase=false", "-c", "core.excludesFile=", "check-ignore", "-z", "-v", "-n", "--no-index", "--stdin")

	direct, own = make([]map[string]verdict, len(cases)), make([]map[string]verdict, len(cases))
	for i := range cases {
		direct[i], own[i] = map[string]verdict{}, map[string]verdict{}
	}
	fields := strings.Split(strings.TrimSuffix(out, "\x00"), "\x00")
	if len(fields)%4 != 0 {
		t.Fatalf("git answered %d fields", len(fields))
	}
	for ; len(fields) > 0; fields = fields[4:] {
		at, name, _ := strings.Cut(fields[3], "/")
		var i, depth int
		if _, err := fmt.Sscanf(at, "c%d-%d", &i, &depth); err != nil {
			t.Fatal(err)
		}
		v := verdict{file: strings.TrimPrefix(fields[0], at+"/"), negate: strings.HasPrefix(fields[2], "!")}
		v.line, _ = strconv.Atoi(fields[1])
		if depth == 0 {
			direct[i][name] = v
		} else {
			own[i][name] = v
		}
	}
	return direct, own
}

// at returns the paths of one depth, or all for depth 0. They are sorted: git
// reads ignore files once for neighbours.
func (c gitCase) at(depth int) []string {
	return slices.DeleteFunc(sortedKeys(c.paths), func(name string) bool {
		return depth != 0 && strings.Count(name, "/")+1 != depth
	})
}

// write writes the ignore files and the directories of one depth below root.
// Except for depth 0, each ignore file ends in patterns that include all
// directories less deep.
func (c gitCase) write(t *testing.T, root string, depth int) {
	t.Helper()
	for _, name := range c.at(depth) {
		if c.paths[name] {
			mkdir(t, filepath.Join(root, name))
		}
	}
	for dir, lines := range c.ignore {
		level := 0
		if dir != "" {
			level = strings.Count(dir, "/") + 1
		}
		text := strings.Join(lines, "\n") + "\n"
		for parent := level + 1; parent < depth; parent++ {
			text += "!/" + strings.Repeat("*/", parent-level) + "\n"
		}
		mkdir(t, filepath.Join(root, dir))
		if err := os.WriteFile(filepath.Join(root, dir, ".gitignore"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// depth returns the length of the longest path.
func (c gitCase) depth() (n int) {
	for name := range c.paths {
		n = max(n, strings.Count(name, "/")+1)
	}
	return n
}

func mkdir(t *testing.T, name string) {
	t.Helper()
	if err := os.MkdirAll(name, 0o755); err != nil {
		t.Fatal(err)
	}
}

// runGit runs git in dir and returns its output.
func runGit(t *testing.T, dir string, input *bytes.Buffer, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_DIR="+filepath.Join(dir, ".git"), "GIT_WORK_TREE="+dir)
	if input != nil {
		cmd.Stdin = input
	}
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 1) { // 1: nothing is ignored
		t.Fatalf("git %s: %v: %s", args[0], err, stderr.String())
	}
	return string(out)
}

// check compares the rules' verdicts with git's. It returns the number of paths
// that only the extension keeps.
func (c gitCase) check(t *testing.T, direct, own map[string]verdict) (extended int) {
	t.Helper()
	files := fstest.MapFS{}
	for dir, lines := range c.ignore {
		files[path.Join(dir, ".gitignore")] = &fstest.MapFile{Data: []byte(strings.Join(lines, "\n") + "\n")}
	}
	rules := compile(t, artifact.Ignore{File: ".gitignore"}, files)
	extension, plain := map[string]verdict{}, map[string]verdict{}
	names := sortedKeys(c.paths) // parents before children
	for _, name := range names {
		parent := path.Dir(name)
		plain[name], extension[name] = own[name], own[name]
		if v := plain[parent]; v.excludes() {
			plain[name] = v
		}
		if v := extension[parent]; v.excludes() && !own[name].after(v) {
			extension[name] = v
		}
		if plain[name] != direct[name] {
			t.Fatalf("%q %q: git says %v about the path and its parents, but %v", c.ignore, name, plain[name], direct[name])
		}
		rule, ignored := rules.Match(name, c.paths[name])
		if got := (verdict{rule.Source, rule.Line, rule.Negate}); got != extension[name] || ignored != got.excludes() {
			t.Errorf("%q %q (directory %v): got %v, ignored %v; want %v (git: %v)",
				c.ignore, name, c.paths[name], got, ignored, extension[name], direct[name])
		}
		if extension[name].excludes() != direct[name].excludes() {
			extended++
		}
	}
	return extended
}

func sortedKeys[V any](m map[string]V) []string {
	var list []string
	for k := range m {
		list = append(list, k)
	}
	return sorted(list)
}

// askAll compares all cases with git and returns the number of paths and of
// those that only the extension keeps.
func askAll(t *testing.T, cases []gitCase) (paths, extended int) {
	t.Helper()
	direct, own := askGit(t, cases)
	for i, c := range cases {
		paths += len(c.paths)
		extended += c.check(t, direct[i], own[i])
	}
	return paths, extended
}

// nameBytes are what names are made of. Windows has no names with the others.
func nameBytes() string {
	if runtime.GOOS == "windows" {
		return "aaabbb-"
	}
	return "aaaabbbb.-*[]!#\\ é"
}

// A gitGen makes random cases.
type gitGen struct{ *rand.Rand }

func pick[T any](g gitGen, list []T) T { return list[g.IntN(len(list))] }

func (g gitGen) name() string {
	chars := []rune(nameBytes())
	s := make([]rune, 1+g.IntN(3))
	for i := range s {
		s[i] = pick(g, chars)
	}
	if strings.Trim(string(s), ".") == "" {
		return "a"
	}
	return string(s)
}

// pieces are what patterns are made of, the likely ones repeated.
var pieces = strings.Fields(`a a a a b b b b . - é ab ba * * * ** ** / / / ? ? [ab] [!a] [^b] [a-b] [!a-z] []a] [!]a] []-b] [a-]
	[[:alpha:]] [[:punct:]b] [![:lower:]] [[:none:]] [[:a] [a/b] [z-a] [\a-\b] [\]] [a [ ] [] [!] [[a-] [-a] [--.]
	\a \* \? \[ \\ \! \# ! # \ /**/ **/ /** *** a**/ a/** **b \/ **\/`)

func (g gitGen) pattern() string {
	if g.IntN(30) == 0 {
		return pick(g, []string{"", "#a", " ", "!", "/", "//", "!/", "**", "/**", "**/", "***", "a\r", "*\t", "!#", "\\", "*\\"})
	}
	var b strings.Builder
	if g.IntN(3) == 0 {
		b.WriteString("!")
	}
	if g.IntN(4) == 0 {
		b.WriteString("/")
	}
	for range 1 + g.IntN(5) {
		b.WriteString(pick(g, pieces))
	}
	b.WriteString(pick(g, []string{"", "", "", "/", " ", "\\ ", "  ", "/ ", "\r"}))
	return b.String()
}

// like returns a pattern that probably matches name.
func (g gitGen) like(name string) string {
	if g.IntN(2) == 0 {
		name = path.Base(name)
	}
	var b strings.Builder
	b.WriteString(pick(g, []string{"", "!"}) + pick(g, []string{"", "", "/", "**/"}))
	for _, c := range name {
		b.WriteString(pick(g, []string{string(c), string(c), string(c), "*", "?", "\\" + string(c), "[" + string(c) + "]"}))
	}
	b.WriteString(pick(g, []string{"", "", "", "/", "/**", "*"}))
	return b.String()
}

func (g gitGen) gitCase() gitCase {
	c := gitCase{ignore: map[string][]string{"": nil}, paths: map[string]bool{}}
	dirs := []string{""} // few: each costs several on the disk
	for range 4 {
		name := path.Join(pick(g, dirs), g.name())
		if strings.Count(name, "/") < 2 && !c.paths[name] {
			dirs, c.paths[name] = append(dirs, name), true
		}
	}
	if g.IntN(3) == 0 {
		c.ignore[pick(g, dirs)] = nil
	}
	for range 40 {
		name := path.Join(pick(g, dirs), g.name())
		if _, ok := c.paths[name]; !ok {
			c.paths[name] = false
		}
	}
	for dir := range c.ignore {
		for range 1 + g.IntN(6) {
			line := g.pattern()
			if g.IntN(2) == 0 {
				line = g.like(pick(g, sortedKeys(c.paths)))
			}
			c.ignore[dir] = append(c.ignore[dir], line)
		}
	}
	if name := pick(g, sortedKeys(c.paths)); path.Dir(name) != "." { // what the extension is for
		c.ignore[""] = slices.Insert(c.ignore[""], g.IntN(len(c.ignore[""])), "/"+path.Dir(name), "!/"+name)
	}
	return c
}

func TestMatchAgreesWithGit(t *testing.T) {
	g := gitGen{rand.New(rand.NewPCG(2, 39))}
	var cases []gitCase
	for range 150 {
		cases = append(cases, g.gitCase())
	}
	paths, extended := askAll(t, cases)
	t.Logf("%d paths under %d sets of ignore files; the extension keeps %d that git does not", paths, len(cases), extended)
	if paths < 3000 || extended < 100 {
		t.Error("too few to tell")
	}
}

// TestClassesAgreeWithGit asks git about every byte and every named class.
func TestClassesAgreeWithGit(t *testing.T) {
	var cases []gitCase
	for _, class := range strings.Fields("alnum alpha blank cntrl digit graph lower print punct space upper xdigit word") {
		c := gitCase{ignore: map[string][]string{"": {"x[[:" + class + ":]]", "y[![:" + class + ":]]"}}, paths: map[string]bool{}}
		for b := 1; b < 256; b++ {
			if b == '/' || runtime.GOOS == "windows" && strings.IndexByte(`\:`, byte(b)) >= 0 {
				continue
			}
			c.paths["x"+string([]byte{byte(b)})] = false
			c.paths["y"+string([]byte{byte(b)})] = false
		}
		cases = append(cases, c)
	}
	askAll(t, cases)
}

// TestPatternsAgreeWithGit asks git about the corners of its pattern language.
func TestPatternsAgreeWithGit(t *testing.T) {
	names := []string{"a", "b", "ab", "a/b", "a/ab", "a/x/b", "foo/bar", "foobar", "foo/x/bar", "foox/bar",
		"a-b", "a]", "a^b", "-", "]", "^", "#a", "!a", "a b", "a", "A", "\xef\xbb\xbfa", "é", "a/foo", "a/foox", "a/x/foo"}
	if runtime.GOOS != "windows" {
		names = append(names, "a ", "a  ", "a\r", `a\`, `\`, `a\b`, "*", "a*", "**", "[a", "a\t", "\t", "a\n")
	}
	paths := map[string]bool{}
	for _, name := range names {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			paths[dir] = true
		}
		if _, ok := paths[name]; !ok {
			paths[name] = false
		}
	}
	var cases []gitCase
	for _, p := range []string{
		"a", "/a", "a/", "/a/", "a/b", "/a/b", "a//b", "//a", "a//", "/", "//", "!", "!!a", "\\!a", "#a", "\\#a", "! a",
		"a ", "a  ", "a\\ ", "a\\  ", "a\\ \\ ", " a", "a \r", "a\r", "a\\\r", "a\r\r", "\t", "a\t", "\ufeffa",
		"*", "**", "***", "/*", "/**", "**/", "/**/", "*/", "*/b", "**/b", "***/b", "a/*", "a/**", "a/***", "a/**/b", "a/***/b", "a/**/**/b", "a/*/b",
		"foo**/bar", "foo**", "a/foo**", "a/fo**o", "foo*/**/bar", "?oo**/bar", "f**/bar", "**foo/bar", "**/foo**", "a**b", "/a**", "\\a**/b",
		"**\\/b", "a/**\\/b", "a\\/b", "a/\\**", "a\\**", "**/**", "/**/b", "**/*/b", "*/**/b", "a/**/",
		"?", "??", "a?b", "a/?", "[a]", "[ab]", "[!a]", "[^a]", "[]]", "[!]]", "[]a]", "[a-]", "[-a]", "a[-]b", "[a-b-z]", "[z-a]", "[a-", "[a", "[", "[]", "[!", "[!]",
		"a[/]b", "a[!x]b", "a[^/]b", "[\\a]", "[a\\-b]", "[\\a-\\b]", "[\\]]", "[\\", "[[:alpha:]]", "[![:alpha:]]", "[[:alpha:]-z]", "[[:alpha:", "[[:alpha:]", "[[:nope:]]", "[[:]", "[[::]]", "[[:a]", "[:a]", "[[a]",
		"\\a", "\\*", "a\\*", "\\", "a\\", "\\\\", "a\\\\", "*\\", "é", "?", "??", "[é]", "A", "*b", "*a*b", "a*",
		"a\n!a", "a/\n!a/b", "*\n!*/\n!b", "/*\n!/foo\n/foo/*\n!/foo/bar", "*\n!/a", "b\n!a/\n",
	} {
		cases = append(cases, gitCase{ignore: map[string][]string{"": {p}}, paths: paths})
	}
	askAll(t, cases)
}
