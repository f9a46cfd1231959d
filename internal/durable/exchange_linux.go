package durable

import (
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

// renameat2 is the number of the system call, which package syscall lacks;
// zero where it is not known.
var renameat2 = map[string]uintptr{"amd64": 316, "arm64": 276}[runtime.GOARCH]

const (
	currentDir     = ^uintptr(99) // AT_FDCWD, -100
	renameExchange = 2            // RENAME_EXCHANGE
)

// Exchange makes two existing directories change places at once. The error
// wraps [errors.ErrUnsupported] where the kernel or the file system cannot.
func Exchange(a, b string) error {
	if renameat2 == 0 {
		return syscall.ENOSYS
	}
	from, err := syscall.BytePtrFromString(a)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(b)
	if err != nil {
		return err
	}
	_, _, failed := syscall.Syscall6(renameat2, currentDir, uintptr(unsafe.Pointer(from)), currentDir, uintptr(unsafe.Pointer(to)), renameExchange, 0)
	if failed != 0 {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: failed}
	}
	return nil
}
