//go:build unix

package job_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/task/internal/job"
)

var errOver = errors.New("timed out after 20s")

// start runs a program of the test binary as a job, by way of a shell when line
// is not "": there $SELF is the binary. It returns what Run returns.
func start(t *testing.T, ctx context.Context, j job.Job, line string) error {
	t.Helper()
	if line != "" {
		j.Args = []string{"/bin/sh", "-c", line}
	}
	j.Env = append(j.Env, "SELF="+self(t), "PATH="+os.Getenv("PATH"))
	return j.Run(ctx)
}

func self(t *testing.T) string {
	t.Helper()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// ends runs a job until n processes have said that they are up, ends it, and
// waits until all of them are gone.
func ends(t *testing.T, n int, j job.Job, line string) {
	t.Helper()
	addr, up, gone := desk(t)
	ctx, stop := context.WithTimeout(t.Context(), patience)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for range n {
			<-up
		}
		cancel(errOver)
	}()
	j.Env = append(j.Env, "ADDR="+addr)
	if err := start(t, ctx, j, line); !errors.Is(err, errOver) {
		t.Errorf("got %v", err)
	}
	for range n {
		take(t, gone)
	}
}

// S-8: all of a pipeline ends with its run.
func TestPipelineEndsWithContext(t *testing.T) {
	ends(t, 2, job.Job{}, `PROGRAM=hold $SELF | PROGRAM=hold $SELF`)
}

func TestGrandchildrenEndWithContext(t *testing.T) {
	ends(t, 3, job.Job{}, `(PROGRAM=hold $SELF & PROGRAM=hold $SELF) & (PROGRAM=hold $SELF)`)
}

func TestIgnoredSIGTERM(t *testing.T) {
	ends(t, 2, job.Job{Grace: 10 * time.Millisecond}, `trap "" TERM; PROGRAM=deaf $SELF & PROGRAM=deaf $SELF`)
}

// A program that is asked to end has the grace to say its last word, also when
// it is stopped.
func TestLastWord(t *testing.T) {
	for _, line := range []string{
		`PROGRAM=polite $SELF & PROGRAM=hold exec $SELF`,
		`PROGRAM=polite $SELF & p=$!; PROGRAM=await $SELF; kill -STOP $p; PROGRAM=hold exec $SELF`,
	} {
		var out bytes.Buffer
		if ends(t, 2, job.Job{Out: &out, Grace: patience}, line); out.String() != "summary\n" {
			t.Errorf("%s: got %q", line, out.String())
		}
	}
}

// What a program leaves behind when it exits by itself ends too, whether it has
// the output or not, and does not hold up the run.
func TestLeftBehind(t *testing.T) {
	for name, line := range map[string]string{
		"has the output": `PROGRAM=hold $SELF & echo started; PROGRAM=await $SELF; exit 7`,
		"has none":       `PROGRAM=hold $SELF >/dev/null 2>&1 & echo started; PROGRAM=await $SELF; exit 7`,
		"is deaf":        `PROGRAM=deaf $SELF & echo started; PROGRAM=await $SELF; exit 7`,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			addr, up, gone := desk(t)
			j := job.Job{Out: &out, Env: []string{"ADDR=" + addr}, Grace: 10 * time.Millisecond}
			err := start(t, t.Context(), j, line)
			var exit *job.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 7 || err.Error() != "exit status 7" || out.String() != "started\n" {
				t.Errorf("got %v, %q", err, out.String())
			}
			take(t, up)
			take(t, gone)
		})
	}
}

// A job that lasts is over when the last process has ended by itself.
func TestLasts(t *testing.T) {
	var out bytes.Buffer
	addr, up, gone := desk(t)
	j := job.Job{Out: &out, Env: []string{"ADDR=" + addr}, Lasts: true}
	done := make(chan error, 1)
	go func() {
		done <- start(t, t.Context(), j, `(PROGRAM=polite $SELF; echo end) & exec true`)
	}()
	pid := take(t, up)
	select {
	case err := <-done:
		t.Fatalf("it is over with a process: %v", err)
	default:
	}
	terminate(t, pid)
	take(t, gone)
	if err := <-done; err != nil || out.String() != "summary\nend\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
}

func TestLastsUntilContextEnds(t *testing.T) {
	ends(t, 2, job.Job{Lasts: true}, `PROGRAM=hold $SELF & PROGRAM=hold $SELF & exit 0`)
}

func TestOutputIsOneStream(t *testing.T) {
	var out bytes.Buffer
	if err := start(t, t.Context(), job.Job{Out: &out}, `echo a; echo b >&2; echo c; echo d >&2`); err != nil || out.String() != "a\nb\nc\nd\n" {
		t.Errorf("got %q, %v", out.String(), err)
	}
}

func TestGigabyte(t *testing.T) {
	var n count
	if err := start(t, t.Context(), job.Job{Out: &n}, `PROGRAM=much $SELF`); err != nil || n != 1<<30 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type count int

func (c *count) Write(b []byte) (int, error) { *c += count(len(b)); return len(b), nil }

// An error of the reader of the output does not end the program.
func TestOutputNobodyTakes(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := start(t, t.Context(), job.Job{Out: w}, `echo a; PROGRAM=much $SELF && exit 3`); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
}

func TestEnvironmentIsWhatIsGiven(t *testing.T) {
	t.Setenv("CANARY_SECRET", "c4n4ry")
	var out bytes.Buffer
	j := job.Job{Args: []string{self(t)}, Env: []string{"PROGRAM=env", "A=b"}, Out: &out}
	err := j.Run(t.Context())
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if err != nil || len(lines) != 3 || lines[0] != "PROGRAM=env" || lines[1] != "A=b" || !strings.HasPrefix(lines[2], job.Mark+"=") {
		t.Errorf("got %q, %v", lines, err)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"helm"}, `exec: "helm": executable file not found in $PATH`},
		{[]string{dir + "/none"}, "fork/exec " + dir + "/none: no such file or directory"},
		{[]string{dir}, "fork/exec " + dir + ": permission denied"},
		{[]string{dir + "/text"}, "fork/exec " + dir + "/text: exec format error"},
		{[]string{"/bin/sh", "-c", "exit 7"}, "exit status 7"},
		{[]string{"/bin/sh", "-c", "kill -9 $$"}, "signal: killed"},
	} {
		for _, limits := range []job.Limits{{}, {CPU: 10, Files: 100}} {
			err := job.Job{Args: c.args, Env: []string{"PATH=" + dir}, Limits: limits}.Run(t.Context())
			if err == nil || err.Error() != c.want {
				t.Errorf("%q: %v, want %s", c.args, err, c.want)
			}
		}
	}
	if err := (job.Job{Args: []string{"x"}, Env: []string{"PATH=" + dir}}).Run(t.Context()); !errors.Is(err, exec.ErrNotFound) {
		t.Error(err)
	}
	if err := (job.Job{Args: []string{"/bin/true"}, Dir: dir + "/none"}).Run(t.Context()); err == nil {
		t.Error("it ran in no directory")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errOver)
	if err := (job.Job{Args: []string{"/bin/true"}}).Run(ctx); !errors.Is(err, errOver) {
		t.Error(err)
	}
}

// Jobs that end at any moment of their life, many at a time.
func TestManyAtOnce(t *testing.T) {
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Duration(i)*100*time.Microsecond, errOver)
			defer cancel()
			if err := start(t, ctx, job.Job{Grace: time.Second}, `(true | true) & true; exit 5`); !errors.Is(err, errOver) && err.Error() != "exit status 5" {
				t.Errorf("got %v", err)
			}
		})
	}
	all.Wait()
}
