//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// TryLock takes the exclusive lock of f if it is free, and reports whether it did. Closing f releases the
// lock, and so does the end of the process.
func TryLock(f *os.File) (bool, error) {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		err = &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return err == nil, err
}

// SyncDir syncs the entries of a directory to disk.
func SyncDir(d *os.File) error { return d.Sync() }
