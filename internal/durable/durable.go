// Package durable does with files what package os leaves to each system: locks
// that end with the process, the numbers by which systems know files, and
// directories whose entries survive a crash.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Replace makes data the content of the file path, of mode 0600: whoever reads
// it, also after a crash, finds the old content or the new. Only one process
// may do so at a time.
func Replace(path string, data []byte) error {
	dir, name := filepath.Split(path)
	temp := filepath.Join(dir, "."+name+".new")
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	if err := os.Rename(temp, path); err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return SyncPath(filepath.Clean(dir))
}

// SyncPath makes the entries of the directory at a path durable.
func SyncPath(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(SyncDir(d), d.Close())
}
