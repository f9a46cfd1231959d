//go:build unix && !linux

package task

import (
	"os/exec"
	"syscall"
)

func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }

// members returns the process group of the leader, as a number for kill, if one of
// its processes is there.
func members(leader int, _ bool) []int {
	if syscall.Kill(-leader, 0) == syscall.ESRCH {
		return nil
	}
	return []int{-leader}
}

// terminate asks a group to end, also processes that are stopped.
func terminate(group int) {
	_ = syscall.Kill(group, syscall.SIGTERM)
	_ = syscall.Kill(group, syscall.SIGCONT)
}

func kill(group int) { _ = syscall.Kill(group, syscall.SIGKILL) }
