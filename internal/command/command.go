// Package command runs programs that the owner of an object chose: without a
// shell, with the given environment only, and within the time of a context.
//
// A command leads a session and a process group, if the system has those. When its
// context ends, the group is asked to end, and killed after a grace. So the children
// that the command left behind end too. If the command exits by itself, the processes
// that it started in the background go on. They must not write to the outputs that they
// inherited: these are closed a second after the exit.
//
// Output is kept within bounds; the command may write as much as it likes.
package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// The defaults of a [Command].
const (
	DefaultLimit = 64 << 10
	DefaultGrace = 5 * time.Second
)

const (
	tailSize    = 2 << 10     // bytes of standard error in an error
	outputDelay = time.Second // for the output to end after the command exited
)

// A Command is a program with its arguments, environment and limits.
type Command struct {
	Args  []string      // the program and its arguments; a name without a slash is looked up in the PATH of Env
	Env   []string      // all of its environment, as KEY=VALUE
	Limit int           // of standard output that is kept, in bytes; default [DefaultLimit]
	Grace time.Duration // time between asking it to end and killing it; default [DefaultGrace]
}

// Output is what a command wrote to its standard output.
type Output struct {
	Text      []byte
	Truncated bool // it wrote more than the limit
}

// Run runs the command until it exits. The error is the cause of ctx if that ended first.
// If the command failed, the error wraps an [*exec.ExitError] and has the end of standard
// error. If the command did not start, the error says why, and wraps [exec.ErrNotFound] if
// there is no program of that name.
func (c Command) Run(ctx context.Context) (Output, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return Output{}, errors.New("no command")
	}
	path, err := LookPath(c.Args[0], c.Env)
	if err != nil {
		return Output{}, err
	}
	stdout, stderr := &head{limit: cmp.Or(c.Limit, DefaultLimit)}, &Tail{Limit: tailSize}
	cmd := exec.CommandContext(ctx, path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Env = append([]string{}, c.Env...) // nil would mean the environment of this process
	cmd.Stdout, cmd.Stderr = stdout, stderr
	SetGroup(cmd)
	ended := false // by ctx
	cmd.WaitDelay = outputDelay
	cmd.Cancel = func() error {
		ended = true
		cmd.WaitDelay = cmp.Or(c.Grace, DefaultGrace) // package exec reads it after this
		Terminate(cmd.Process.Pid)
		return nil
	}
	err = cmd.Run()
	out := Output{stdout.kept, stdout.truncated}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case ended:
		if GroupAlive(cmd.Process.Pid) {
			Kill(cmd.Process.Pid)
		}
		return out, context.Cause(ctx)
	case cmd.Process == nil && ctx.Err() != nil:
		return out, context.Cause(ctx)
	case exited:
		if text := strings.TrimSpace(string(stderr.Kept)); text != "" {
			return out, fmt.Errorf("%w: %s", exit, text)
		}
	case errors.Is(err, exec.ErrWaitDelay): // the command succeeded, but a process that it left keeps its output open
		return out, nil
	}
	return out, err
}
