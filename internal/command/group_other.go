//go:build !unix

package command

import "os/exec"

func group(*exec.Cmd) {}

// terminate leaves it to kill: there is no way to ask.
func terminate(cmd *exec.Cmd) { kill(cmd) }
func kill(cmd *exec.Cmd)      { _ = cmd.Process.Kill() }
