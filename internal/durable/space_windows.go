package durable

import (
	"errors"

	"golang.org/x/sys/windows"
)

// NoSpace reports whether err is a write that failed because the volume, or the
// share of it that the user may have, is full.
func NoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// Volume returns how many bytes the volume of a directory holds in all, and how many
// are free for this user.
func Volume(dir string) (size, free int64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var available, total, all uint64
	err = windows.GetDiskFreeSpaceEx(name, &available, &total, &all)
	return int64(total), int64(available), err
}
