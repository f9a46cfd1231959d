package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// lines formats changes as a user would.
func lines(t *testing.T, before, after fs.FS) []string {
	t.Helper()
	var list []string
	for c, err := range artifact.Diff(t.Context(), before, after) {
		must(t, err)
		line := fmt.Sprintf("%s %v:%d %v:%d", c.Path, c.Old.Mode, c.Old.Size, c.New.Mode, c.New.Size)
		if c.Content {
			line += " content"
		}
		list = append(list, line)
	}
	return list
}

func plain(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text), Mode: 0o600} }

func TestDiff(t *testing.T) {
	program := &fstest.MapFile{Data: []byte("a"), Mode: 0o711}
	large := strings.Repeat("x", 200<<10)
	for name, c := range map[string]struct {
		before, after fs.FS
		want          []string
	}{
		"nothing":                    {fstest.MapFS{}, fstest.MapFS{}, nil},
		"equal":                      {golden(), golden(), nil},
		"other bits of a mode":       {fstest.MapFS{"a": plain("a")}, fstest.MapFS{"a": {Data: []byte("a"), Mode: 0o644 | fs.ModeSetuid}}, nil},
		"links":                      {fstest.MapFS{"a": {Mode: fs.ModeSymlink}}, fstest.MapFS{"b": {Mode: fs.ModeDevice}}, nil},
		"content of one size":        {fstest.MapFS{"d/a": plain("a")}, fstest.MapFS{"d/a": plain("b")}, []string{"d/a -rw-r--r--:1 -rw-r--r--:1 content"}},
		"content of another size":    {fstest.MapFS{"a": plain("a")}, fstest.MapFS{"a": plain("ab")}, []string{"a -rw-r--r--:1 -rw-r--r--:2 content"}},
		"the last byte":              {fstest.MapFS{"a": plain(large + "a")}, fstest.MapFS{"a": plain(large + "b")}, []string{"a -rw-r--r--:204801 -rw-r--r--:204801 content"}},
		"executable":                 {fstest.MapFS{"a": plain("a")}, fstest.MapFS{"a": program}, []string{"a -rw-r--r--:1 -rwxr-xr-x:1"}},
		"executable and the content": {fstest.MapFS{"a": plain("b")}, fstest.MapFS{"a": program}, []string{"a -rw-r--r--:1 -rwxr-xr-x:1 content"}},
		"a directory and what it holds": {fstest.MapFS{"a": plain("a")}, fstest.MapFS{"a": plain("a"), "b/c/d": plain("")},
			[]string{"b ----------:0 drwxr-xr-x:0", "b/c ----------:0 drwxr-xr-x:0", "b/c/d ----------:0 -rw-r--r--:0"}},
		"a directory becomes a file": {fstest.MapFS{"a/b": plain("b")}, fstest.MapFS{"a": plain("")},
			[]string{"a drwxr-xr-x:0 -rw-r--r--:0", "a/b -rw-r--r--:1 ----------:0"}},
		"a link becomes a file": {fstest.MapFS{"a": {Mode: fs.ModeSymlink}}, fstest.MapFS{"a": plain("")}, []string{"a ----------:0 -rw-r--r--:0"}},
		"names in the order of an archive": {fstest.MapFS{"a-b": plain(""), "a/b": plain(""), "c": plain("")}, fstest.MapFS{"b": plain("")},
			[]string{"a drwxr-xr-x:0 ----------:0", "a/b -rw-r--r--:0 ----------:0", "a-b -rw-r--r--:0 ----------:0", "b ----------:0 -rw-r--r--:0", "c -rw-r--r--:0 ----------:0"}},
		"a directory that is omitted": {omittingFS{fstest.MapFS{"bin/a": plain("")}, "bin"}, fstest.MapFS{"bin/a": plain("")}, []string{"bin ----------:0 drwxr-xr-x:0"}},
	} {
		t.Run(name, func(t *testing.T) {
			testenv.Equal(t, lines(t, c.before, c.after), c.want, "changes")
			if back := lines(t, c.after, c.before); len(back) != len(c.want) {
				t.Errorf("the other way round it is %q", back)
			}
		})
	}
}

// A faultyFS tree fails to open, to read or to list the entry at one path.
type faultyFS struct {
	fstest.MapFS
	open, read, list string
}

var errBroken = errors.New("broken")

func (b faultyFS) Open(name string) (fs.File, error) {
	if name == b.open {
		return nil, errBroken
	}
	f, err := b.MapFS.Open(name)
	if name == b.read {
		f = unreadableFile{f}
	}
	return f, err
}

func (b faultyFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if name == b.list {
		return nil, errBroken
	}
	return b.MapFS.ReadDir(name)
}

// An unreadableFile cannot be read.
type unreadableFile struct{ fs.File }

func (unreadableFile) Read([]byte) (int, error) { return 0, errBroken }

func TestDiffErrors(t *testing.T) {
	tree := fstest.MapFS{"a": plain("a"), "d/b": plain("b")}
	cause := errors.New("enough of it")
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	for name, c := range map[string]struct {
		ctx   context.Context
		after fs.FS
		path  string
		want  error
	}{
		"the root cannot be listed": {t.Context(), faultyFS{MapFS: tree, list: "."}, `"."`, errBroken},
		"a directory cannot be":     {t.Context(), faultyFS{MapFS: tree, list: "d"}, `"d"`, errBroken},
		"a file cannot be opened":   {t.Context(), faultyFS{MapFS: tree, open: "a"}, `"a"`, errBroken},
		"a file cannot be read":     {t.Context(), faultyFS{MapFS: tree, read: "d/b"}, `"d/b"`, errBroken},
		"the context has ended":     {ended, tree, `"a"`, cause},
	} {
		t.Run(name, func(t *testing.T) {
			var last error
			for _, err := range artifact.Diff(c.ctx, tree, c.after) {
				if last != nil {
					t.Fatal("the sequence goes on after an error")
				}
				last = err
			}
			if !errors.Is(last, c.want) || !strings.HasPrefix(last.Error(), "compare: "+c.path) {
				t.Errorf("got %v", last)
			}
		})
	}
}

func TestDiffStops(t *testing.T) {
	n := 0
	for range artifact.Diff(t.Context(), fstest.MapFS{}, fstest.MapFS{"a/b": plain(""), "c": plain("")}) {
		if n++; n == 2 {
			break
		}
	}
	if n != 2 {
		t.Errorf("%d changes", n)
	}
}
