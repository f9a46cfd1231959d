//go:build unix

package durable

import (
	"errors"
	"syscall"
)

// NoSpace reports whether err is a write that failed because the volume, or the
// share of it that the user may have, is full.
func NoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Volume returns how many bytes the volume of a directory holds in all, and how many
// are free for this user.
func Volume(dir string) (size, free int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}
