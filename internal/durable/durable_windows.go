package durable

import (
	"os"
	"syscall"
	"unsafe"
)

var lockFileEx = syscall.NewLazyDLL("kernel32.dll").NewProc("LockFileEx")

const (
	lockExclusiveNow = 0x3                 // LOCKFILE_EXCLUSIVE_LOCK | LOCKFILE_FAIL_IMMEDIATELY
	lockOffset       = 0x7fffffff          // high half: beyond any content, which a lock would make unreadable
	lockViolation    = syscall.Errno(0x21) // ERROR_LOCK_VIOLATION
)

// TryLock takes the exclusive lock of f if it is free. It ends with the
// handle, so also with the process.
func TryLock(f *os.File) (bool, error) {
	at := syscall.Overlapped{OffsetHigh: lockOffset}
	ok, _, err := lockFileEx.Call(f.Fd(), lockExclusiveNow, 0, 1, 0, uintptr(unsafe.Pointer(&at)))
	switch {
	case ok != 0:
		return true, nil
	case err == lockViolation || err == syscall.ERROR_IO_PENDING:
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// SyncDir does nothing: NTFS journals directory entries itself, and a handle
// of a directory cannot be flushed.
func SyncDir(*os.File) error { return nil }
