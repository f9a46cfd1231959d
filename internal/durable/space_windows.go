package durable

import (
	"errors"
	"syscall"
	"unsafe"
)

var getDiskFreeSpaceEx = syscall.NewLazyDLL("kernel32.dll").NewProc("GetDiskFreeSpaceExW")

const (
	handleDiskFull    = syscall.Errno(39)   // ERROR_HANDLE_DISK_FULL
	diskFull          = syscall.Errno(112)  // ERROR_DISK_FULL
	diskQuotaExceeded = syscall.Errno(1295) // ERROR_DISK_QUOTA_EXCEEDED
)

// NoSpace reports whether err is a write that failed because the volume, or the
// share of it that the user may have, is full.
func NoSpace(err error) bool {
	return errors.Is(err, diskFull) || errors.Is(err, handleDiskFull) || errors.Is(err, diskQuotaExceeded)
}

// Volume returns how many bytes the volume of a directory holds in all, and how many
// are free for this user.
func Volume(dir string) (size, free int64, err error) {
	name, err := syscall.UTF16PtrFromString(dir)
	if err != nil {
		return 0, 0, err
	}
	var available, total, all int64
	if ok, _, err := getDiskFreeSpaceEx.Call(uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&available)), uintptr(unsafe.Pointer(&total)), uintptr(unsafe.Pointer(&all))); ok == 0 {
		return 0, 0, err
	}
	return total, available, nil
}
