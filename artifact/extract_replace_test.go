package artifact

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"lukechampine.com/blake3"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestReplaceInTwo tests the method of systems that cannot exchange directories.
func TestReplaceInTwo(t *testing.T) {
	at := t.TempDir()
	newDir, dir, old := filepath.Join(at, "fresh"), filepath.Join(at, "dir"), filepath.Join(at, "old")
	holds := func(dir, want string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"1", "2"} {
		must(t, os.MkdirAll(filepath.Join(newDir, name), 0o755))
		must(t, replaceInTwo(newDir, dir, old))
		holds(dir, name)
	}
	holds(old, "1")
	must(t, os.RemoveAll(old))
	if err := replaceInTwo(newDir, dir, old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without a new directory: %v", err)
	}
	holds(dir, "2")
	must(t, os.Mkdir(old, 0o755))
	inside := filepath.Join(old, "dir") // content of old cannot be moved back here
	if err := replaceInTwo(newDir, inside, old); err == nil || !strings.Contains(err.Error(), "it is in "+old) {
		t.Errorf("error %v, want one that names %s", err, old)
	}
}

// TestExtractKeepsOldContent has another process create the directory while it is missing: the earlier content
// must survive, also the next extraction.
func TestExtractKeepsOldContent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	old := filepath.Join(extractionDir(dir), oldTree)
	for _, name := range []string{filepath.Join(old, "mine"), filepath.Join(dir, "theirs")} {
		must(t, os.MkdirAll(name, 0o755))
	}
	var refused *RefusedError
	if err := Extract(t.Context(), fstest.MapFS{}, dir); !errors.As(err, &refused) {
		t.Errorf("error %v, want a RefusedError", err)
	}
	if _, err := os.Stat(filepath.Join(old, "mine")); err != nil {
		t.Error(err)
	}
}

// TestRecoverInterrupted simulates extractions that were killed at steps at which the command cannot be killed
// reliably: the next extraction finds either the old content or the new.
func TestRecoverInterrupted(t *testing.T) {
	first, second := fstest.MapFS{"a": {Data: []byte("1")}}, fstest.MapFS{"b": {Data: []byte("2")}}
	for name, kill := range map[string]func(t *testing.T, w *extraction){
		"writing":   func(t *testing.T, w *extraction) {},
		"recorded":  func(t *testing.T, w *extraction) { record(t, w) },
		"exchanged": func(t *testing.T, w *extraction) { record(t, w); exchangeTrees(t, w) },
		"moved away": func(t *testing.T, w *extraction) {
			record(t, w)
			move(t, w.dir, w.path(oldTree))
		},
		"moved in": func(t *testing.T, w *extraction) {
			record(t, w)
			move(t, w.dir, w.path(oldTree))
			move(t, w.path(newTree), w.dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "out")
			must(t, Extract(t.Context(), first, dir))
			w, err := openExtraction(t.Context(), dir)
			must(t, err)
			if _, err := writeTree(t.Context(), second, w.path(newTree)); err != nil {
				t.Fatal(err)
			}
			kill(t, w)
			must(t, w.lock.Close())
			must(t, Extract(t.Context(), first, dir))
			left, err := os.ReadDir(extractionDir(dir))
			if err != nil || len(left) != 2 {
				t.Errorf("left beside it: %v, %v", left, err)
			}
		})
	}
}

// TestEarlierRecord checks directories whose record is in the older format.
func TestEarlierRecord(t *testing.T) {
	tree := fstest.MapFS{"d/\x01": {Data: []byte("1")}, "run": {Data: []byte("2"), Mode: 0o755}}
	lines := fmt.Sprintf("{\"name\":\"ZA==\",\"dir\":true}\n{\"name\":\"ZC8B\",\"size\":1,\"modified\":7,\"blake3\":%q}\n{\"name\":\"cnVu\",\"exec\":true,\"size\":1,\"modified\":7,\"blake3\":%q}\n",
		sum64("1"), sum64("2"))
	for name, test := range map[string]struct {
		record string
		why    string
	}{
		"one tree":         {lines, ""},
		"the later of two": {"{\"name\":\"YQ==\",\"size\":1,\"blake3\":\"AA==\"}\n{}\n" + lines, ""},
		"after nothing":    {"{}\n" + lines, ""},
		"the first of two": {lines + "{}\n", ""},
		"another content":  {strings.Replace(lines, sum64("1"), sum64("3"), 1), `"d/\x01" in it was changed`},
		"not executable":   {strings.Replace(lines, `"exec":true,`, "", 1), `"run" in it was changed`},
		"cut off":          {lines[:len(lines)-9], "cannot be read"},
		"other types":      {"{\"name\":{}}", "cannot be read"},
	} {
		dir := filepath.Join(t.TempDir(), "out")
		must(t, Extract(t.Context(), tree, dir))
		must(t, os.WriteFile(filepath.Join(extractionDir(dir), recordFile), []byte(test.record), 0o600))
		err := Extract(t.Context(), tree, dir)
		refused, _ := errors.AsType[*RefusedError](err)
		if test.why == "" && err != nil || test.why != "" && (refused == nil || !strings.Contains(refused.Why, test.why)) {
			t.Errorf("%s: %v, want %q", name, err, test.why)
		}
	}
}

func sum64(content string) string {
	sum := blake3.Sum256([]byte(content))
	return base64.StdEncoding.EncodeToString(sum[:])
}

// record writes the record for the second content of TestRecoverInterrupted.
func record(t *testing.T, w *extraction) {
	t.Helper()
	before, _, err := matchRecord(t.Context(), w.dir)
	if err != nil || before == nil {
		t.Fatal(before, err)
	}
	must(t, w.record(before, listing{`"b"`: fmt.Sprintf("-rw-r--r-- %x", blake3.Sum256([]byte("2")))}))
}

func exchangeTrees(t *testing.T, w *extraction) {
	t.Helper()
	between := w.path("between")
	move(t, w.dir, between)
	move(t, w.path(newTree), w.dir)
	move(t, between, w.path(newTree))
}

func move(t *testing.T, from, to string) {
	t.Helper()
	must(t, os.Rename(from, to))
}
