package durable

import (
	"os"

	"golang.org/x/sys/windows"
)

const lockOffset = 0x7fffffff // high half: beyond any content, because a lock makes its range unreadable

// TryLock takes the exclusive lock of f if it is free, and reports whether it did. Closing f releases the
// lock, and so does the end of the process.
func TryLock(f *os.File) (bool, error) {
	at := windows.Overlapped{OffsetHigh: lockOffset}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	switch err {
	case nil:
		return true, nil
	case windows.ERROR_LOCK_VIOLATION, windows.ERROR_IO_PENDING:
		return false, nil
	}
	return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
}

// SyncDir does nothing: NTFS journals directory entries itself, and a handle
// of a directory cannot be flushed.
func SyncDir(*os.File) error { return nil }
