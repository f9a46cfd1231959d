package job

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"

	"golang.org/x/sys/unix"
)

// Run adopts and reaps until ctx ends, and returns an error when the system does
// not let it.
func (r *Reaper) Run(ctx context.Context) error {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	defer signal.Stop(ended)
	r.adopt(true)
	defer r.adopt(false)
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) }()
	for {
		r.reap()
		select {
		case <-ctx.Done():
			return nil
		case <-ended:
		}
	}
}

func (r *Reaper) adopt(adopts bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopts = adopts
}

// reap waits for all children that have exited and are no leaders.
func (r *Reaper) reap() {
	var someone unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &someone, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil && !errors.Is(err, unix.EINTR) || someone.Signo == 0 {
		return
	}
	self, _ := line(os.Getpid())
	for pid, c := range table() {
		if !c.dead || c.parent != self.pid {
			continue
		}
		r.mu.Lock()
		if c, ok := line(pid); ok && c.dead && r.orphan(c, self) { // as it is now
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
		r.mu.Unlock()
	}
}

// orphan reports whether c was started by a process that has ended. Those of
// jobs are in the sessions of their leaders, and not in that of this process.
func (r *Reaper) orphan(c, self proc) bool {
	return c.parent == self.pid && c.session != self.session && r.leaders[c.pid] == nil
}

// start starts the leader of a job. No orphan is reaped meanwhile, for a
// leader that exits at once must not be taken for one.
func (r *Reaper) start(cmd *exec.Cmd, p *process) error {
	if r != nil {
		r.mu.Lock()
		defer r.mu.Unlock()
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.leader, _ = line(cmd.Process.Pid)
	p.leader.pid = cmd.Process.Pid
	if r != nil {
		if r.leaders == nil {
			r.leaders = make(map[int]*process)
		}
		r.leaders[p.leader.pid] = p
	}
	return nil
}

// forget says that the leader of a job has been waited for.
func (r *Reaper) forget(p *process) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.leaders, p.leader.pid)
}

// strays reports whether c, which says to be of a job, is an orphan that can
// only be of p or of jobs that are over.
func (r *Reaper) strays(c, self proc, says string, p *process) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.adopts || !r.orphan(c, self) {
		return false
	}
	for _, other := range r.leaders {
		if other != p && (other.mark == says || says == "" && !other.over && other.leader.start <= c.start) {
			return false
		}
	}
	return true
}

// over says that a job is over, before what is left of it is looked for: of two
// that end at once the second finds what may be of either.
func (r *Reaper) over(p *process) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p.over = true
}
