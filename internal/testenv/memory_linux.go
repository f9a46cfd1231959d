package testenv

import "syscall"

func roomInMemory() bool {
	const noExec = 8 // ST_NOEXEC of statfs(2)
	var st syscall.Statfs_t
	return syscall.Statfs(memoryDir, &st) == nil && st.Flags&noExec == 0 && int64(st.Bavail)*st.Bsize >= 2<<30
}
