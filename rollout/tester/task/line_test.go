//go:build unix

package task_test

import (
	"os/exec"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

// S-35: a pipeline of type bash fails with any of its programs, unless asked otherwise.
func TestPipefail(t *testing.T) {
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	const line = "(exit 22) | cat"
	_, path := bin(t, nil)
	for _, c := range []struct {
		lax  bool
		meta map[string]string
		want string
	}{
		{false, map[string]string{"cmd": line}, "exit status 22"},
		{false, map[string]string{"cmd": line, "pipefail": "false"}, ""},
		{true, map[string]string{"cmd": line}, ""},
		{true, map[string]string{"cmd": line, "pipefail": "true"}, "exit status 22"},
		{false, map[string]string{"cmd": "yes | head -n 1 >/dev/null"}, `exit status 141: a program of a pipeline wrote more than the next one read: metadata pipefail "false" lets that pass`},
		{false, map[string]string{"cmd": "yes | head -n 1 >/dev/null", "pipefail": "false"}, ""},
	} {
		tools := &task.Tools{Env: []string{path}, NoPipefail: c.lax}
		if _, err := run(t, tools, "bash", c.meta); text(err) != c.want {
			t.Errorf("%v %v: got %v, want %s", c.lax, c.meta, err, c.want)
		}
	}
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestNoShell(t *testing.T) {
	dir, path := bin(t, map[string]string{"show": arguments, "helm": arguments})
	allow := []string{"show", dir + "/helm"}
	for _, c := range []struct {
		tools task.Tools
		kind  string
		line  string
		out   string
		err   string // of the metadata
	}{
		{task.Tools{NoShell: true}, "cmd", "show '$(id)' ;id '; id'", "$(id)\n;id\n; id\n", ""},
		{task.Tools{NoShell: true}, "bash", "show a", "a\n", ""},
		{task.Tools{NoShell: true}, "cmd", "show a | cat", "", `metadata cmd: "|" is for a shell, and this test runner uses none; metadata shell "false" makes it an argument`},
		{task.Tools{Allow: allow}, "cmd", "show a", "a\n", ""},
		{task.Tools{Allow: allow}, "bash", "show a", "a\n", ""},
		{task.Tools{Allow: allow}, "cmd", dir + "/helm a", "a\n", ""},
		{task.Tools{Allow: allow}, "cmd", "helm a", "a\n", ""},
		{task.Tools{Allow: allow}, "helm", "a", "a\n", ""},
		{task.Tools{Allow: allow}, "cmd", "sh -c id", "", `program "sh" may not be run here: allowed are show, ` + dir + "/helm"},
		{task.Tools{Allow: allow}, "cmd", dir + "/show a", "", `program "` + dir + `/show" may not be run here: allowed are show, ` + dir + "/helm"},
		{task.Tools{Allow: allow}, "cmd", "./show a", "", `metadata cmd: program "./show" is a relative path: use a name or an absolute path`},
		{task.Tools{Allow: allow}, "kubectl", "a", "", `program "kubectl" may not be run here: allowed are show, ` + dir + "/helm"},
		{task.Tools{Allow: []string{}}, "cmd", "true", "", `program "true" may not be run here: allowed are none`},
	} {
		c.tools.Env = []string{path}
		checkLine(t, &c.tools, c.kind, map[string]string{"cmd": c.line}, c.out, c.err)
	}
}

func TestNamedCommands(t *testing.T) {
	_, path := bin(t, map[string]string{"show": arguments})
	commands := map[string]string{
		"load":  `show -n "${REQUESTS}" url=${TARGET}/x ${TARGET} 'a b'`,
		"safe":  `show -- ${TARGET}`,
		"plain": "show",
		"wrong": "${TARGET} a",
	}
	for _, c := range []struct {
		only bool
		meta map[string]string
		out  string
		err  string
	}{
		{false, map[string]string{"cmd": "@plain"}, "\n", ""},
		{false, map[string]string{"cmd": "@load", "arg.REQUESTS": "5 -x", "arg.TARGET": "$(id) '; id"}, "-n\n5 -x\nurl=$(id) '; id/x\n$(id) '; id\na b\n", ""},
		{true, map[string]string{"cmd": "@safe", "arg.TARGET": "--help"}, "--\n--help\n", ""},
		{false, map[string]string{"cmd": "@load", "arg.REQUESTS": "5", "arg.TARGET": "-x"}, "", `metadata arg for ${TARGET} of command @load: a value that begins with - would be an option`},
		{false, map[string]string{"cmd": "@load", "arg.REQUESTS": "5"}, "", "metadata arg.TARGET is required: command @load has it"},
		{false, map[string]string{"cmd": "@plain", "arg.X": "5"}, "", "metadata arg.X: command @plain has no such parameter"},
		{false, map[string]string{"cmd": "@none"}, "", "metadata cmd: there is no command @none: there are @load, @plain, @safe, @wrong"},
		{false, map[string]string{"cmd": "@wrong", "arg.TARGET": "sh"}, "", "command @wrong of this test runner is no command line: it names no program"},
		{false, map[string]string{"cmd": "echo a"}, "a\n", ""},
		{true, map[string]string{"cmd": "echo a"}, "", "metadata cmd: only named commands may be run here, by types cmd and bash: @load, @plain, @safe, @wrong"},
	} {
		checkLine(t, &task.Tools{Env: []string{path}, Commands: commands, OnlyNamed: c.only}, "cmd", c.meta, c.out, c.err)
	}
	for _, kind := range []string{"cmd", "bash", "helm", "helmv3", "kubectl", "k6"} {
		if _, _, err := (&task.Tools{OnlyNamed: true}).Task(kind, map[string]string{"cmd": "a", "script": "a"}); err == nil {
			t.Errorf("%s runs with OnlyNamed", kind)
		}
	}
}

func checkLine(t *testing.T, tools *task.Tools, kind string, metadata map[string]string, want, problem string) {
	t.Helper()
	_, _, err := tools.Task(kind, metadata)
	if text(err) != problem {
		t.Errorf("%s %v: got %v, want %s", kind, metadata, err, problem)
	}
	if err != nil {
		return
	}
	if out, err := run(t, tools, kind, metadata); err != nil || out != want {
		t.Errorf("%s %v: got %q, %v, want %q", kind, metadata, out, err, want)
	}
}
