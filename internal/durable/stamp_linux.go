package durable

import (
	"io/fs"
	"syscall"
)

func (s *Stamp) setSystemFields(info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.device, s.number = uint64(st.Dev), st.Ino
		s.changed = st.Ctim.Nano()
	}
}
