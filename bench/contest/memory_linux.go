package contest

import (
	"os"
	"syscall"
)

// maxRSS returns the peak memory in bytes of the largest process among an ended process and its
// descendants.
func maxRSS(s *os.ProcessState) int64 { return s.SysUsage().(*syscall.Rusage).Maxrss << 10 }
