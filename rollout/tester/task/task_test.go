//go:build unix

package task_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/task"
)

// bin makes a directory of programs, each a script, and returns a PATH that has
// it before the system's directories.
func bin(t *testing.T, scripts map[string]string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range scripts {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700))
	}
	return dir, "PATH=" + dir + ":" + os.Getenv("PATH")
}

// arguments is a program that prints its arguments, one per line.
const arguments = `printf '%s\n' "$@"`

// run runs the task of metadata, and returns its output and its error.
func run(t *testing.T, tools *task.Tools, kind string, metadata map[string]string) (string, error) {
	t.Helper()
	todo, _, err := tools.Task(kind, metadata)
	must(t, err)
	var out bytes.Buffer
	err = todo.Run(t.Context(), &out)
	return out.String(), err
}

func TestTypes(t *testing.T) {
	_, path := bin(t, map[string]string{"helm": "echo helm; " + arguments, "kubectl": "echo kubectl; " + arguments, "k6": "echo k6; " + arguments})
	tools := &task.Tools{Env: []string{path}}
	for _, c := range []struct {
		kind string
		meta map[string]string
		out  string
		err  string
	}{
		{"cmd", map[string]string{"cmd": "echo a; echo b >&2"}, "a\nb\n", ""},
		{"cmd", map[string]string{"cmd": ""}, "", ""},
		{"cmd", map[string]string{"cmd": "exit 7"}, "", "exit status 7"},
		{"cmd", map[string]string{"cmd": "true | echo $0"}, "sh\n", ""},
		{"cmd", map[string]string{"cmd": `printf '%s\n' "a b" '|' $HOME a\,b`, "shell": "false"}, "a b\n|\n$HOME\na\\,b\n", ""},
		{"cmd", map[string]string{"cmd": "no-such-program a", "shell": "false"}, "", `exec: "no-such-program": executable file not found in $PATH`},
		{"helm", map[string]string{"cmd": `test  'a b' "c d" --set x=a\,b`}, "helm\ntest\na b\nc d\n--set\nx=a\\,b\n", ""},
		{"helmv3", map[string]string{"cmd": "test"}, "helm\ntest\n", ""},
		{"kubectl", map[string]string{"cmd": `get pods -o jsonpath='{.items[*]}' | cat`}, "kubectl\nget\npods\n-o\njsonpath={.items[*]}\n|\ncat\n", ""},
	} {
		out, err := run(t, tools, c.kind, c.meta)
		if out != c.out || text(err) != c.err {
			t.Errorf("%s %q: %q, %v, want %q, %s", c.kind, c.meta["cmd"], out, err, c.out, c.err)
		}
		if code, ok := err.(interface{ ExitCode() int }); c.err == "exit status 7" && (!ok || code.ExitCode() != 7) {
			t.Errorf("the exit code of %v", err)
		}
	}
}

