package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// S-21, S-24.
func TestThousandEqualRequestsStartOneTask(t *testing.T) {
	for _, waits := range []bool{true, false} {
		inBubble(t, func(t *testing.T) {
			d, w := open(t, run.Config{}), &countingTask{duration: time.Second}
			var all sync.WaitGroup
			ids := make([]string, 1000)
			for i := range ids {
				all.Go(func() {
					if waits {
						got, err := d.Wait(context.Background(), request("a"), w)
						if err != nil || got.State != api.Succeeded || got.Output != "working\n" {
							t.Errorf("%+v, %v", got, err)
						}
						ids[i] = got.ID
						return
					}
					got, err := d.Start(request("a"), w)
					if err != nil || got.State != api.Running {
						t.Errorf("%+v, %v", got, err)
					}
					ids[i] = got.ID
				})
			}
			all.Wait()
			w.checkStarts(t, 1)
			for _, id := range ids {
				if id != ids[0] {
					t.Fatalf("runs %s and %s", id, ids[0])
				}
			}
			time.Sleep(time.Minute)
			w.checkStarts(t, 1)
		})
	}
}

// S-9.
func TestFailOnError(t *testing.T) {
	for name, end := range map[string]struct {
		takes time.Duration
		err   error
		state api.RunState
		again bool // the next request gets it
	}{
		"failed":    {time.Minute, exit(1), api.Failed, true},
		"timed out": {2 * time.Hour, nil, api.TimedOut, true},
		"succeeded": {time.Minute, nil, api.Succeeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				d, w := open(t, run.Config{Verdict: 10 * time.Hour}), &countingTask{duration: end.takes, err: end.err}
				r := request("a")
				r.FailOnError = true
				first := start(t, d, r, w)
				time.Sleep(3 * time.Hour)
				checkState(t, lookUp(t, d, first.ID), end.state)
				if end.again {
					for range 2 {
						repeated := start(t, d, r, w)
						checkState(t, repeated, end.state)
						if repeated.ID != first.ID || repeated.Output != "working\n" {
							t.Errorf("got %+v", repeated)
						}
					}
					d.Deliver(first.ID)
					w.checkStarts(t, 1)
				}
				checkState(t, start(t, d, r, w), api.Running)
				synctest.Wait()
				w.checkStarts(t, 2)
			})
		})
	}
}

// The age of a verdict with a time in the future is unknown.
func TestVerdictOfWrongClockIsNotShared(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var clockOffset atomic.Int64
		d, w := open(t, run.Config{Now: func() time.Time { return time.Now().Add(time.Duration(clockOffset.Load())) }}), &countingTask{err: exit(1)}
		clockOffset.Store(int64(24 * time.Hour))
		first := wait(t, d, request("a"), w)
		clockOffset.Store(0)
		if again := wait(t, d, request("a"), w); again.ID == first.ID {
			t.Error("shared")
		}
	})
}

// S-18, S-19, S-20: every field that distinguishes requests is part of the key, and text
// cannot move from one field to another.
func TestKeys(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d, w := open(t, run.Config{}), &countingTask{duration: time.Hour}
		change := func(f func(*run.Request)) run.Request {
			r := request("5")
			r.Metadata = maps.Clone(r.Metadata)
			f(&r)
			return r
		}
		different := []run.Request{
			request("5"),
			change(func(r *run.Request) { r.Namespace, r.Name = "", "prodapp" }),
			change(func(r *run.Request) { r.Namespace, r.Name = "prodapp", "" }),
			change(func(r *run.Request) { r.Namespace = "test" }),
			change(func(r *run.Request) { r.Name = "other" }),
			change(func(r *run.Request) { r.Checksum = "c2" }),
			change(func(r *run.Request) { r.Checksum = "" }),
			change(func(r *run.Request) { r.Type = "ngrinder" }),
			change(func(r *run.Request) { r.Metadata["wait"] = "true" }),
			change(func(r *run.Request) { r.Metadata["logCmdOutput"] = "true" }),
			change(func(r *run.Request) { r.Metadata["cmd"], r.Metadata["x"] = "", "5" }),
			change(func(r *run.Request) { r.Metadata = map[string]string{"cmd5": "", "type": "bash"} }),
			change(func(r *run.Request) { r.Metadata = map[string]string{"cmd": "5type", "": "bash"} }),
			change(func(r *run.Request) { r.Metadata = nil }),
		}
		seen := map[string]int{}
		for i, r := range different {
			id := start(t, d, r, w).ID
			if j, ok := seen[id]; ok {
				t.Errorf("requests %d and %d are equal", j, i)
			}
			seen[id] = i
		}
		same := change(func(r *run.Request) {
			r.Phase, r.Actor, r.Timeout, r.OutputLimit, r.Secrets = "Promoting", "x", 1, 1, []string{"x"}
		})
		if i, ok := seen[start(t, d, same, w).ID]; !ok || i != 0 {
			t.Error("a request is not equal to itself in another phase")
		}
	})
}

