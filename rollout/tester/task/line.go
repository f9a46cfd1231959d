package task

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/command"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

var errNoCommand = errors.New("cmd not found in metadata")

// operators are what a shell would make something of.
var operators = []string{"|", "||", "|&", "&", "&&", ";", "<", ">", ">>", "&>", "2>&1", ">&2"}

// commandLine returns metadata cmd.
func commandLine(metadata map[string]string) (string, error) {
	line, ok := metadata["cmd"]
	switch {
	case !ok:
		return "", errNoCommand
	case strings.ContainsRune(line, 0):
		return "", errors.New("metadata cmd: has a zero byte")
	}
	return line, nil
}

// shell returns the task of type cmd (sh) or bash.
func (t *Tools) shell(metadata map[string]string, shell string) (run.Task, []string, error) {
	line, err := commandLine(metadata)
	if err != nil {
		return nil, nil, err
	}
	p, secrets, err := t.program(metadata)
	if err != nil {
		return nil, nil, err
	}
	common, err := ParseCommon(metadata)
	if err != nil {
		return nil, nil, err
	}
	p.lasts = shell == "sh" && !common.Wait
	wanted, err := boolean(metadata, "shell", true)
	if err != nil {
		return nil, nil, err
	}
	pipefail, err := t.pipefail(metadata, shell)
	if err != nil {
		return nil, nil, err
	}
	switch name, named := strings.CutPrefix(line, "@"); {
	case named && (len(t.Commands) > 0 || t.OnlyNamed):
		p.args, err = t.named(name, metadata)
	case t.OnlyNamed:
		err = t.onlyNamed()
	case shell == "bash" && strings.TrimSpace(line) == "":
		err = errors.New("metadata cmd is empty: name the test suite to run")
	case !wanted || t.NoShell || t.Allow != nil:
		p.args, err = t.words(line, metadata["shell"] == "")
	case pipefail:
		p.args, p.explain = []string{shell, "-o", "pipefail", "-c", line}, brokenPipe
	default:
		p.args = []string{shell, "-c", line}
	}
	if err != nil {
		return nil, nil, err
	}
	return p, secrets, nil
}

// pipefail reports whether a pipeline fails with any of its programs.
func (t *Tools) pipefail(metadata map[string]string, shell string) (bool, error) {
	asked, err := boolean(metadata, "pipefail", shell == "bash" && !t.NoPipefail)
	if err == nil && asked && shell == "sh" {
		return false, errors.New("metadata pipefail: sh has none, use type bash")
	}
	return asked, err
}

// brokenPipe explains the one exit code that pipefail makes of a success.
func brokenPipe(code int) string {
	if code == 128+13 {
		return `a program of a pipeline wrote more than the next one read: metadata pipefail "false" lets that pass`
	}
	return ""
}

// words splits a command line that runs without a shell. Guarded means that
// metadata did not ask for that, and so may have been written for one.
func (t *Tools) words(line string, guarded bool) ([]string, error) {
	args, err := command.Words(line)
	if err != nil {
		return nil, fmt.Errorf("metadata cmd: %w", err)
	}
	if len(args) == 0 || args[0] == "" {
		return nil, errors.New("metadata cmd is empty: name a program")
	}
	for _, arg := range args {
		if guarded && slices.Contains(operators, arg) {
			return nil, fmt.Errorf(`metadata cmd: %q is for a shell, and this test runner uses none; metadata shell "false" makes it an argument`, arg)
		}
	}
	return args, t.allowed(args[0])
}

// allowed returns an error unless a program may be run without a shell.
func (t *Tools) allowed(program string) error {
	path := strings.ContainsRune(program, '/') || strings.ContainsRune(program, filepath.Separator)
	switch {
	case path && !filepath.IsAbs(program):
		return fmt.Errorf("metadata cmd: program %q is a relative path: use a name or an absolute path", program)
	case t.Allow == nil || slices.Contains(t.Allow, program):
		return nil
	case !path:
		if file, err := command.LookPath(program, t.environment(nil, "/")); err == nil && slices.Contains(t.Allow, file) {
			return nil
		}
	}
	return fmt.Errorf("program %q may not be run here: allowed are %s", program, cmp.Or(strings.Join(t.Allow, ", "), "none"))
}

// tool returns the task of a type that is a program of its own.
func (t *Tools) tool(metadata map[string]string, name string) (run.Task, []string, error) {
	line, err := commandLine(metadata)
	if err != nil {
		return nil, nil, err
	}
	p, secrets, err := t.program(metadata)
	if err != nil {
		return nil, nil, err
	}
	if t.OnlyNamed {
		return nil, nil, t.onlyNamed()
	}
	if err := t.allowed(name); err != nil {
		return nil, nil, err
	}
	args, err := command.Words(line)
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("metadata cmd: %w", err)
	case len(args) == 0:
		return nil, nil, fmt.Errorf("metadata cmd is empty: give the arguments of %s", name)
	}
	p.args = append([]string{name}, args...)
	return p, secrets, nil
}
