package run_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

const (
	crashDir     = "HEADGATE_TEST_RUNS" // directory of the process that is killed
	syncedRounds = 5                    // rounds of recordUntilKilled before a Shutdown, which are surely on disk
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Println("error", recordUntilKilled(dir))
		return
	}
	os.Exit(m.Run())
}

// recordUntilKilled starts a run and ends another in each round, and prints their IDs, until it is killed.
func recordUntilKilled(dir string) error {
	d, err := run.Open(run.Config{Dir: dir, Keep: 100_000, Concurrency: 100_000})
	forever := task(func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return nil })
	for i := 0; err == nil; i++ {
		if i == syncedRounds {
			err = d.Shutdown(context.Background())
			d, _ = run.Open(run.Config{Dir: dir, Keep: 100_000, Concurrency: 100_000})
		}
		running, err1 := d.Start(request(fmt.Sprint("load ", i)), forever)
		undelivered, err2 := d.Wait(context.Background(), request(fmt.Sprint("test ", i)), &countingTask{err: exit(1)})
		if i%2 == 1 {
			d.Deliver(undelivered.ID)
		}
		err = errors.Join(err, err1, err2)
		fmt.Println(running.ID, undelivered.ID)
		time.Sleep(time.Millisecond) // time to write some of it
	}
	return err
}

// TestCrash kills a process with SIGKILL while it records runs. Only the records of its
// last moments are missing. Runs that were under way are Lost, and undelivered verdicts
// are given.
func TestCrash(t *testing.T) {
	for _, rounds := range []int{20, 100} {
		dir := t.TempDir()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), crashDir+"="+dir)
		out, err := cmd.StdoutPipe()
		must(t, errors.Join(err, cmd.Start()))
		var all [][2]string // IDs of a run under way and of one that ended
		for lines := bufio.NewScanner(out); len(all) < rounds && lines.Scan(); {
			running, undelivered, _ := strings.Cut(lines.Text(), " ")
			all = append(all, [2]string{running, undelivered})
		}
		cmd.Process.Kill()
		cmd.Wait()
		if len(all) < rounds {
			t.Fatal(all[len(all)-1:])
		}
		d := open(t, run.Config{Dir: dir, Keep: 100_000})
		lost := 0
		for i, ids := range all {
			want := api.Lost
			if i < syncedRounds {
				want = api.Stopped
			}
			running, err := d.Run(ids[0])
			undelivered, err2 := d.Run(ids[1])
			switch {
			case err != nil || err2 != nil || undelivered.State == api.Lost:
				if lost++; i < syncedRounds {
					t.Errorf("round %d is not found: %v, %v", i, err, err2)
				}
			case lost > 0:
				t.Errorf("round %d of %d is there, one before it is not", i, len(all))
			case running.State != want || running.Reason == "" || running.Ended.IsZero():
				t.Errorf("under way: %+v", running)
			case undelivered.State != api.Failed || undelivered.Output != "working\n":
				t.Errorf("undelivered: %+v", undelivered)
			}
		}
		testenv.Equal(t, wait(t, d, request("test 0"), &countingTask{}).ID, all[0][1])
		if got := wait(t, d, request("test 1"), &countingTask{}); got.ID == all[1][1] {
			t.Error("a verdict that was delivered is given again")
		}
		t.Logf("the last %d of %d rounds are not found", lost, len(all))
		shutdown(t, d)
	}
}

// A task is a function that is a Task.
type task func(ctx context.Context, out io.Writer) error

func (t task) Run(ctx context.Context, out io.Writer) error { return t(ctx, out) }

// exit is the error of a program that ended with a code.
type exit int

func (e exit) Error() string { return "exit status " + string(rune('0'+int(e))) }
func (e exit) ExitCode() int { return int(e) }

// A countingTask is a task that counts its starts, takes a while, and returns a given error.
type countingTask struct {
	starts    atomic.Int32
	active    atomic.Int32
	maxActive atomic.Int32 // the most at a time
	duration  time.Duration
	err       error
}

func (w *countingTask) Run(ctx context.Context, out io.Writer) error {
	w.starts.Add(1)
	now := w.active.Add(1)
	defer w.active.Add(-1)
	for most := w.maxActive.Load(); now > most && !w.maxActive.CompareAndSwap(most, now); most = w.maxActive.Load() {
	}
	io.WriteString(out, "working\n")
	select {
	case <-time.After(w.duration):
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (w *countingTask) checkStarts(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	testenv.Equal(t, int(w.starts.Load()), want)
}

// open returns a runner that is shut down at the end of the test.
func open(t *testing.T, c run.Config) *run.Runner {
	t.Helper()
	if c.Warn == nil {
		c.Warn = func(err error) { t.Errorf("warned of %v", err) }
	}
	d, err := run.Open(c)
	must(t, err)
	t.Cleanup(func() { d.Shutdown(context.Background()) })
	return d
}

func request(text string) run.Request {
	return run.Request{Namespace: "prod", Name: "app", Phase: "Progressing", Checksum: "c1", Type: "bash", Metadata: map[string]string{"type": "bash", "cmd": text}}
}

func wait(t *testing.T, d *run.Runner, r run.Request, w run.Task) api.Run {
	t.Helper()
	got, err := d.Wait(t.Context(), r, w)
	must(t, err)
	return got
}

func start(t *testing.T, d *run.Runner, r run.Request, w run.Task) api.Run {
	t.Helper()
	got, err := d.Start(r, w)
	must(t, err)
	return got
}

func checkState(t *testing.T, got api.Run, want api.RunState) {
	t.Helper()
	if got.State != want {
		t.Errorf("run %s is %s (%s), want %s", got.ID, got.State, got.Reason, want)
	}
}

func lookUp(t *testing.T, d *run.Runner, id string) api.Run {
	t.Helper()
	got, err := d.Run(id)
	must(t, err)
	return got
}

// inBubble runs f in a synctest bubble, where time passes when all goroutines are blocked.
func inBubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

var must = testenv.Must