// A cancelled task counts as under way until it returns, so that its successor does not overlap.
func TestCancelledTaskIsUnderWayUntilItReturns(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{})
		stubborn := task(func(ctx context.Context, _ io.Writer) error {
			<-ctx.Done()
			time.Sleep(time.Minute)
			return nil
		})
		first := start(t, d, request("a"), stubborn)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := d.Cancel(ctx, first.ID, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		testenv.Equal(t, start(t, d, request("a"), stubborn).ID, first.ID, "a second one was started")
		checkState(t, wait(t, d, request("a"), stubborn), api.Cancelled)
		if got := lookUp(t, d, first.ID); got.Reason != "cancelled" || got.Duration != 60000 {
			t.Errorf("got %+v", got)
		}
	})
}

// A request with Abandon ends with the last of its callers. A request that comes while the run
// ends gets a run of its own.
func TestAbandon(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{})
		slow := task(func(ctx context.Context, _ io.Writer) error {
			select {
			case <-time.After(30 * time.Minute):
				return nil
			case <-ctx.Done():
				time.Sleep(time.Minute) // it takes a while to end
				return context.Cause(ctx)
			}
		})
		r := request("a")
		r.Abandon = true
		leaves := func(after time.Duration) (got api.Run) {
			ctx, cancel := context.WithTimeout(t.Context(), after)
			defer cancel()
			got, err := d.Wait(ctx, r, slow)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %+v, %v", got, err)
			}
			return got
		}
		go leaves(time.Second)
		first := leaves(10 * time.Second)
		if next := wait(t, d, r, slow); next.ID == first.ID || next.State != api.Succeeded {
			t.Errorf("got %+v", next)
		}
		if got := lookUp(t, d, first.ID); got.State != api.Cancelled || got.Reason != "cancelled by its caller, who left" || got.Duration != 70000 {
			t.Errorf("got %+v", got)
		}
	})
}

// S-23: the number of concurrent tasks is limited, and queued runs start in order.
func TestQueue(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 2, Queue: 3})
		var mu sync.Mutex
		var order []string
		all := &countingTask{duration: time.Minute}
		noted := func(name string) run.Task {
			return task(func(ctx context.Context, out io.Writer) error {
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				return all.Run(ctx, out)
			})
		}
		var ids []string
		for i := range 5 {
			name := fmt.Sprint(i)
			got := start(t, d, request(name), noted(name))
			time.Sleep(time.Second)
			checkState(t, got, map[bool]api.RunState{true: api.Running, false: api.Queued}[i < 2])
			ids = append(ids, got.ID)
		}
		if _, err := d.Start(request("5"), noted("5")); !errors.Is(err, run.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if _, err := d.Wait(t.Context(), request("5"), noted("5")); !errors.Is(err, run.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if got := start(t, d, request("4"), noted("4")); got.ID != ids[4] { // needs no slot
			t.Errorf("got %+v", got)
		}
		got, err := d.Cancel(t.Context(), ids[3], "eve")
		if err != nil || got.State != api.Cancelled || !got.Started.IsZero() || got.Duration != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		start(t, d, request("5"), noted("5")) // there is a free slot again
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		testenv.Equal(t, strings.Join(order, ""), "01245", "in order")
		testenv.Equal(t, all.maxActive.Load(), 2)
		checkState(t, lookUp(t, d, ids[4]), api.Succeeded)
	})
}

// TestSlotIsFreeAfterVerdict: with one slot, a caller that has a verdict can start the
// next run at once, however many other requests there are.
func TestSlotIsFreeAfterVerdict(t *testing.T) {
	d := open(t, run.Config{Concurrency: 1, Queue: -1, Keep: 1})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				d.Runs(api.Filter{}, nil)
			}
		})
	}
	for i := range 200 {
		wait(t, d, request(strconv.Itoa(i)), task(func(context.Context, io.Writer) error { return nil }))
	}
}

func TestTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 1})
		for _, test := range []struct {
			asked  time.Duration
			err    func(context.Context) error
			reason string
		}{
			{0, context.Cause, "timed out after 1h0m0s"},
			{2 * time.Hour, context.Cause, "timed out after 1h0m0s"},
			{time.Minute, func(ctx context.Context) error { return ctx.Err() }, "timed out after 1m0s"},
			{time.Minute, func(context.Context) error { return nil }, "timed out after 1m0s"}, // a test that was cut short has not passed
			{time.Minute, func(context.Context) error { return exit(2) }, "timed out after 1m0s: exit status 2"},
			{time.Minute, func(ctx context.Context) error { return fmt.Errorf("waiting for pods: %w", context.Cause(ctx)) }, "waiting for pods: timed out after 1m0s"},
		} {
			r := request(test.reason)
			r.Timeout = test.asked
			got := wait(t, d, r, task(func(ctx context.Context, _ io.Writer) error {
				<-ctx.Done()
				return test.err(ctx)
			}))
			if checkState(t, got, api.TimedOut); got.Reason != test.reason {
				t.Errorf("got %q, want %q", got.Reason, test.reason)
			}
			d.Deliver(got.ID)
		}
	})
}

