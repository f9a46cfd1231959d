package traffic

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
)

// StuckCode is the exit code by which a command says that the workload never
// becomes ready. Any other but zero means that it is not ready yet: tools that
// look at a server use the low ones for that.
const StuckCode = 100

// An Exec is a [Driver] that runs commands, without a shell. What they write to
// standard output is the answer, of at most 64 KiB; the end of what they write
// to standard error is part of the error.
//
// A command has to be done when it exits. It may leave a server running in the
// background that writes elsewhere; but when its time is over, or ctx ends,
// everything that it started ends with it.
type Exec struct {
	Commands map[Operation][]string // a program and its arguments, each a template over [Values]
	Dir      string                 // where they run
	Env      []string               // their environment as KEY=VALUE, beside the variables of Values; programs are looked up in its PATH
	Timeout  time.Duration          // of one command, default 1m
	Secrets  []string               // texts that errors never contain
}

var _ Driver = (*Exec)(nil)

// Has reports whether there is a command for op.
func (e *Exec) Has(op Operation) bool { return len(e.Commands[op]) > 0 }

// Do runs the command of op.
func (e *Exec) Do(ctx context.Context, op Operation, v Values) (string, error) {
	argv, err := e.argv(op, v)
	if err != nil {
		return "", err
	}
	limit := or(e.Timeout, time.Minute)
	limited, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not done after %s: %w", limit, context.DeadlineExceeded))
	defer cancel()
	env := append(append([]string{}, e.Env...), v.environment()...)
	out, err := command.Command{Args: argv, Dir: e.Dir, Env: env, Limit: maxText}.Run(limited)
	var exit *command.ExitError
	switch {
	case ctx.Err() != nil:
		return "", context.Cause(ctx)
	case op.ready() && errors.As(err, &exit) && exit.Code == StuckCode:
		return "", fmt.Errorf("%w: %w", rollout.ErrStuck, redact.Error(err, e.Secrets...))
	case err != nil:
		return "", redact.Error(err, e.Secrets...)
	case out.Truncated && op.asks():
		return "", fmt.Errorf("the answer is longer than %d bytes", maxText)
	}
	return string(out.Text), nil
}

func (e *Exec) argv(op Operation, v Values) ([]string, error) {
	var argv []string
	for i, text := range e.Commands[op] {
		arg, err := expand(text, v)
		if err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		argv = append(argv, arg)
	}
	return argv, nil
}

// Check returns what is wrong with the commands: templates that cannot be
// executed, operations that there are not, and a program of [SetRoutes] that is
// not there or not executable. A program whose name is a template is not looked for.
func (e *Exec) Check() error {
	var errs []error
	for op, line := range e.Commands {
		if err := op.check(); err != nil {
			errs = append(errs, err)
		} else if _, err := e.argv(op, Values{Operation: op}); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", op, err))
		} else if op == SetRoutes && len(line) > 0 && !strings.Contains(line[0], "{{") {
			if err := e.find(line[0]); err != nil {
				errs = append(errs, fmt.Errorf("%s: the program cannot be started: %w", op, err))
			}
		}
	}
	return errors.Join(errs...)
}

// find looks for a program where its command will.
func (e *Exec) find(program string) error {
	file, err := command.LookPath(program, e.Env)
	if err != nil {
		return err
	}
	if !filepath.IsAbs(file) {
		file = filepath.Join(e.Dir, file)
	}
	if file, err = filepath.Abs(file); err != nil {
		return err
	}
	_, err = exec.LookPath(file)
	return err
}
