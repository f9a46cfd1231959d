package bolt

import (
	"os"
	"path/filepath"
	"testing"
)

// Who gets the lock of a file that was replaced, or moved away, while it waited
// has the lock of a file that nobody else opens.
func TestReplacedFileDoesNotStand(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.db")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !stands(f, path) {
		t.Error("a file that was left alone does not stand")
	}
	if err := os.Rename(path, path+".corrupt-1"); err != nil {
		t.Skip("files that are open cannot be moved here:", err)
	}
	if stands(f, path) {
		t.Error("a file that was moved away stands")
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if stands(f, path) {
		t.Error("a file that was replaced stands")
	}
}
