//go:build unix

package command

import (
	"os/exec"
	"syscall"
)

// SetGroup makes cmd lead a session and a process group of its own.
func SetGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// GroupAlive reports whether the group of a leader has a process. Systems without groups have none.
func GroupAlive(leader int) bool { return syscall.Kill(-leader, 0) != syscall.ESRCH }

// Terminate sends SIGTERM to the group of a leader, and continues processes that are stopped.
func Terminate(leader int) {
	_ = syscall.Kill(-leader, syscall.SIGTERM)
	_ = syscall.Kill(-leader, syscall.SIGCONT)
}

// Kill kills the group of a leader. On systems without groups it kills the leader, which must not
// have exited.
func Kill(leader int) { _ = syscall.Kill(-leader, syscall.SIGKILL) }
