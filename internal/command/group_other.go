//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// Group does nothing: this system has no process groups.
func Group(*exec.Cmd) {}

// Alive returns false: this system has no process groups.
func Alive(int) bool { return false }

// Terminate kills a leader, since this system cannot ask a process to end.
func Terminate(leader int) { Kill(leader) }

// Kill kills a leader, which must not have exited.
func Kill(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill()
	}
}
