// Package durable provides file operations that package os lacks: locks that end with the process,
// stamps that detect changes of files, atomic replacement of files, and directory entries that
// survive a crash.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
)

// Replace atomically replaces the content of a file, whose mode becomes 0600. Readers find either the old
// content or the new, even after a crash. Only one process may call it for a file at a time.
func Replace(file string, data []byte) error {
	root, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return err
	}
	defer root.Close()
	return ReplaceIn(root, filepath.Base(file), data)
}

// ReplaceIn is like [Replace] for a file below root. It creates missing directories.
func ReplaceIn(root *os.Root, name string, data []byte) error {
	temp := TempName(name)
	root.Remove(temp) // left by a killed process
	var f *os.File
	err := CreateIn(root, path.Dir(name), func() (err error) {
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

// CreateIn calls do, which creates an entry in a directory below root. If the directory is missing, CreateIn
// creates it and calls do again. It copes with another process that removes the directory because it is empty.
func CreateIn(root *os.Root, dir string, do func() error) (err error) {
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

// TempName returns the name of the temporary file that [ReplaceIn] writes. It is always the same for a file,
// so that crashes leave at most one.
func TempName(name string) string { return path.Join(path.Dir(name), "."+path.Base(name)) }

// SyncUp syncs the entries of a directory below root, and of all its parent directories up to root, to disk.
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

// SyncPath syncs the entries of the directory at a path to disk.
func SyncPath(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(SyncDir(d), d.Close())
}
