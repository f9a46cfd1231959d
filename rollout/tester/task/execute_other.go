//go:build !linux

package task

import (
	"context"
	"os/exec"
)

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

// Run waits until ctx ends.
func (r *Reaper) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (r *Reaper) enter() {}
func (r *Reaper) leave() {}
