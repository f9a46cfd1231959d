//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// SetGroup does nothing: this system has no process groups.
func SetGroup(*exec.Cmd) {}

// GroupAlive returns false: this system has no process groups.
func GroupAlive(int) bool { return false }

// Terminate kills a leader, since this system cannot ask a process to end.
func Terminate(leader int) { Kill(leader) }

// Kill kills a leader, which must not have exited.
func Kill(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill()
	}
}
