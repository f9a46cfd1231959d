package task

import (
	"os"
	"os/exec"
)

func group(*exec.Cmd) {}

// members returns the leader until it has exited: there are no groups.
func members(leader int, exited bool) []int {
	if exited {
		return nil
	}
	return []int{leader}
}

// terminate leaves it to kill: there is no way to ask.
func terminate(pid int) { kill(pid) }

func kill(pid int) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Kill()
	}
}
