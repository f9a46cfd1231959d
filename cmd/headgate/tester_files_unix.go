//go:build unix

package main

import (
	"os"
	"strconv"
	"syscall"
)

// keepFiles keeps open files that this process was started with from the
// programs that it starts.
func keepFiles() {
	files, _ := os.ReadDir("/dev/fd")
	for _, file := range files {
		if fd, err := strconv.Atoi(file.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}
