//go:build unix && !linux

package durable

import (
	"io/fs"
	"syscall"
)

func (s *Stamp) setSystemFields(info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.number = uint64(st.Dev), uint64(st.Ino)
	}
}
