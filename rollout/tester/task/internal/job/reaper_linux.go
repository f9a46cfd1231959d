package job

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"slices"

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
	r.mu.Lock()
	defer r.mu.Unlock()
	var someone unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &someone, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil && !errors.Is(err, unix.EINTR) || someone.Signo == 0 {
		return
	}
	self, _ := line(os.Getpid())
	pids, known := children(self.pid)
	if !known {
		pids = slices.Collect(maps.Keys(table()))
	}
	for _, pid := range pids {
		if c, ok := line(pid); ok && c.dead && r.orphan(c, self) {
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG, nil)
		}
	}
}

// orphan reports whether c was started by a process that has ended. Those of
// jobs are in the sessions of their leaders, and not in that of this process.
func (r *Reaper) orphan(c, self proc) bool {
	return c.parent == self.pid && c.session != self.session && r.leaders[c.pid] == nil
}

// around returns the processes among which those of p are: the descendants of
// this process without those of other jobs when it adopts all that lose their parent, else all.
func (r *Reaper) around(p *process) map[int]proc {
	self, _ := line(os.Getpid())
	if _, known := children(self.pid); !known || !r.adopting() {
		return table()
	}
	all := map[int]proc{self.pid: self}
	// When one ends during this, its children become ours: until nobody comes.
	for size := 0; size < len(all); {
		size = len(all)
		pids, _ := children(self.pid)
		for _, pid := range r.without(pids, p) {
			descend(pid, all)
		}
	}
	return all
}

func (r *Reaper) adopting() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.adopts
}

// without returns pids without the leaders of other jobs than p.
func (r *Reaper) without(pids []int, p *process) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(pids, func(pid int) bool { return r.leaders[pid] != nil && r.leaders[pid] != p })
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