// Errors about metadata, S-2 and S-30 among them: nothing runs.
func TestMetadataErrors(t *testing.T) {
	tools := &task.Tools{PassEnv: []string{"USERS"}}
	for _, c := range []struct {
		kind string
		meta map[string]string
		want string
	}{
		{"cmd", nil, "cmd not found in metadata"},
		{"bash", map[string]string{"Cmd": "true"}, "cmd not found in metadata"},
		{"helm", map[string]string{}, "cmd not found in metadata"},
		{"kubectl", map[string]string{}, "cmd not found in metadata"},
		{"cmd", map[string]string{"cmd": "a\x00b"}, "metadata cmd: has a zero byte"},
		{"bash", map[string]string{"cmd": "a\x00b"}, "metadata cmd: has a zero byte"},
		{"helm", map[string]string{"cmd": "a\x00b"}, "metadata cmd: has a zero byte"},
		{"bash", map[string]string{"cmd": " "}, "metadata cmd is empty: name the test suite to run"},
		{"helm", map[string]string{"cmd": " "}, "metadata cmd is empty: give the arguments of helm"},
		{"helm", map[string]string{"cmd": "test 'a"}, "metadata cmd: a ' has no end"},
		{"cmd", map[string]string{"cmd": "a", "shell": "no"}, `metadata shell: "no" is neither true nor false`},
		{"cmd", map[string]string{"cmd": "a", "wait": "maybe"}, `metadata wait: "maybe" is neither true nor false`},
		{"cmd", map[string]string{"cmd": "a", "pipefail": "true"}, "metadata pipefail: sh has none, use type bash"},
		{"cmd", map[string]string{"cmd": " ", "shell": "false"}, "metadata cmd is empty: name a program"},
		{"cmd", map[string]string{"cmd": "./a", "shell": "false"}, `metadata cmd: program "./a" is a relative path: use a name or an absolute path`},
		{"cmd", map[string]string{"cmd": "a", "env.PATH": "/"}, "metadata env.PATH: this test runner does not let it be set; its owner has to name it"},
		{"cmd", map[string]string{"cmd": "a", "env.USERS": "a\x00b"}, "metadata env.USERS: has a zero byte"},
		{"k6", map[string]string{"cmd": "a"}, "metadata script is required: the text of the k6 script"},
		{"k6", map[string]string{"script": "a", "upload_to_cloud": "2"}, `metadata upload_to_cloud: "2" is neither true nor false`},
		{"k6", map[string]string{"script": "a", "env_vars": "[]"}, "metadata env_vars: is no JSON object whose values are strings"},
		{"k6", map[string]string{"script": "a", "env_vars": `{"A=B":"x"}`}, `metadata env_vars: "A=B" is no name of a variable`},
		{"k6", map[string]string{"script": "a", "env_vars": `{"PATH":"/"}`}, "metadata env_vars: PATH cannot be set"},
		{"k6", map[string]string{"script": "a", "env_vars": `{"LD_PRELOAD":"/"}`}, "metadata env_vars: LD_PRELOAD cannot be set"},
		{"k6", map[string]string{"script": "a", "kubernetes_secrets": `{"A":"n/k"}`}, "metadata kubernetes_secrets: this test runner has no access to Secrets; use env_vars, or variables of the test runner"},
	} {
		todo, _, err := tools.Task(c.kind, c.meta)
		if todo != nil || text(err) != c.want {
			t.Errorf("%s %q: %v, want %s", c.kind, c.meta, err, c.want)
		}
	}
}

func TestParseCommon(t *testing.T) {
	c, err := task.ParseCommon("cmd", map[string]string{"returnCmdOutput": "T", "logCmdOutput": "1", "wait": "true", "failOnError": "TRUE", "timeout": "90", "outputLimit": "4096"})
	if want := (task.Common{ReturnOutput: true, LogOutput: true, Wait: true, FailOnError: true, Timeout: 90e9, OutputLimit: 4096}); err != nil || c != want {
		t.Errorf("got %+v, %v", c, err)
	}
	if c, err = task.ParseCommon("cmd", nil); err != nil || c != (task.Common{}) {
		t.Errorf("got %+v, %v", c, err)
	}
	for kind, wait := range map[string]string{"k6": "wait_for_results", "ngrinder": "wait", "bash": "wait", "concord": "wait"} {
		if c, err := task.ParseCommon(kind, map[string]string{wait: "false"}); err != nil || c.Wait != (kind == "bash" || kind == "concord") {
			t.Errorf("%s: %+v, %v", kind, c, err)
		}
	}
	for _, key := range []string{"returnCmdOutput", "logCmdOutput", "wait", "failOnError", "timeout", "outputLimit"} {
		if _, err := task.ParseCommon("cmd", map[string]string{key: "maybe"}); err == nil || !strings.HasPrefix(err.Error(), "metadata "+key+": ") {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// S-47: programs inherit nothing of the test runner's environment.
func TestEnvironment(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	tools := &task.Tools{Env: []string{"GIVEN=yes", "USERS=1"}, PassEnv: []string{"USERS"}}
	metadata := map[string]string{"cmd": "env | grep -v ^PWD= | sort", "token": "t0k3n-t0k3n", "env.USERS": "twenty users"}
	todo, secrets, err := tools.Task("cmd", metadata)
	if err != nil || !slices.Equal(secrets, []string{"twenty users"}) {
		t.Fatal(secrets, err)
	}
	var out bytes.Buffer
	must(t, todo.Run(t.Context(), &out))
	var names []string
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names = append(names, name)
		if name == "USERS" && value != "twenty users" || strings.Contains(line, "t0k3n") || strings.Contains(line, "c4n4ry") {
			t.Errorf("got %q", line)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "_" || name == "SHLVL" || name == "OLDPWD" }) // of shells
	testenv.Equal(t, names, []string{"GIVEN", "HOME", "PATH", "TMPDIR", "USERS"})
}

// Programs are looked up in the PATH that they get, not in the directory of the run.
func TestPath(t *testing.T) {
	dir, path := bin(t, map[string]string{"helm": "echo ours"})
	if out, err := run(t, &task.Tools{Env: []string{path}}, "helm", map[string]string{"cmd": "test"}); err != nil || out != "ours\n" {
		t.Errorf("got %q, %v", out, err)
	}
	for _, path := range []string{"PATH=", "PATH=.", "PATH=:", "PATH=/none"} {
		if out, err := run(t, &task.Tools{Env: []string{path}, Dir: dir}, "helm", map[string]string{"cmd": "test"}); err == nil {
			t.Errorf("%s: got %q", path, out)
		}
	}
}

// Each run has a directory of its own, which is removed afterwards with all its content, but
// not the targets of links.
func TestDirectory(t *testing.T) {
	temp, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "file"), nil, 0o600))
	t.Setenv("TMPDIR", temp)
	out, err := run(t, &task.Tools{}, "cmd", map[string]string{"cmd": `
		test "$PWD" = "$HOME" && test "$PWD" = "$TMPDIR" && ls -A && ls -ld . | cut -c1-10 &&
		ln -s ` + outside + ` link && mkdir -p a/b/c && touch a/b/c/f a/f && ln -s ` + outside + ` a/link`})
	if err != nil || out != "drwx------\n" {
		t.Errorf("got %q, %v", out, err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(outside, "file")); err != nil {
		t.Error(err)
	}
	if info, err := os.Stat(outside); err != nil || info.Mode().Perm() == 0 {
		t.Error(info.Mode(), err)
	}
}