// S-3, S-4, S-5: a panic or a Goexit in a task ends only that task.
func TestPanic(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 1})
		for name, test := range map[string]struct {
			task   task
			reason string
		}{
			"panic":        {func(context.Context, io.Writer) error { panic("oh\nno") }, "the task panicked: oh; no"},
			"nil":          {func(context.Context, io.Writer) error { panic(nil) }, "the task panicked: panic called with nil argument"},
			"fault":        {func(context.Context, io.Writer) error { return error((*textError)(nil)) }, "the task panicked: runtime error"},
			"end":          {func(context.Context, io.Writer) error { runtime.Goexit(); return nil }, "the task ended its goroutine"},
			"no error":     {func(context.Context, io.Writer) error { return errors.New("") }, ""},
			"odd exit":     {func(context.Context, io.Writer) error { return fmt.Errorf("a: %w", exit(-1)) }, "a: exit status /"},
			"control text": {func(context.Context, io.Writer) error { return errors.New("\x1b[31mred\x00") }, "red\ufffd"},
		} {
			got := wait(t, d, request(name), test.task)
			if checkState(t, got, api.Failed); !strings.HasPrefix(got.Reason, test.reason) || got.ExitCode != nil {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		checkState(t, wait(t, d, request("after"), &countingTask{}), api.Succeeded) // all slots are free again
	})
}

type textError struct{ text string }

func (n *textError) Error() string { return n.text }

// S-27.
func TestShutdown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, run.Config{Dir: dir, Concurrency: 3})
		results := make(chan api.Run, 10)
		var mu sync.Mutex
		var causes []string
		for i := range 6 {
			go func() {
				got, err := d.Wait(context.Background(), request(fmt.Sprint(i)), task(func(ctx context.Context, _ io.Writer) error {
					<-ctx.Done()
					time.Sleep(10 * time.Second) // it takes a while to end
					mu.Lock()
					defer mu.Unlock()
					causes = append(causes, context.Cause(ctx).Error())
					return context.Cause(ctx)
				}))
				if err != nil {
					t.Error(err)
				}
				results <- got
			}()
			synctest.Wait()
		}
		done := make(chan error)
		go func() { done <- d.Shutdown(context.Background()) }()
		synctest.Wait()
		for range 3 { // the queued runs
			if got := <-results; got.State != api.Stopped || !got.Started.IsZero() {
				t.Errorf("got %+v", got)
			}
		}
		if _, err := d.Start(request("x"), &countingTask{}); !errors.Is(err, run.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := d.Wait(t.Context(), request("0"), &countingTask{}); !errors.Is(err, run.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if err := d.Ready(); !errors.Is(err, run.ErrClosed) {
			t.Errorf("got %v", err)
		}
		select {
		case err := <-done:
			t.Errorf("shut down before the tasks have returned: %v", err)
		default:
		}
		if err := <-done; err != nil || len(causes) != 3 {
			t.Errorf("%v, %d returned", err, len(causes))
		}
		for range 3 {
			if got := <-results; got.State != api.Stopped || got.Reason != "the test runner was shut down" || got.Duration < 10000 {
				t.Errorf("got %+v", got)
			}
		}
		testenv.Equal(t, strings.Join(causes, ", "), strings.Repeat("the test runner was shut down, ", 2)+"the test runner was shut down", "ended for")
		testenv.Equal(t, d.Shutdown(t.Context()), nil)
		again := open(t, run.Config{Dir: dir})
		testenv.Equal(t, len(again.Runs(api.Filter{State: api.Stopped}, nil)), 6)
		w := &countingTask{}
		checkState(t, wait(t, again, request("0"), w), api.Succeeded) // a stopped run leaves no verdict
	})
}

// A task that does not end does not prevent a shutdown.
func TestShutdownGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, run.Config{Dir: dir})
		release := make(chan bool)
		stubborn := task(func(_ context.Context, out io.Writer) error {
			io.WriteString(out, "never")
			<-release
			return nil
		})
		left := start(t, d, request("a"), stubborn)
		results := make(chan api.Run)
		go func() {
			got, _ := d.Wait(context.Background(), request("a"), stubborn)
			results <- got
		}()
		start(t, d, request("b"), &countingTask{duration: time.Hour})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := d.Shutdown(ctx)
		if want := "shut down: 1 of the runs did not end in time: bash of prod/app (" + left.ID + ")"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		got := <-results
		if checkState(t, got, api.Stopped); got.Reason != "the test runner was shut down, and the task did not end in time" || got.Output != "never" {
			t.Errorf("got %+v", got)
		}
		again := open(t, run.Config{Dir: dir})
		checkState(t, lookUp(t, again, left.ID), api.Stopped)
		close(release)
		synctest.Wait()
		checkState(t, lookUp(t, d, left.ID), api.Stopped)
	})
}

// A run can end before its goroutine has begun.
func TestShutdownAtOnce(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 200 {
		d := open(t, run.Config{})
		left := start(t, d, request("a"), task(func(ctx context.Context, _ io.Writer) error { <-ctx.Done(); return ctx.Err() }))
		d.Shutdown(canceled) // it may give up
		checkState(t, lookUp(t, d, left.ID), api.Stopped)
	}
}
