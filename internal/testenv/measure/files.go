package measure

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// OpenFiles returns the files below a directory that the process has open, also
// those that were removed, where the system tells. What others open elsewhere
// does not count.
func OpenFiles(t testing.TB, dir string) (open []string) {
	t.Helper()
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, fd := range list {
		name, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if err == nil && strings.HasPrefix(name, dir+string(filepath.Separator)) {
			open = append(open, name)
		}
	}
	return open
}
