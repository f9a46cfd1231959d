package metric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/internal/placeholder"
	"github.com/headgate-io/headgate/internal/redact"
)

const (
	commandTimeout = 30 * time.Second
	maxOutput      = 64 << 10
)

// Commands runs the commands of templates of type exec: without a shell, without
// standard input and with no environment but Env. When the timeout or the context
// ends, the command is killed, on Unix with all processes of its group.
type Commands struct {
	Env     []string      // KEY=VALUE; programs are looked up in its PATH; nil for an empty environment
	Timeout time.Duration // default 30s
}

// checkCommand validates the command line of a template.
func checkCommand(line string) error {
	args, err := command.Words(line)
	switch {
	case err != nil:
		return fmt.Errorf("is no command line: %w", err)
	case len(args) == 0 || args[0] == "":
		return errors.New("is required: the command line of a program")
	case strings.Contains(args[0], "{{"):
		return errors.New("has a placeholder in the name of the program: placeholders are for arguments")
	}
	for _, arg := range args {
		if err := parseQuery(arg); err != nil {
			return err
		}
	}
	return nil
}

// arguments returns the arguments of a command line with its placeholders filled in.
// It returns an error if a value would turn an argument into an option, unless the
// argument follows "--".
func arguments(line string, v values) ([]string, error) {
	args, err := command.Words(line)
	if err != nil {
		return nil, fmt.Errorf("is no command line: %w", err)
	}
	size, options := 0, true
	for i, arg := range args {
		if args[i], err = render(arg, v, verbatim); err != nil {
			return nil, fmt.Errorf("argument %d: %w", i, err)
		}
		if size += len(args[i]); size > placeholder.Max {
			return nil, fmt.Errorf("the query becomes longer than %d KiB", placeholder.Max>>10)
		}
		if options && strings.HasPrefix(args[i], "-") {
			if literal, _ := render(arg, v, replaceDash); !strings.HasPrefix(literal, "-") {
				return nil, fmt.Errorf("argument %d begins with - that is a part of a value: put -- before it, or make it --NAME=VALUE", i)
			}
		}
		options = options && arg != "--"
	}
	return args, nil
}

// replaceDash replaces a leading dash.
func replaceDash(s string) string {
	if strings.HasPrefix(s, "-") {
		return "x" + s[1:]
	}
	return s
}

// run runs a command line and returns the number it prints.
func (c *Commands) run(ctx context.Context, line string, v values) (float64, error) {
	if c == nil {
		return 0, errors.New("commands are not allowed here: use type prometheus or http")
	}
	args, err := arguments(line, v)
	if err != nil {
		return 0, fmt.Errorf("spec.query: %w", err)
	}
	limit := cmp.Or(c.Timeout, commandTimeout)
	within, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("did not end within %s", limit))
	defer cancel()
	out, err := command.Command{Args: args, Env: c.Env, Limit: maxOutput}.Run(within)
	text := strings.TrimSpace(string(out.Text))
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case err != nil:
		return 0, fmt.Errorf("%s: %w", excerpt(args[0], nil), redact.Error(err))
	case out.Truncated:
		return 0, fmt.Errorf("%s printed more than %d KiB", excerpt(args[0], nil), maxOutput>>10)
	case text == "":
		return 0, noValueError(excerpt(args[0], nil) + " printed nothing")
	}
	return parseNumber(text)
}