// S-35: a pipeline of type bash fails if any of its programs fails, unless metadata says otherwise.
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
		{false, map[string]string{"cmd": "@safe", "arg.TARGET": "a\x00b"}, "", "metadata arg.TARGET has a zero byte: command @safe has it"},
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
	testenv.Equal(t, text(err), problem, "%s %v", kind, metadata)
	if err != nil {
		return
	}
	if out, err := run(t, tools, kind, metadata); err != nil || out != want {
		t.Errorf("%s %v: got %q, %v, want %q", kind, metadata, out, err, want)
	}
}

// fakeK6 prints its arguments, the script and variables.
const fakeK6 = `for last; do :; done
test "$(ls -l "$last" | cut -c1-10)" = -rw------- || exit 1
printf '%s|' "$@" | sed "s|$PWD||"; echo
cat "$last"; echo
echo "$TARGET"
exit $CODE`

func TestK6(t *testing.T) {
	_, path := bin(t, map[string]string{"k6": fakeK6})
	tools := &task.Tools{Env: []string{path}}
	metadata := map[string]string{
		"script": "export default function() {}", "env_vars": `{"TARGET": "http://canary.test", "CODE": "0"}`,
		"wait_for_results": "true", "upload_to_cloud": "false",
	}
	todo, secrets, err := tools.Task("k6", metadata)
	if want := []string{"http://canary.test"}; err != nil || !slices.Equal(secrets, want) {
		t.Fatalf("got %q, %v, want %q", secrets, err, want)
	}
	var out bytes.Buffer
	err = todo.Run(t.Context(), &out)
	if want := "run|--no-usage-report|--address||/script.js|\nexport default function() {}\nhttp://canary.test\n"; err != nil || out.String() != want {
		t.Errorf("got %q, %v, want %q", out.String(), err, want)
	}

	metadata["upload_to_cloud"] = "true"
	if out, err := run(t, tools, "k6", metadata); err != nil || !strings.HasPrefix(out, "run|--no-usage-report|--address||--out|cloud|/script.js|\n") {
		t.Errorf("got %q, %v", out, err)
	}
	for code, want := range map[string]string{"99": "exit status 99", "1": "exit status 1"} {
		metadata["env_vars"] = `{"CODE": "` + code + `"}`
		if _, err := run(t, tools, "k6", metadata); text(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

var must = testenv.Must
