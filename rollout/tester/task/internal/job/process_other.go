//go:build !unix

package job

import (
	"os"
	"os/exec"
)

// A process is a program: there are no groups.
type process struct {
	program *os.Process
	exited  <-chan struct{}
	state   *os.ProcessState // when exited is closed
}

func start(_ *Job, cmd *exec.Cmd, _ string) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	p := &process{program: cmd.Process, exited: exited}
	go func() {
		_ = cmd.Wait()
		p.state = cmd.ProcessState
		close(exited)
	}()
	return p, nil
}

func (p *process) look() usage {
	select {
	case <-p.exited:
		return usage{}
	default:
		return usage{processes: 1}
	}
}

func (p *process) close() {}

// terminate leaves it to kill: there is no way to ask.
func (p *process) terminate() { p.kill() }
func (p *process) kill()      { _ = p.program.Kill() }

func (p *process) wait() *os.ProcessState {
	<-p.exited
	return p.state
}
