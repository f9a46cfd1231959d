package bundle

import (
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"helm.sh/helm/v3/pkg/ignore"
)

// An info is what the package manager asks about.
type info struct {
	fs.FileInfo
	dir bool
}

func (i info) IsDir() bool { return i.dir }

// sameVerdicts fails unless the package manager decides as we do about names.
func sameVerdicts(t *testing.T, text string, names []string) {
	t.Helper()
	theirs, errTheirs := ignore.Parse(strings.NewReader(text))
	ours, err := parseRules(trimBOM([]byte(text)))
	if errTheirs == nil && errors.Is(err, path.ErrBadPattern) {
		return // theirs does not look at a pattern behind its second *
	}
	if (err != nil) != (errTheirs != nil) {
		t.Fatalf("%q: %v, theirs: %v", text, err, errTheirs)
	}
	if err != nil {
		return
	}
	for _, name := range names {
		for _, dir := range []bool{false, true} {
			got, want := ignores(ours, name, dir), theirs.Ignore(name, info{dir: dir})
			if got != want {
				t.Fatalf("%q ignores %q (directory: %v): %v, theirs: %v", text, name, dir, got, want)
			}
		}
	}
}

var ignoredNames = []string{
	"a", "b", "a.txt", "dir", "dir/a", "dir/a.txt", "dir/b/a.txt", "templates/.x", "templates/x", "templates/a/.x", ".x", ".git", "!a", "#a", "ä/é", "a b",
	"Chart.yaml", "charts/sub/Chart.yaml", "charts/sub/templates/.x", "[a]", "a\\b",
}

func TestIgnorePatternsAreThoseOfThePackageManager(t *testing.T) {
	for _, text := range []string{
		"", "\n\n", "# a\n", "#a", " a \n", "a", "a\r\nb\r\n", "\xef\xbb\xbfa", "*", "?", ".*", ".?*", "a/", "dir/", "/dir", "/dir/", "dir/*", "dir/*/*", "/*", "*/", "*/a", "./a",
		"!a", "!dir/", "!*", "!", "!!a", "!/a", "!dir/a", "a\n!a", "!a\na", "*.txt\n!a.txt", "!Chart.yaml", "Chart.yaml", "/", "//", "!/", "\\#a", "\\!a",
		"**", "a/**", "a**b", "[", "[a", "[a]", "[^a]", "[!a]", "\\", "a\\", "[]a]", "[a-", "[a-]", "[a-c]", "\xff", "templates/.?*", "é", "*é", "a b", "a\tb", "a #b",
	} {
		sameVerdicts(t, text, ignoredNames)
	}
}

func TestIgnorePatternsOfAnyKind(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	parts := []string{"a", "b", "dir", "*", "?", "/", ".", "!", "[ab]", "[^a]", "txt", "#", " ", "\\", "[", "-", "é"}
	pick := func(from []string, most int) string {
		var b strings.Builder
		for range 1 + random.IntN(most) {
			b.WriteString(from[random.IntN(len(from))])
		}
		return b.String()
	}
	for range 5_000 {
		var lines, names []string
		for range 1 + random.IntN(4) {
			line := pick(parts, 6)
			if strings.Contains(line, "//") || strings.Contains(line, "!//") {
				continue // each of their matches takes one more slash away
			}
			lines = append(lines, line)
		}
		for range 10 {
			if name := path.Clean(pick([]string{"a", "b", "dir", "/", ".", "x", "é", ".txt"}, 6)); fs.ValidPath(name) && name != "." {
				names = append(names, name)
			}
		}
		sameVerdicts(t, strings.Join(lines, "\n"), names)
	}
}

func TestIgnoreFilesThatAreTooLarge(t *testing.T) {
	for name, text := range map[string]string{
		"bytes":    strings.Repeat("# comment\n", ignoreBytes/10+1),
		"patterns": strings.Repeat("a\n", ignoreRules+1),
	} {
		_, err := OpenDir(fstest.MapFS{
			"Chart.yaml":  {Data: []byte("apiVersion: v2\nname: a\nversion: 1.0.0\n")},
			".helmignore": {Data: []byte(text)},
		}, ".")
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestADeepTreeWithManyPatterns would take minutes if a name cost as much as
// all its parents do.
func TestADeepTreeWithManyPatterns(t *testing.T) {
	const levels = 2000
	tree := fstest.MapFS{
		"Chart.yaml":                        {Data: []byte("apiVersion: v2\nname: a\nversion: 1.0.0\n")},
		".helmignore":                       {Data: []byte(strings.Repeat("*x/y\n", ignoreRules))},
		strings.Repeat("a/", levels) + "in": {},
	}
	c, err := OpenDir(tree, ".")
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = fs.WalkDir(c.Files, "a", func(_ string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files++
		}
		return err
	})
	if err != nil || files != 1 {
		t.Errorf("%d files, %v", files, err)
	}
}

func TestViewIsAFileSystem(t *testing.T) {
	tree := fstest.MapFS{"a/b": {}, "a/c.md": {}, "d/e": {}, "f": {Data: []byte("f")}, "templates/.x": {}}
	rules, err := parseRules([]byte("*.md\nd/\ntemplates/.?*"))
	if err != nil {
		t.Fatal(err)
	}
	v, err := newView(tree, rules)
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(v, "a/b", "f", "templates"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"a/c.md", "d", "d/e", "templates/.x", "none"} {
		if _, err := fs.Stat(v, name); err == nil {
			t.Errorf("%s is there", name)
		}
		if _, err := fs.ReadFile(v, name); err == nil {
			t.Errorf("%s can be read", name)
		}
	}
	if err := fstest.TestFS(memory{"a": []byte("1"), "b": nil}, "a", "b"); err != nil {
		t.Error(err)
	}
}

// An idle tree has directories that give nothing when they are asked for a few
// entries, and no error.
type idle struct{ fstest.MapFS }

func (t idle) Open(name string) (fs.File, error) {
	f, err := t.MapFS.Open(name)
	if d, ok := f.(fs.ReadDirFile); ok {
		return idleDir{d}, err
	}
	return f, err
}

type idleDir struct{ fs.ReadDirFile }

func (d idleDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 {
		return nil, nil
	}
	return d.ReadDirFile.ReadDir(n)
}

func TestViewDoesNotAskForEver(t *testing.T) {
	v, err := newView(idle{fstest.MapFS{"a": {}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := v.Open(".")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if entries, err := dir.(fs.ReadDirFile).ReadDir(1); len(entries) > 0 || err != io.EOF {
		t.Errorf("%v, %v", entries, err)
	}
}
