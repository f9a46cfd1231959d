package bolt

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/headgate-io/headgate/internal/durable"
)

// MkdirAll makes a directory of mode 0700, with those that it is in, unless it
// is there. A crash does not take back what it made, where the directory above
// may be read.
func MkdirAll(dir string) error {
	dir = filepath.Clean(dir)
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	switch info, err := os.Stat(dir); {
	case err != nil:
		return err
	case !info.IsDir():
		return &fs.PathError{Op: "mkdir", Path: dir, Err: errors.New("it is no directory")}
	}
	if err := durable.SyncPath(parent); !errors.Is(err, fs.ErrPermission) {
		return err
	}
	return nil
}
