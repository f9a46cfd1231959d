package job

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// A process is the program of a job, with all that it started.
type process struct {
	job    *Job
	mark   string
	leader proc            // also of a session and a group; until wait returns nothing else has its ID
	exited <-chan struct{} // the program has; it is not waited for yet
	free   chan<- struct{} // it may be waited for
	state  <-chan *os.ProcessState
	over   bool           // nothing of it is to go on: guarded by the reaper
	known  map[int]uint64 // the processes of the job that were seen: when they started
}

// start starts the program on a thread of its own. When that ends with this
// process, the kernel kills the program. The thread cannot gain privileges any
// more, and so is not used again.
func start(j *Job, cmd *exec.Cmd, mark string) (*process, error) {
	started, exited, free := make(chan error, 1), make(chan struct{}), make(chan struct{})
	state := make(chan *os.ProcessState, 1)
	p := &process{job: j, mark: mark, exited: exited, free: free, state: state}
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		if !j.Privileges {
			_ = unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) // kernels before 3.5 have none
		}
		err := p.start(cmd)
		started <- err
		if err != nil {
			return
		}
		await(cmd.Process.Pid)
		close(exited)
		<-free
		_ = cmd.Wait()
		j.Reaper.forget(p)
		state <- cmd.ProcessState
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// start starts the leader. One with limits is traced, so that it stands at its
// first instruction when it gets them.
func (p *process) start(cmd *exec.Cmd) error {
	limited := p.job.Limits.inKernel()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL, Ptrace: limited}
	err := p.job.Reaper.start(cmd, p)
	switch {
	case limited && errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w; limits need the right to trace children: allow ptrace (seccomp, kernel.yama.ptrace_scope), or set none", err)
	case err != nil || !limited:
		return err
	}
	if err = p.job.Limits.apply(cmd.Process.Pid); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		p.job.Reaper.forget(p)
	}
	return err
}

// await waits until a child has exited, and leaves it to be waited for.
func await(pid int) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if !errors.Is(err, unix.EINTR) {
			return
		}
	}
}

// wait ends the program's entry in the table of processes.
func (p *process) wait() *os.ProcessState {
	close(p.free)
	return <-p.state
}

// inKernel reports whether there is a limit that the kernel holds.
func (l Limits) inKernel() bool { return l.CPU > 0 || l.Memory > 0 || l.Files > 0 || l.Size > 0 }

// apply sets the limits of a program that stands at its first instruction, and lets it go.
func (l Limits) apply(pid int) error {
	if err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WEXITED|unix.WNOWAIT, nil); err != nil {
		return os.NewSyscallError("waitid", err)
	}
	for _, c := range []struct {
		resource  int
		soft, add int64
	}{
		{unix.RLIMIT_CPU, l.CPU, 1}, // SIGXCPU, and a second later SIGKILL
		{unix.RLIMIT_DATA, l.Memory, 0},
		{unix.RLIMIT_NOFILE, l.Files, 0},
		{unix.RLIMIT_FSIZE, l.Size, 0},
	} {
		if c.soft <= 0 {
			continue
		}
		limit := unix.Rlimit{Cur: uint64(c.soft), Max: uint64(c.soft + c.add)}
		if err := unix.Prlimit(pid, c.resource, &limit, nil); err != nil && !errors.Is(err, unix.ESRCH) {
			return os.NewSyscallError("prlimit", err)
		}
	}
	if err := unix.PtraceDetach(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		return os.NewSyscallError("ptrace", err)
	}
	return nil
}
