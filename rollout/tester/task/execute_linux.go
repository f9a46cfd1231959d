package task

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
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
// group of its own, so that signals to the group alone would miss it. When the leader
// has been waited for, members that have ended and are children of this process by now
// are reaped.
func members(leader int, reap bool) (alive []int) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		text, _ := os.ReadFile("/proc/" + name + "/stat")
		end := bytes.LastIndexByte(text, ')') // the name of the program may hold anything
		fields := bytes.Fields(text[end+1:])  // state, parent, group, session, …: proc_pid_stat(5)
		if len(fields) < 18 || string(fields[3]) != strconv.Itoa(leader) {
			continue
		}
		switch dead := fields[0][0] == 'Z' && string(fields[17]) == "1"; { // the first thread may end before the others
		case dead && reap:
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
// them stays in the table of processes when it has ended. It is for a program whose
// every child is of a task, and above all for the first process of a container. Its
// zero value is ready; nil is none.
type Reaper struct {
	mu   sync.Mutex
	runs int // that are under way
}

// Run adopts and reaps until ctx ends, and returns an error when the system does
// not let it. Processes that left the sessions of their runs are reaped while no run
// is under way.
func (r *Reaper) Run(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	for {
		r.mu.Lock()
		r.reap()
		r.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	}
}

// reap waits for all children that have exited, unless there may be programs of runs
// among them.
func (r *Reaper) reap() {
	for r.runs == 0 {
		if pid, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); pid <= 0 && err != unix.EINTR {
			return
		}
	}
}

func (r *Reaper) enter() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.runs++
	}
}

func (r *Reaper) leave() {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.runs--
		r.reap()
	}
}
