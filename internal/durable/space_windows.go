package durable

import (
	"errors"

	"golang.org/x/sys/windows"
)

// IsNoSpace reports whether err means that the volume, or the quota of the user on it, is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_HANDLE_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_DISK_QUOTA_EXCEEDED)
}

// Volume returns the size of the volume of a directory, and the space that is free for this user, in bytes.
func Volume(dir string) (size, free int64, err error) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var available, total, all uint64
	err = windows.GetDiskFreeSpaceEx(name, &available, &total, &all)
	return int64(total), int64(available), err
}
