package run_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// S-21, S-24.
func TestThousandEqualRequestsStartOneTask(t *testing.T) {
	for _, waits := range []bool{true, false} {
		within(t, func(t *testing.T) {
			d, w := open(t, run.Config{}), &work{takes: time.Second}
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
			w.started(t, 1)
			for _, id := range ids {
				if id != ids[0] {
					t.Fatalf("runs %s and %s", id, ids[0])
				}
			}
			time.Sleep(time.Minute)
			w.started(t, 1)
		})
	}
}

// S-9.
func TestFailOnError(t *testing.T) {
	for name, end := range map[string]struct {
		takes time.Duration
		err   error
		state api.RunState
		again bool // it is told at the next request
	}{
		"failed":    {time.Minute, exit(1), api.Failed, true},
		"timed out": {2 * time.Hour, nil, api.TimedOut, true},
		"succeeded": {time.Minute, nil, api.Succeeded, false},
	} {
		t.Run(name, func(t *testing.T) {
			within(t, func(t *testing.T) {
				d, w := open(t, run.Config{Verdict: 10 * time.Hour}), &work{takes: end.takes, err: end.err}
				r := request("a")
				r.FailOnError = true
				first := start(t, d, r, w)
				time.Sleep(3 * time.Hour)
				state(t, lookUp(t, d, first.ID), end.state)
				if end.again {
					for range 2 {
						told := start(t, d, r, w)
						state(t, told, end.state)
						if told.ID != first.ID || told.Output != "working\n" {
							t.Errorf("got %+v", told)
						}
					}
					d.Deliver(first.ID)
					w.started(t, 1)
				}
				state(t, start(t, d, r, w), api.Running)
				synctest.Wait()
				w.started(t, 2)
			})
		})
	}
}

// A verdict of a time that is still to come is of no known age.
func TestVerdictOfWrongClockIsNotShared(t *testing.T) {
	within(t, func(t *testing.T) {
		var wrong atomic.Int64
		d, w := open(t, run.Config{Now: func() time.Time { return time.Now().Add(time.Duration(wrong.Load())) }}), &work{err: exit(1)}
		wrong.Store(int64(24 * time.Hour))
		first := wait(t, d, request("a"), w)
		wrong.Store(0)
		if again := wait(t, d, request("a"), w); again.ID == first.ID {
			t.Error("shared")
		}
	})
}

// S-18, S-19, S-20: everything that distinguishes requests is in the key, and
// nothing can be moved from one part of it to another.
func TestKeys(t *testing.T) {
	within(t, func(t *testing.T) {
		d, w := open(t, run.Config{}), &work{takes: time.Hour}
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

// While a task that was cancelled has not returned, its successor would meet it.
func TestCancelledTaskIsUnderWayUntilItReturns(t *testing.T) {
	within(t, func(t *testing.T) {
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
		if again := start(t, d, request("a"), stubborn); again.ID != first.ID {
			t.Error("a second one was started")
		}
		state(t, wait(t, d, request("a"), stubborn), api.Cancelled)
		if got := lookUp(t, d, first.ID); got.Reason != "cancelled" || got.Duration != 60000 {
			t.Errorf("got %+v", got)
		}
	})
}

// A request that is abandoned ends with the last of its callers; one that comes while
// it ends gets a run of its own.
func TestAbandon(t *testing.T) {
	within(t, func(t *testing.T) {
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
