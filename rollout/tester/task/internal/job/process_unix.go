//go:build unix && !linux

package job

import (
	"os"
	"os/exec"
	"syscall"
)

// A process is the leader of a session and a group, with all of its group.
type process struct {
	pid    int
	exited <-chan struct{}
	state  *os.ProcessState // when exited is closed
}

func start(_ *Job, cmd *exec.Cmd, _ string) (*process, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	p := &process{pid: cmd.Process.Pid, exited: exited}
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState
		close(exited)
	}()
	return p, nil
}

// look counts the group as one.
func (p *process) look() usage {
	if syscall.Kill(-p.pid, 0) == syscall.ESRCH {
		return usage{}
	}
	return usage{processes: 1}
}

func (p *process) close() {}

func (p *process) terminate() {
	_ = syscall.Kill(-p.pid, syscall.SIGTERM)
	_ = syscall.Kill(-p.pid, syscall.SIGCONT)
}

func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

func (p *process) wait() *os.ProcessState {
	<-p.exited
	return p.state
}
