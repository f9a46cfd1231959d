//go:build !linux

package task

import (
	"os/exec"

	"github.com/headgate-io/headgate/internal/command"
)

// start starts a program.
func start(cmd *exec.Cmd, _ bool) (<-chan error, error) {
	command.SetGroup(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	return exited, nil
}

// sessionProcesses returns the leader as long as its group has a process.
func sessionProcesses(leader int, exited bool) []int {
	if exited && !command.GroupAlive(leader) {
		return nil
	}
	return []int{leader}
}

func terminate(leader int) { command.Terminate(leader) }
func kill(leader int)      { command.Kill(leader) }

// A Reaper does nothing: only Linux lets a process adopt others.
type Reaper struct{}

// Adopt does nothing.
func (r *Reaper) Adopt() error { return nil }

func (r *Reaper) addRuns(int) {}
