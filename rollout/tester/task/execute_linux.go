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

// start starts a program from a thread of its own, which ends after the program. The
// thread gives up the ability to gain privileges, and the program inherits that. If the
// thread ends first, because this process ends, the kernel kills the program.
func start(cmd *exec.Cmd, privileges bool) (<-chan error, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	started, exited := make(chan error, 1), make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
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

// sessionProcesses returns the living processes of a session as arguments of kill: one for the
// group of the leader, and one for each process in another group. A program such as
// timeout has a group of its own, which signals to the leader's group would miss. sessionProcesses
// also reaps processes that have ended and are now children of this process, but not the
// leader, which start waits for.
func sessionProcesses(leader int, _ bool) (alive []int) {
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

// terminate sends SIGTERM to a process or a group, and continues it if it is stopped.
func terminate(pid int) {
	_ = unix.Kill(pid, unix.SIGTERM)
	_ = unix.Kill(pid, unix.SIGCONT)
}

func kill(pid int) { _ = unix.Kill(pid, unix.SIGKILL) }

// A Reaper adopts the processes of runs that lost their parent, and reaps them when they
// have ended, so that zombies do not accumulate. It is for a process whose children all
// belong to tasks, above all for the first process of a container. The zero Reaper is ready
// after Adopt; a nil Reaper reaps nothing.
type Reaper struct {
	mu   sync.Mutex
	runs int // under way
}

// Adopt makes this process the parent of its descendants that lose theirs. From now on,
// programs do not inherit the files that this process inherited.
func (r *Reaper) Adopt() error {
	_ = unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) // kernels before 5.11 cannot
	return os.NewSyscallError("prctl", unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
}

// addRuns adds n to the number of runs. If there are no runs, before or after, it reaps all
// children that have exited; during runs such a child may be a program that start waits for.
func (r *Reaper) addRuns(n int) {
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
