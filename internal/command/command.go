// Package command runs programs that the owner of an object named: without a
// shell, with the environment that is given and no other, within a time.
//
// A command leads a process group where the system has those. When its context
// ends the group is asked to end, and killed after a grace: children that it
// left are in the group and end as well. What a command started in the
// background before it exited by itself goes on, and does not hold up the
// caller: such a process has to write elsewhere than to what it inherited.
//
// Output is kept within bounds; the command may write as much as it likes.
package command

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"strings"
	"time"
)

// The defaults of a [Command].
const (
	DefaultLimit = 64 << 10
	DefaultGrace = 5 * time.Second
)

const tailSize = 2 << 10 // of standard error in an [ExitError]

// A Command is a program and what it runs with.
type Command struct {
	Args  []string      // the program and its arguments; a name without a slash is looked up in the PATH of Env
	Dir   string        // where it runs; "" for here
	Env   []string      // all of its environment, as KEY=VALUE
	Limit int           // of standard output that is kept, in bytes; default [DefaultLimit]
	Grace time.Duration // between asking it to end and killing it; default [DefaultGrace]
}

// Output is what a command wrote to its standard output.
type Output struct {
	Text      []byte
	Truncated bool // it wrote more than the limit
}

// An ExitError is a command that ended with another code than zero.
type ExitError struct {
	Code   int    // -1 when a signal ended it
	Stderr []byte // the end of it, as it came
	State  string // such as "exit status 1"
}

func (e *ExitError) Error() string {
	if text := strings.TrimSpace(string(e.Stderr)); text != "" {
		return e.State + ": " + text
	}
	return e.State
}

// Run runs the command until it exits. The error is that of ctx, the cause
// included, when it ended first; an [*ExitError]; or why the command did not
// start, which wraps [exec.ErrNotFound] when there is none of that name.
func (c Command) Run(ctx context.Context) (Output, error) {
	if len(c.Args) == 0 || c.Args[0] == "" {
		return Output{}, errors.New("no command")
	}
	if err := ctx.Err(); err != nil {
		return Output{}, context.Cause(ctx)
	}
	path, err := LookPath(c.Args[0], c.Env)
	if err != nil {
		return Output{}, err
	}
	stdout, stderr := &head{limit: c.limit()}, &Tail{Limit: tailSize}
	cmd := exec.Command(path, c.Args[1:]...)
	cmd.Args[0] = c.Args[0]
	cmd.Dir = c.Dir
	cmd.Env = append([]string{}, c.Env...) // nil would be that of this process
	err = run(ctx, cmd, stdout, stderr, c.grace())
	out := Output{stdout.kept, stdout.truncated}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return out, &ExitError{exit.ExitCode(), stderr.Kept, exit.ProcessState.String()}
	}
	return out, err
}

// run starts cmd as the leader of a group and waits for it. The error is the
// cause of ctx when that ended first.
func run(ctx context.Context, cmd *exec.Cmd, stdout, stderr io.Writer, grace time.Duration) error {
	group(cmd)
	settle, err := start(cmd, stdout, stderr)
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := cmd.Wait()
		settle()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	terminate(cmd)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-done:
		kill(cmd) // whoever of the group is left
	case <-timer.C:
		kill(cmd)
		<-done
	}
	return context.Cause(ctx)
}

func (c Command) limit() int {
	if c.Limit > 0 {
		return c.Limit
	}
	return DefaultLimit
}

func (c Command) grace() time.Duration {
	if c.Grace > 0 {
		return c.Grace
	}
	return DefaultGrace
}
