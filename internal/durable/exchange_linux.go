package durable

import (
	"os"

	"golang.org/x/sys/unix"
)

// Exchange atomically exchanges two existing directories. The error wraps [errors.ErrUnsupported] if the
// kernel or the file system cannot do that.
func Exchange(a, b string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		return &os.LinkError{Op: "exchange", Old: a, New: b, Err: err}
	}
	return nil
}
