package bolt_test

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/headgate-io/headgate/internal/bolt"
)

func TestMkdirAll(t *testing.T) {
	root := t.TempDir()
	deep := filepath.Join(root, "a", "b", "c")
	for _, dir := range []string{deep, deep, deep + string(filepath.Separator), filepath.Join(deep, "..", "d"), root} {
		if err := bolt.MkdirAll(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
		info, err := os.Stat(dir)
		if err != nil || !info.IsDir() || dir != root && runtime.GOOS != "windows" && info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", dir, info, err)
		}
	}
	t.Chdir(root)
	if err := bolt.MkdirAll("relative"); err != nil {
		t.Error(err)
	}
	file := filepath.Join(root, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{file, filepath.Join(file, "below")} {
		if err := bolt.MkdirAll(dir); err == nil {
			t.Errorf("%s was made", dir)
		}
	}
	if runtime.GOOS != "windows" {
		if err := os.Symlink("nowhere", filepath.Join(root, "link")); err != nil {
			t.Fatal(err)
		}
		if err := bolt.MkdirAll(filepath.Join(root, "link")); err == nil {
			t.Error("a link to nowhere was made a directory")
		}
	}
}
