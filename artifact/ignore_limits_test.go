package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

func TestCompileLimits(t *testing.T) {
	many := tree()
	for i := range 12 {
		many[fmt.Sprintf("d%02d/.sourceignore", i)] = &fstest.MapFile{Data: []byte(strings.Repeat("#\n", 1<<19-1))}
	}
	for _, test := range []struct {
		name   string
		ignore artifact.Ignore
		tree   fs.FS
		want   string
	}{
		{"a large file", artifact.Ignore{}, tree("a/.sourceignore=" + strings.Repeat("#", 8<<20+1)),
			"a/.sourceignore: the ignore files up to here hold more than 8388608 bytes: shorten them"},
		{"an endless file", artifact.Ignore{}, endlessTree{tree("a/.sourceignore")},
			"a/.sourceignore: the ignore files up to here hold more than 8388608 bytes: shorten them"},
		{"a large text", artifact.Ignore{Extra: strings.Repeat("#", 8<<20+1)}, nil,
			"spec.ignore: the ignore files up to here hold more than 8388608 bytes: shorten them"},
		{"many large files", artifact.Ignore{}, many,
			"d08/.sourceignore: the ignore files up to here hold more than 8388608 bytes: shorten them"},
		{"many patterns", artifact.Ignore{Extra: strings.Repeat("a\n", 100_001)}, nil,
			"spec.ignore:100001: more than 100000 patterns: use fewer"},
		{"a long line", artifact.Ignore{}, tree("a/.sourceignore=b\n" + strings.Repeat("a", 1<<16)),
			"a/.sourceignore:2: a line of more than 65536 bytes: shorten it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.ignore.File = ".sourceignore"
			if _, err := test.ignore.Compile(t.Context(), test.tree); !errors.Is(err, artifact.ErrIgnore) || err == nil || err.Error() != "ignore rules: "+test.want {
				t.Errorf("got %v, want … %s", err, test.want)
			}
		})
	}
}

func TestCompileReportsUnreadableTrees(t *testing.T) {
	const name = "a/.sourceignore"
	for defect, tree := range map[string]fs.FS{
		"directory": faultyFS{MapFS: tree(name), list: "a"}, "open": faultyFS{MapFS: tree(name), open: name}, "read": faultyFS{MapFS: tree(name), read: name},
	} {
		if err := second(artifact.DefaultIgnore().Compile(t.Context(), tree)); !errors.Is(err, errBroken) {
			t.Errorf("%s: got %v", defect, err)
		}
	}
}

// endlessTree is a tree whose ignore files never end.
type endlessTree struct{ fstest.MapFS }

func (e endlessTree) Open(name string) (fs.File, error) {
	f, err := e.MapFS.Open(name)
	if err == nil && filepath.Base(name) == ".sourceignore" {
		return endlessIgnore{f}, nil
	}
	return f, err
}

type endlessIgnore struct{ fs.File }

func (endlessIgnore) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '\n'
	}
	return len(p), nil
}

func TestIgnoreFilesThatAreNone(t *testing.T) {
	i := artifact.DefaultIgnore()
	link := fstest.MapFS{
		"secret":              {Data: []byte("*")},
		".sourceignore":       {Mode: fs.ModeSymlink, Data: []byte("secret")},
		"dir/.sourceignore/a": {},
		"dev/.sourceignore":   {Mode: fs.ModeDevice, Data: []byte("*")},
		"a.png":               {},
	}
	r := compile(t, i, link)
	if rule, ignored := matched(t, r, "secret"); ignored {
		t.Errorf("ignored by %+v", rule)
	}
	if rule, ignored := matched(t, r, "a.png"); !ignored || rule.Source != "default" {
		t.Errorf("the defaults do not apply: %+v", rule)
	}
}

// TestTopStandsForAFile uses rules as a bucket does: with keys and without a tree.
func TestTopStandsForAFile(t *testing.T) {
	r := compile(t, artifact.Ignore{File: ".sourceignore", Top: "*.md\nlogs/\n", Extra: "!README.md\n"}, nil)
	for name, want := range map[string]string{
		"a.md": "true .sourceignore:1", "x/README.md": "false spec.ignore:1", "logs/2026/a": "true .sourceignore:2", "logs": "false :0", ".git/a": "false :0",
	} {
		rule, ignored := matched(t, r, name)
		testenv.Equal(t, fmt.Sprintf("%v %s:%d", ignored, rule.Source, rule.Line), want, name)
	}
	if rule, _ := matched(t, compile(t, artifact.Ignore{Top: "a"}, nil), "a"); rule.Source != "ignore file" {
		t.Errorf("got source %q", rule.Source)
	}
}

func matched(t testing.TB, r *artifact.Rules, name string) (artifact.Rule, bool) {
	t.Helper()
	rule, ignored, err := r.Match(t.Context(), name, false)
	must(t, err)
	return rule, ignored
}

// TestMatchBacktracks has patterns and names for which backtracking matchers need exponential time.
func TestMatchBacktracks(t *testing.T) {
	rules := compile(t, artifact.Ignore{Extra: strings.Repeat("*a", 200) + "b\n" + strings.Repeat("**/a/", 200) + "b\n"}, nil)
	if _, ignored := matched(t, rules, strings.Repeat("a", 4096)); ignored {
		t.Error("matched")
	}
	if _, ignored := matched(t, rules, strings.Repeat("a/", 2048)+"c"); ignored {
		t.Error("matched")
	}
	if _, ignored := matched(t, rules, strings.Repeat("a/", 200)+"b"); !ignored {
		t.Error("did not match")
	}
}

// TestMatchingStops ends a context before rules are read and while they are applied.
func TestMatchingStops(t *testing.T) {
	cause := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	files := tree("a/b", "c")
	rules := compile(t, artifact.Ignore{Extra: strings.Repeat("x\n", 2000)}, files)
	view := rules.View(ctx, files)
	cancel(cause)
	if _, _, err := rules.Match(ctx, "a/b", false); !errors.Is(err, cause) {
		t.Errorf("match: %v", err)
	}
	for op, err := range map[string]error{
		"readdir": second(fs.ReadDir(view, ".")), "open": second(view.Open("a/b")), "stat": second(fs.Stat(view, "c")),
		"compile": second(artifact.DefaultIgnore().Compile(ctx, files)),
	} {
		if !errors.Is(err, cause) {
			t.Errorf("%s: %v", op, err)
		}
	}
}

// TestViewPrunes checks that a view never lists directories that it cannot show.
func TestViewPrunes(t *testing.T) {
	files := listing{tree("vendor/a/b/c", "vendor/keep/x/y", "src/a", "node_modules/x/y"), new([]string)}
	view := compile(t, artifact.Ignore{Extra: "/vendor\nnode_modules/\n!/vendor/keep/x\n"}, nil).View(t.Context(), files)
	kept(t, view)
	if want := []string{".", "src", "vendor", "vendor/keep", "vendor/keep/x"}; !slices.Equal(*files.listed, want) {
		t.Errorf("listed %q, want %q", *files.listed, want)
	}
}

// listing records which directories are listed.
type listing struct {
	fs.FS
	listed *[]string
}

func (l listing) ReadDir(name string) ([]fs.DirEntry, error) {
	*l.listed = append(*l.listed, name)
	return fs.ReadDir(l.FS, name)
}
