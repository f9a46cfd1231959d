//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// Group makes cmd lead a session and a process group of its own.
func Group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// Alive reports whether the group of a leader has a process. Without groups it has none.
func Alive(leader int) bool { return syscall.Kill(-leader, 0) != syscall.ESRCH }

// Terminate asks the group of a leader to end, also processes that are stopped.
func Terminate(leader int) {
	_ = syscall.Kill(-leader, syscall.SIGTERM)
	_ = syscall.Kill(-leader, syscall.SIGCONT)
}

// Kill ends the group of a leader. Without groups the leader must not have exited.
func Kill(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
