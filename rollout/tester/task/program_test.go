//go:build unix

package task_test

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

// S-47: of the environment of the test runner nothing is inherited.
func TestEnvironment(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	tools := &task.Tools{Env: []string{"GIVEN=yes", "USERS=1"}, PassEnv: []string{"USERS"}}
	metadata := map[string]string{"cmd": "env | grep -v ^PWD= | sort", "token": "t0k3n-t0k3n", "env.USERS": "twenty users"}
	todo, secrets, err := tools.Task("cmd", metadata)
	if err != nil || !slices.Equal(secrets, []string{"twenty users"}) {
		t.Fatal(secrets, err)
	}
	var out bytes.Buffer
	if err := todo.Run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	var names []string
	for line := range strings.Lines(out.String()) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		names = append(names, name)
		if name == "USERS" && value != "twenty users" || strings.Contains(line, "t0k3n") || strings.Contains(line, "c4n4ry") {
			t.Errorf("got %q", line)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { return name == "_" || name == "SHLVL" || name == "OLDPWD" }) // of shells
	if want := []string{"GIVEN", "HOME", "PATH", "TMPDIR", "USERS"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
}

// Programs are found by the PATH they run with, and not in the directory of the run.
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

// Each run has a directory of its own, that is gone afterwards, whatever is in
// it; what a link points to stays.
func TestDirectory(t *testing.T) {
	temp, outside := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	tools := &task.Tools{Temp: temp}
	out, err := run(t, tools, "cmd", map[string]string{"cmd": `
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

type writer func(b []byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }
