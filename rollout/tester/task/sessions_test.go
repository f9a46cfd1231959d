//go:build unix

package task_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/task"
)

var errTimedOut = errors.New("timed out after 20s")

// A job is a command line that runs programs of the test binary, $SELF.
type job struct {
	tools task.Tools
	env   []string
	out   io.Writer
	waits bool // its run ends when the command exits
}

func (j job) run(t *testing.T, ctx context.Context, line string) error {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	tools := j.tools
	tools.Env = append(j.env, "SELF="+self, "PATH="+os.Getenv("PATH"))
	todo, _, err := tools.Task("cmd", map[string]string{"cmd": line, "wait": fmt.Sprint(j.waits)})
	must(t, err)
	if j.out == nil {
		j.out = io.Discard
	}
	return todo.Run(ctx, j.out)
}

// checkAllEnd runs a job until n processes have reported that they run, cancels it, and waits
// until all of these processes are gone.
func checkAllEnd(t *testing.T, n int, j job, line string) {
	t.Helper()
	addr, up, ended := processReports(t)
	ctx, stop := context.WithTimeout(t.Context(), testTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for range n {
			<-up
		}
		cancel(errTimedOut)
	}()
	j.env = append(j.env, "ADDR="+addr)
	if err := j.run(t, ctx, line); !errors.Is(err, errTimedOut) {
		t.Errorf("got %v", err)
	}
	for range n {
		receivePID(t, ended)
	}
}

// S-8: all processes of a session end with its run.
func TestSessionEndsWithContext(t *testing.T) {
	deaf := task.Tools{Grace: 10 * time.Millisecond}
	checkAllEnd(t, 2, job{waits: true}, `PROGRAM=hold $SELF | PROGRAM=hold $SELF`)
	checkAllEnd(t, 3, job{waits: true}, `(PROGRAM=hold $SELF & PROGRAM=hold $SELF) & (PROGRAM=hold $SELF)`)
	checkAllEnd(t, 2, job{waits: true, tools: deaf}, `trap "" TERM; PROGRAM=deaf $SELF & PROGRAM=deaf $SELF`)
	checkAllEnd(t, 2, job{waits: true}, `(env -i PROGRAM=hold ADDR=$ADDR $SELF &); PROGRAM=hold $SELF`) // one has neither the environment nor a parent
	checkAllEnd(t, 2, job{}, `PROGRAM=hold $SELF & PROGRAM=hold $SELF & exit 0`)                        // a run that lasts
}

// A program that gets SIGTERM can still write output during the grace, even if it was
// stopped.
func TestOutputAfterSIGTERM(t *testing.T) {
	for _, line := range []string{
		`PROGRAM=polite $SELF & PROGRAM=hold exec $SELF`,
		`PROGRAM=polite $SELF & p=$!; PROGRAM=await $SELF; kill -STOP $p; PROGRAM=hold exec $SELF`,
	} {
		var out bytes.Buffer
		if checkAllEnd(t, 2, job{waits: true, out: &out, tools: task.Tools{Grace: testTimeout}}, line); out.String() != "summary\n" {
			t.Errorf("%s: got %q", line, out.String())
		}
	}
}

// Processes that a program leaves behind when it exits by itself end too, whether or not
// they hold its output open, and do not delay the run.
func TestLeftoverProcesses(t *testing.T) {
	for name, line := range map[string]string{
		"has the output": `PROGRAM=hold $SELF & echo started; PROGRAM=await $SELF; exit 7`,
		"has none":       `PROGRAM=hold $SELF >/dev/null 2>&1 & echo started; PROGRAM=await $SELF; exit 7`,
		"is deaf":        `PROGRAM=deaf $SELF & echo started; PROGRAM=await $SELF; exit 7`,
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			addr, up, ended := processReports(t)
			j := job{waits: true, out: &out, env: []string{"ADDR=" + addr}, tools: task.Tools{Grace: 10 * time.Millisecond}}
			err := j.run(t, t.Context(), line)
			var exit interface{ ExitCode() int }
			if !errors.As(err, &exit) || exit.ExitCode() != 7 || err.Error() != "exit status 7" || out.String() != "started\n" {
				t.Errorf("got %v, %q", err, out.String())
			}
			receivePID(t, up)
			receivePID(t, ended)
		})
	}
}

// A run that lasts is over when the last process has ended by itself.
func TestRunLastsUntilSessionEnds(t *testing.T) {
	var out bytes.Buffer
	addr, up, ended := processReports(t)
	j := job{out: &out, env: []string{"ADDR=" + addr}}
	done := make(chan error, 1)
	go func() {
		done <- j.run(t, t.Context(), `(PROGRAM=polite $SELF; echo end) & exec true`)
	}()
	pid := receivePID(t, up)
	select {
	case err := <-done:
		t.Fatalf("it is over with a process: %v", err)
	default:
	}
	terminate(t, pid)
	receivePID(t, ended)
	if err := <-done; err != nil || out.String() != "summary\nend\n" {
		t.Errorf("got %v, %q", err, out.String())
	}
}

// An error in writing the output does not end the program.
func TestOutputCannotBeWritten(t *testing.T) {
	r, w := io.Pipe()
	r.Close()
	if err := (job{out: w}).run(t, t.Context(), `echo a; PROGRAM=much $SELF && exit 3`); err == nil || err.Error() != "exit status 3" {
		t.Errorf("got %v", err)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "text"), []byte("text"), 0o700))
	for line, want := range map[string]string{
		"helm":                    `exec: "helm": executable file not found in $PATH`,
		dir + "/none":             "fork/exec " + dir + "/none: no such file or directory",
		dir:                       "fork/exec " + dir + ": permission denied",
		dir + "/text":             "fork/exec " + dir + "/text: exec format error",
		"/bin/sh -c 'exit 7'":     "exit status 7",
		"/bin/sh -c 'kill -9 $$'": "signal: killed",
	} {
		tools := &task.Tools{Env: []string{"PATH=" + dir}, NoShell: true}
		if _, err := run(t, tools, "cmd", map[string]string{"cmd": line}); text(err) != want {
			t.Errorf("%q: %v, want %s", line, err, want)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTimedOut)
	if err := (job{}).run(t, ctx, "true"); !errors.Is(err, errTimedOut) {
		t.Error(err)
	}
}

// The test binary is the program that the tests run: PROGRAM says which.
func TestMain(m *testing.M) {
	if name := os.Getenv("PROGRAM"); name != "" {
		syscall.Exit(programs[name]()) // at once: under the race detector os.Exit waits for a second
	}
	os.Exit(m.Run())
}

var programs = map[string]func() int{
	"much":   much,
	"hold":   hold,
	"deaf":   func() int { signal.Ignore(syscall.SIGTERM); return hold() }, // ignores SIGTERM
	"polite": polite,
	"await":  func() int { c, err := dial("await"); return read(c, err) }, // waits until another process runs
}

// much writes 16 MiB.
func much() int {
	for range 16 {
		if _, err := os.Stdout.Write(make([]byte, 1<<20)); err != nil {
			return 1
		}
	}
	return 0
}

// hold reports that it runs, and lives until it is killed.
func hold() int {
	c, err := dial("up " + strconv.Itoa(os.Getpid()))
	return read(c, err)
}

// polite writes output when it gets SIGTERM, and ends.
func polite() int {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	c, err := dial("up " + strconv.Itoa(os.Getpid()))
	if err != nil {
		return 1
	}
	defer c.Close()
	<-signals
	<-time.After(50 * time.Millisecond) // it takes its time
	fmt.Println("summary")
	return 0
}

func dial(line string) (net.Conn, error) {
	c, err := net.Dial("tcp", os.Getenv("ADDR"))
	if err == nil {
		fmt.Fprintln(c, line)
	}
	return c, err
}

func read(c net.Conn, err error) int {
	if err != nil {
		return 1
	}
	io.Copy(io.Discard, c)
	return 0
}

// processReports accepts reports of processes. It sends their IDs to up when they run and to ended
// when they have ended. A process that awaits another is released when one runs.
func processReports(t *testing.T) (addr string, up, ended <-chan int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	upped, left, first := make(chan int, 1000), make(chan int, 1000), make(chan struct{})
	go func() {
		for one := false; ; {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { c.Close() })
			s := bufio.NewScanner(c)
			var pid int
			if s.Scan(); s.Text() == "await" {
				go func() { <-first; c.Close() }()
				continue
			}
			fmt.Sscanf(s.Text(), "up %d", &pid)
			if !one {
				one = true
				close(first)
			}
			upped <- pid
			go func() { s.Scan(); left <- pid }()
		}
	}()
	return l.Addr().String(), upped, left
}

// testTimeout is the time after which a test gives up.
const testTimeout = time.Minute

// receivePID receives the ID of a process.
func receivePID(t *testing.T, from <-chan int) int {
	t.Helper()
	select {
	case pid := <-from:
		return pid
	case <-time.After(testTimeout):
		t.Fatal("nothing comes")
		return 0
	}
}

func terminate(t *testing.T, pid int) {
	t.Helper()
	must(t, syscall.Kill(pid, syscall.SIGTERM))
}
