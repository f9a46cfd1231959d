package contest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// maxRSS returns the peak memory, in bytes, of the largest process among one that ended and its descendants.
func maxRSS(s *os.ProcessState) int64 { return s.SysUsage().(*syscall.Rusage).Maxrss << 10 }

// watchTree returns the highest sum, in bytes, of the memory of a process and
// its descendants that it saw, looking every 5 ms until done is closed. Memory
// that processes share counts once.
func watchTree(pid int, done <-chan struct{}) (peak int64) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return peak
		case <-tick.C:
			peak = max(peak, treeMemory(pid))
		}
	}
}

func treeMemory(pid int) int64 {
	sum := proportional(pid)
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return sum
	}
	for _, path := range lists {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // the process has ended
		}
		for child := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(child); err == nil {
				sum += treeMemory(n)
			}
		}
	}
	return sum
}

// proportional returns the memory of a process, with what it shares divided among the sharers.
func proportional(pid int) int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			return kb << 10
		}
	}
	return 0
}
