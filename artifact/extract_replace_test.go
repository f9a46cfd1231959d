package artifact

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
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
