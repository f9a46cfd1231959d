package job_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

func init() {
	programs["burner"] = func() int {
		for i := 0; ; i++ {
			i *= i
		}
	}
	programs["warm"] = warm
	programs["hog"] = hog
	programs["bomb"] = bomb
	programs["opener"] = opener
	programs["untraced"] = untraced
	programs["nothing"] = func() int { time.Sleep(time.Minute); return 0 }
}

// untraced runs a job without limits and one with, when the kernel allows no tracing.
func untraced() int {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the system call
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_PTRACE},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		fmt.Println(err)
	}
	_, _, failed := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if failed != 0 {
		fmt.Println(failed)
	}
	for _, limits := range []job.Limits{{Procs: 10}, {CPU: 10}} {
		fmt.Println(job.Job{Args: []string{"/bin/true"}, Limits: limits}.Run(context.Background()))
	}
	return 0
}

// warm uses 0.4 s of CPU time, and stays.
func warm() int {
	for used := (unix.Timespec{}); used.Nano() < int64(400*time.Millisecond); {
		_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &used)
	}
	time.Sleep(time.Minute)
	return 0
}

var held [][]byte

// hog uses as many MiB as MIB says, and stays.
func hog() int {
	mib, _ := strconv.Atoi(os.Getenv("MIB"))
	for range mib / 16 {
		b := make([]byte, 16<<20)
		for i := 0; i < len(b); i += 4096 {
			b[i] = 1
		}
		held = append(held, b)
	}
	time.Sleep(time.Minute)
	return len(held)
}

// bomb starts processes, up to a bound.
func bomb() int {
	self, _ := os.Executable()
	for range 100 {
		cmd := exec.Command(self)
		cmd.Env = append(os.Environ(), "PROGRAM=nothing")
		if cmd.Start() != nil {
			return 1
		}
	}
	time.Sleep(time.Minute)
	return 0
}

func opener() int {
	for range 1000 {
		f, err := os.Open("/dev/null")
		if err != nil {
			os.Stderr.WriteString(err.Error())
			return 1
		}
		defer f.Close()
	}
	return 0
}

// Each limit ends what goes beyond it, with a reason that names it.
func TestLimits(t *testing.T) {
	for name, c := range map[string]struct {
		limits job.Limits
		line   string
		want   string
	}{
		"CPU of a program":    {job.Limits{CPU: 1}, `PROGRAM=burner exec $SELF`, "CPU limit of 1s"},
		"CPU of a grandchild": {job.Limits{CPU: 1}, `PROGRAM=burner $SELF; exit $?`, "CPU limit of 1s"},
		"CPU of all":          {job.Limits{CPU: 1}, `for i in 1 2 3 4; do PROGRAM=warm $SELF & done; wait`, "killed: over its CPU limit of 1s"},
		"memory of a program": {job.Limits{Memory: 256 << 20}, `MIB=1024 PROGRAM=hog exec $SELF`, "memory limit of 268435456 bytes"},
		"memory of all":       {job.Limits{Memory: 400 << 20}, `for i in 1 2 3; do MIB=192 PROGRAM=hog $SELF & done; wait`, "killed: over its memory limit of 419430400 bytes"},
		"processes":           {job.Limits{Procs: 20}, `PROGRAM=bomb $SELF`, "killed: over its limit of 20 processes"},
		"size of a file":      {job.Limits{Size: 1 << 20}, `head -c 10000000 /dev/zero > file`, "limit of 1048576 bytes for a file"},
		"open files":          {job.Limits{Files: 64}, `PROGRAM=opener $SELF`, "limit of 64 open files"},
	} {
		t.Run(name, func(t *testing.T) {
			if raceDetector && c.limits.Memory > 0 {
				t.Skip("the race detector has memory of its own")
			}
			var out bytes.Buffer
			err := start(t, t.Context(), job.Job{Limits: c.limits, Dir: t.TempDir(), Out: &out}, c.line)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; %s", err, out.String())
			}
		})
	}
}

// Where tracing is forbidden limits are refused, and jobs without them run.
func TestLimitsNeedTracing(t *testing.T) {
	out := outside(t, 0, nil, "untraced", nil)
	if !strings.HasPrefix(out, "<nil>\nfork/exec /bin/true: operation not permitted; limits need the right to trace children: ") {
		t.Errorf("got %q", out)
	}
}

// What stays below its limits does not notice them.
func TestBelowLimits(t *testing.T) {
	var out bytes.Buffer
	limits := job.Limits{CPU: 60, Memory: 1 << 30, Files: 100, Size: 1 << 20, Procs: 50}
	err := start(t, t.Context(), job.Job{Limits: limits, Dir: t.TempDir(), Out: &out}, `echo a > file; ulimit -n; ulimit -t; cat file; exit 0`)
	if err != nil || out.String() != "100\n60\na\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
}
