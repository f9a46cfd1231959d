// Package result is what a contestant says of itself: the memory that the
// system tells of a process that ended is at least that of the one that started it.
package result

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A Result is what a contestant needed.
type Result struct {
	Took     time.Duration // without the start of the process
	Peak     int64         // bytes of memory, 0 when unknown
	Versions int           // that it found
}

// Write writes a result, with the peak so far, to the working directory.
func Write(took time.Duration, versions int) error {
	return os.WriteFile("result", fmt.Appendf(nil, "%d %d %d\n", took, peak(), versions), 0o644)
}

// Read reads what was written to a directory.
func Read(dir string) (r Result, err error) {
	text, err := os.ReadFile(dir + "/result")
	if err == nil {
		_, err = fmt.Sscan(string(text), &r.Took, &r.Peak, &r.Versions)
	}
	return r, err
}

// peak returns the highest memory of this process, which Linux tells.
func peak() (kb int64) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	if _, rest, ok := strings.Cut(string(text), "VmHWM:"); ok {
		fmt.Sscan(rest, &kb)
	}
	return kb << 10
}
