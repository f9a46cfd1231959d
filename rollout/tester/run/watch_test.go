package run_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

func TestWatch(t *testing.T) {
	within(t, func(t *testing.T) {
		d := open(t, run.Config{Concurrency: 1})
		changes := d.Watch(t.Context())
		next := func(want string) {
			t.Helper()
			synctest.Wait()
			r := <-changes
			if got := fmt.Sprintf("%s %s %t", r.Metadata["cmd"], r.State, r.Delivered); got != want || r.Output != "" {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		w := &work{takes: time.Second, err: exit(1)}
		start(t, d, request("a"), w)
		next("a running false")
		start(t, d, request("b"), w)
		next("b queued false")
		time.Sleep(time.Second)
		next("a failed false")
		next("b running false")
		got := wait(t, d, request("b"), w)
		next("b running false") // and somebody waits for it
		next("b failed false")
		d.Deliver(got.ID)
		next("b failed true")
		start(t, d, request("c"), &work{takes: time.Hour})
		next("c running false")
		shutdown(t, d)
		next("c stopped false")
		if r, ok := <-changes; ok {
			t.Errorf("got %+v", r)
		}
		if _, ok := <-d.Watch(t.Context()); ok {
			t.Error("there is something to see of a desk that is shut down")
		}
	})
}
