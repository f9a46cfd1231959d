package task

import (
	"bytes"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts a program on a thread of its own, which ends with the program: it
// cannot gain privileges any more, and when it ends with this process the kernel
// kills the program.
func start(cmd *exec.Cmd, privileges bool) (<-chan error, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good
		if !privileges {
			_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // kernels before 3.5 have none
		}
		err := cmd.Start()
		started <- err
		if err == nil {
			exited <- cmd.Wait()
		}
	}()
	return exited, <-started
}

// members returns the processes of a session that are alive, as numbers for kill:
// that of the group of the leader, and those of others. A program such as timeout has a
// group of its own, so that signals to the group alone would miss it. Those that have
// ended and are children of this process by now are reaped; the leader has a waiter of
// its own.
func members(leader int, _ bool) (alive []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, _ := os.ReadFile(path)
		end := bytes.LastIndexByte(text, ')') // the name of the program may hold anything
		fields := bytes.Fields(text[end+1:])  // state, parent, group, session, …: proc_pid_stat(5)
		if len(fields) < 18 || string(fields[3]) != strconv.Itoa(leader) {
			continue
		}
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		switch dead := fields[0][0] == 'Z' && string(fields[17]) == "1"; { // the first thread may end before the others
		case dead && pid != leader:
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		case dead:
		case string(fields[2]) != strconv.Itoa(leader):
			alive = append(alive, pid)
		case !slices.Contains(alive, -leader):
			alive = append(alive, -leader)
		}
	}
	return alive
}

// terminate asks a process or a group to end, also what is stopped of it.
func terminate(pid int) {
	_ = unix.Kill(pid, unix.SIGTERM)
	_ = unix.Kill(pid, unix.SIGCONT)
}

func kill(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }

// A Reaper takes in the processes of runs that lost their parent, so that none of
// them stays in the table of processes for long when it has ended. It is for a program
// whose every child is of a task, and above all for the first process of a container. Its
// zero value is ready once it has adopted; nil is none.
type Reaper struct {
	mu   sync.Mutex
	runs int // that are under way
}

// Adopt makes this process the parent of those that lose theirs. Files that it
// inherited are not inherited by programs from now on.
func (r *Reaper) Adopt() error {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // kernels before 5.11 cannot
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// count adds to the number of runs, and waits for all children that have exited as
// long as there are none: else they may be programs of runs.
func (r *Reaper) count(n int) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.runs
	for r.runs += n; min(before, r.runs) == 0; {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
			return
		}
	}
}
