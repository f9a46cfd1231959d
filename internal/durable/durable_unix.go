//go:build unix

package durable

import (
	"errors"
	"os"
	"syscall"
)

// TryLock takes the exclusive lock of f if nobody has it. It ends with the
// descriptor, so also with the process.
func TryLock(f *os.File) (bool, error) {
	err := control(f, func(fd uintptr) error {
		for {
			if err := syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB); err != syscall.EINTR {
				return err
			}
		}
	})
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		err = &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return err == nil, err
}

// SyncDir makes the entries of a directory durable.
func SyncDir(d *os.File) error { return d.Sync() }

func control(f *os.File, do func(fd uintptr) error) error {
	c, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var done error
	if err := c.Control(func(fd uintptr) { done = do(fd) }); err != nil {
		return err
	}
	return done
}
