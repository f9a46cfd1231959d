package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// S-23: no more tasks at a time than there may be; what waits is served in order.
func TestQueue(t *testing.T) {
	within(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 2, Queue: 3})
		var mu sync.Mutex
		var order []string
		all := &work{takes: time.Minute}
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
			state(t, got, map[bool]api.RunState{true: api.Running, false: api.Queued}[i < 2])
			ids = append(ids, got.ID)
		}
		if _, err := d.Start(request("5"), noted("5")); !errors.Is(err, run.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if _, err := d.Wait(t.Context(), request("5"), noted("5")); !errors.Is(err, run.ErrBusy) {
			t.Errorf("got %v", err)
		}
		if got := start(t, d, request("4"), noted("4")); got.ID != ids[4] { // needs no place
			t.Errorf("got %+v", got)
		}
		got, err := d.Cancel(t.Context(), ids[3], "eve")
		if err != nil || got.State != api.Cancelled || !got.Started.IsZero() || got.Duration != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
		start(t, d, request("5"), noted("5")) // there is a place again
		time.Sleep(10 * time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if got := strings.Join(order, ""); got != "01245" {
			t.Errorf("in order %s", got)
		}
		if most := all.most.Load(); most != 2 {
			t.Errorf("%d at a time", most)
		}
		state(t, lookUp(t, d, ids[4]), api.Succeeded)
	})
}

// TestPlaceIsFreeAfterVerdict: who has the verdict of the one run at a time may
// ask for the next, however many others ask for something.
func TestPlaceIsFreeAfterVerdict(t *testing.T) {
	d := open(t, run.Config{Concurrency: 1, Queue: -1, Keep: 1})
	ctx, cancel := context.WithCancel(t.Context())
	var others sync.WaitGroup
	defer others.Wait()
	defer cancel()
	for range 4 {
		others.Go(func() {
			for ctx.Err() == nil {
				d.Runs(api.Filter{})
			}
		})
	}
	for i := range 200 {
		wait(t, d, request(strconv.Itoa(i)), task(func(context.Context, io.Writer) error { return nil }))
	}
}

func TestTimeout(t *testing.T) {
	within(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 1})
		for _, test := range []struct {
			asked  time.Duration
			err    func(context.Context) error
			reason string
		}{
			{0, context.Cause, "timed out after 1h0m0s"},
			{2 * time.Hour, context.Cause, "timed out after 1h0m0s"},
			{-time.Second, context.Cause, "timed out after 1h0m0s"},
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
			if state(t, got, api.TimedOut); got.Reason != test.reason {
				t.Errorf("got %q, want %q", got.Reason, test.reason)
			}
			d.Deliver(got.ID)
		}
	})
}

// S-3, S-4, S-5: what goes wrong in a task ends that task.
func TestPanic(t *testing.T) {
	within(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 1})
		for name, test := range map[string]struct {
			task   task
			reason string
		}{
			"panic":        {func(context.Context, io.Writer) error { panic("oh\nno") }, "the task panicked: oh; no"},
			"nil":          {func(context.Context, io.Writer) error { panic(nil) }, "the task panicked: panic called with nil argument"},
			"fault":        {func(context.Context, io.Writer) error { return error((*nasty)(nil)) }, "the task panicked: runtime error"},
			"end":          {func(context.Context, io.Writer) error { runtime.Goexit(); return nil }, "the task ended its goroutine"},
			"no error":     {func(context.Context, io.Writer) error { return errors.New("") }, ""},
			"odd exit":     {func(context.Context, io.Writer) error { return fmt.Errorf("a: %w", exit(-1)) }, "a: exit status /"},
			"control text": {func(context.Context, io.Writer) error { return errors.New("\x1b[31mred\x00") }, "red\ufffd"},
		} {
			got := wait(t, d, request(name), test.task)
			if state(t, got, api.Failed); !strings.HasPrefix(got.Reason, test.reason) || got.ExitCode != nil {
				t.Errorf("%s: got %+v", name, got)
			}
		}
		state(t, wait(t, d, request("after"), &work{}), api.Succeeded) // every place was given back
	})
}

type nasty struct{ text string }

func (n *nasty) Error() string { return n.text }
