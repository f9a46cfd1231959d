package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/run"
)

// S-27.
func TestShutdown(t *testing.T) {
	within(t, func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, run.Config{Dir: dir, Concurrency: 3})
		told := make(chan api.Run, 10)
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
				told <- got
			}()
			synctest.Wait()
		}
		done := make(chan error)
		go func() { done <- d.Shutdown(context.Background()) }()
		synctest.Wait()
		for range 3 { // those in the queue
			if got := <-told; got.State != api.Stopped || !got.Started.IsZero() {
				t.Errorf("got %+v", got)
			}
		}
		if _, err := d.Start(request("x"), &work{}); !errors.Is(err, run.ErrClosed) {
			t.Errorf("got %v", err)
		}
		if _, err := d.Wait(t.Context(), request("0"), &work{}); !errors.Is(err, run.ErrClosed) {
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
			if got := <-told; got.State != api.Stopped || got.Reason != "the test runner was shut down" || got.Duration < 10000 {
				t.Errorf("got %+v", got)
			}
		}
		if got := strings.Join(causes, ", "); got != strings.Repeat("the test runner was shut down, ", 2)+"the test runner was shut down" {
			t.Errorf("ended for %s", got)
		}
		if err := d.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		again := open(t, run.Config{Dir: dir})
		if got := again.Runs(api.Filter{State: api.Stopped}); len(got) != 6 {
			t.Errorf("%d are recorded", len(got))
		}
		w := &work{}
		state(t, wait(t, again, request("0"), w), api.Succeeded) // a stopped run is no verdict
	})
}

// A task that does not end does not keep the others, and the process, from ending.
func TestShutdownGivesUp(t *testing.T) {
	within(t, func(t *testing.T) {
		dir := t.TempDir()
		d := open(t, run.Config{Dir: dir})
		release := make(chan bool)
		stubborn := task(func(_ context.Context, out io.Writer) error {
			io.WriteString(out, "never")
			<-release
			return nil
		})
		left := start(t, d, request("a"), stubborn)
		told := make(chan api.Run)
		go func() {
			got, _ := d.Wait(context.Background(), request("a"), stubborn)
			told <- got
		}()
		start(t, d, request("b"), &work{takes: time.Hour})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := d.Shutdown(ctx)
		if want := "shut down: 1 of the runs did not end in time: bash of prod/app (" + left.ID + ")"; err == nil || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
		got := <-told
		if state(t, got, api.Stopped); got.Reason != "the test runner was shut down, and the task did not end in time" || got.Output != "never" {
			t.Errorf("got %+v", got)
		}
		again := open(t, run.Config{Dir: dir})
		state(t, lookUp(t, again, left.ID), api.Stopped)
		close(release)
		synctest.Wait()
		state(t, lookUp(t, d, left.ID), api.Stopped)
	})
}
