//go:build unix

package durable

import (
	"errors"
	"syscall"
)

// IsNoSpace reports whether err means that the volume, or the quota of the user on it, is full.
func IsNoSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Volume returns the size of the volume of a directory, and the space that is free for this user, in bytes.
func Volume(dir string) (size, free int64, err error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return 0, 0, err
	}
	return int64(st.Blocks) * int64(st.Bsize), int64(st.Bavail) * int64(st.Bsize), nil
}
