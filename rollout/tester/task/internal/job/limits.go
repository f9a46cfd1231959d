package job

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Limits are those of one job. Zero is none.
//
// On Linux the kernel holds each process to CPU, Memory, Files and Size before
// it runs its first instruction, and all processes of the job together are
// looked at ten times a second: a job that uses more than CPU, Memory or Procs
// is killed. Memory is private memory: that of files is not counted, and the
// kernel counts what a process may write to, used or not. A process that ended
// counts for CPU when its parent waited for it. Elsewhere there are no limits.
type Limits struct {
	CPU    int64 // seconds of CPU time
	Memory int64 // bytes
	Files  int64 // open files of each process
	Size   int64 // bytes of a file that it writes
	Procs  int64 // processes at a time
}

// LimitsHold reports whether this system has limits.
const LimitsHold = runtime.GOOS == "linux"

// A LimitError is a job that was killed for using more than its limits.
type LimitError struct {
	Limit string // as "CPU limit of 10s"
}

func (e *LimitError) Error() string { return "killed: over its " + e.Limit }

// usage is what the processes of a job use together.
type usage struct {
	processes int // that are alive
	cpu       time.Duration
	memory    int64
}

// watched reports whether there is a limit of all processes together.
func (l Limits) watched() bool { return l.CPU > 0 || l.Memory > 0 || l.Procs > 0 }

func (l Limits) check(u usage) error {
	switch {
	case l.CPU > 0 && u.cpu > time.Duration(l.CPU)*time.Second:
		return &LimitError{l.cpu()}
	case l.Memory > 0 && u.memory > l.Memory:
		return &LimitError{l.memory()}
	case l.Procs > 0 && int64(u.processes) > l.Procs:
		return &LimitError{fmt.Sprintf("limit of %d processes", l.Procs)}
	}
	return nil
}

func (l Limits) cpu() string    { return fmt.Sprintf("CPU limit of %ds", l.CPU) }
func (l Limits) memory() string { return fmt.Sprintf("memory limit of %d bytes", l.Memory) }

// The codes that shells give for signals of the kernel.
const (
	codeCPU  = 128 + 24 // SIGXCPU
	codeSize = 128 + 25 // SIGXFSZ
)

// why says which limit a program may have failed for: by the signal, or by what
// it wrote at its end.
func (l Limits) why(state *os.ProcessState, tail string) string {
	text, code := state.String(), state.ExitCode()
	used := state.UserTime() + state.SystemTime()
	for _, c := range []struct {
		limit   int64
		applies bool
		name    string
	}{
		{l.CPU, code == codeCPU || strings.Contains(text, "CPU time") || used >= time.Duration(l.CPU)*time.Second, l.cpu()},
		{l.Size, code == codeSize || strings.Contains(text, "file size") || strings.Contains(tail, "ile too large"), fmt.Sprintf("limit of %d bytes for a file", l.Size)},
		{l.Memory, mentions(tail, "annot allocate memory", "ut of memory", "emory exhausted", "MemoryError", "bad_alloc"), l.memory()},
		{l.Files, mentions(tail, "oo many open files"), fmt.Sprintf("limit of %d open files", l.Files)},
	} {
		if c.limit > 0 && c.applies {
			return "probably for its " + c.name
		}
	}
	return ""
}

func mentions(text string, phrases ...string) bool {
	for _, phrase := range phrases {
		if strings.Contains(text, phrase) {
			return true
		}
	}
	return false
}
