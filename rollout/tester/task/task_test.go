//go:build unix

package task_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

// bin makes a directory of programs, each a script, and returns a PATH that has
// it before the system's directories.
func bin(t *testing.T, scripts map[string]string) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir, "PATH=" + dir + ":" + os.Getenv("PATH")
}

// arguments is a program that shows its arguments, one a line.
const arguments = `printf '%s\n' "$@"`

// run runs the task of metadata, and returns its output and its error.
func run(t *testing.T, tools *task.Tools, kind string, metadata map[string]string) (string, error) {
	t.Helper()
	todo, _, err := tools.Task(kind, metadata)
	if err != nil {
		t.Fatal(err)
	}
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
