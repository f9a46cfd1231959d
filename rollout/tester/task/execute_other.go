//go:build !linux

package task

import "os/exec"

// start starts a program.
func start(cmd *exec.Cmd, _ bool) (<-chan error, error) {
	group(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	return exited, nil
}

// A Reaper does nothing: only Linux lets a process adopt others.
type Reaper struct{}

// Adopt does nothing.
func (r *Reaper) Adopt() error { return nil }

func (r *Reaper) count(int) {}
