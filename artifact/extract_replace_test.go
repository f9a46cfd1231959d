package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReplaceInTwo tests the way of systems that cannot exchange directories.
func TestReplaceInTwo(t *testing.T) {
	at := t.TempDir()
	fresh, dir, old := filepath.Join(at, "fresh"), filepath.Join(at, "dir"), filepath.Join(at, "old")
	holds := func(dir, want string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(dir, want)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"1", "2"} {
		if err := os.MkdirAll(filepath.Join(fresh, name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := replaceInTwo(fresh, dir, old); err != nil {
			t.Fatal(err)
		}
		holds(dir, name)
	}
	holds(old, "1")
	if err := os.RemoveAll(old); err != nil {
		t.Fatal(err)
	}
	if err := replaceInTwo(fresh, dir, old); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without anything fresh: %v", err)
	}
	holds(dir, "2")
}

// TestStranded has somebody make the directory again in the moment without it:
// what was there before must survive.
func TestStranded(t *testing.T) {
	beside := t.TempDir()
	dir, old := filepath.Join(t.TempDir(), "dir"), filepath.Join(beside, "old")
	for _, name := range []string{filepath.Join(old, "mine"), filepath.Join(dir, "theirs")} {
		if err := os.MkdirAll(name, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := discard(beside, restore(old, dir))
	if !errors.Is(err, errStranded) || !strings.Contains(err.Error(), old) {
		t.Errorf("error %v, want one that names %s", err, old)
	}
	if _, err := os.Stat(filepath.Join(old, "mine")); err != nil {
		t.Error(err)
	}
	if err := discard(beside, nil); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(beside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
}
