//go:build !unix

package command

import (
	"os"
	"os/exec"
)

// Group does nothing: there are no groups.
func Group(*exec.Cmd) {}

// Alive reports whether the group of a leader has a process: there are no groups.
func Alive(int) bool { return false }

// Terminate leaves it to Kill: there is no way to ask.
func Terminate(leader int) { Kill(leader) }

// Kill ends a leader, which must not have exited.
func Kill(leader int) {
	if p, err := os.FindProcess(leader); err == nil {
		_ = p.Kill()
	}
}
