// Package result passes the measurements of a contestant to the benchmark.
// Contestants measure their own memory, because the system reports for a child
// process at least the memory of its parent.
package result

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// A Result holds the measurements of a contestant.
type Result struct {
	Took     time.Duration // without the start of the process
	Peak     int64         // peak memory in bytes, 0 if unknown
	Versions int           // number of versions found
}

// Write writes a result with the peak memory so far to the working directory.
func Write(took time.Duration, versions int) error {
	return os.WriteFile("result", fmt.Appendf(nil, "%d %d %d\n", took, peak(), versions), 0o644)
}

// Read reads the result in a directory.
func Read(dir string) (r Result, err error) {
	text, err := os.ReadFile(dir + "/result")
	if err == nil {
		_, err = fmt.Sscan(string(text), &r.Took, &r.Peak, &r.Versions)
	}
	return r, err
}

// peak returns the peak memory of this process in bytes, or 0 if the system is
// not Linux.
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
