// Package durable does with files what package os leaves to each system: locks
// that end with the process, the numbers by which systems know files, and
// directories whose entries survive a crash.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Replace makes data the content of a file, of mode 0600. A reader
// finds the old content or the new, also after a crash. Only one process may call it
// for a file at a time.
func Replace(file string, data []byte) error {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer root.Close()
	return ReplaceIn(root, filepath.Base(file), data)
}

// ReplaceIn does what [Replace] does with a file below root. It makes missing directories.
func ReplaceIn(root *os.Root, name string, data []byte) error {
	temp := Temp(name)
	root.Remove(temp) // of a process that was killed
	var f *os.File
	err := InDir(root, path.Dir(name), func() (err error) {
		f, err = root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		return err
	})
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = root.Rename(temp, name)
	}
	if err != nil {
		return errors.Join(err, root.Remove(temp))
	}
	return SyncUp(root, path.Dir(name))
}

// InDir calls do, which makes an entry of a directory below root, and makes the
// directory if it is missing, also while another process removes it because it is empty.
func InDir(root *os.Root, dir string, do func() error) (err error) {
	for range 100 {
		if err = do(); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err = root.MkdirAll(dir, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// Temp returns the name of a file while [ReplaceIn] writes it. It is always the
// same, so that a crash leaves at most one.
func Temp(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)) }

// SyncUp makes the entries of a directory below root, and of all those above it, durable.
func SyncUp(root *os.Root, dir string) error {
	for ; ; dir = path.Dir(dir) {
		d, err := root.Open(dir)
		if err != nil {
			return err
		}
		if err := errors.Join(SyncDir(d), d.Close()); err != nil || dir == "." {
			return err
		}
	}
}

// SyncPath makes the entries of the directory at a path durable.
func SyncPath(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(SyncDir(d), d.Close())
}
