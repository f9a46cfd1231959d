package gate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestWatch sees changes and who waits, and no more after the end.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		changes := b.Watch(ctx)
		synctest.Wait()
		for _, step := range []struct {
			do   func()
			want string
		}{
			{func() { check(b, key, "a") }, "false a"},
			{func() { b.Change("open", key, api.Change{}) }, "true -"},
			{func() { check(b, key, "a") }, "true -"},
			{func() { b.Change("close", key, api.Change{}) }, "false -"},
			{func() { check(b, key, "a") }, "false a"},
			{func() { check(b, key, "b") }, "false b"},
		} {
			step.do()
			g := <-changes
			waiting := "-"
			if g.Waiting != nil {
				waiting = g.Waiting.Checksum
			}
			if got := fmt.Sprint(g.Open, " ", waiting); got != step.want || g.Key != key {
				t.Errorf("%v: %s, want %s", g, got, step.want)
			}
		}
		check(b, key, "b") // as before
		synctest.Wait()
		select {
		case g := <-changes:
			t.Errorf("nothing changed: %v", g)
		default:
		}
		cancel()
		if g, more := <-changes; more {
			t.Errorf("after the end: %v", g)
		}
	})
}

// TestWatchStale is told when nothing asks any more, also of the time before a
// restart, and when something asks again.
func TestWatchStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gate.Config{Dir: t.TempDir()}
		b := open(t, c)
		start := time.Now()
		told := func(changes <-chan *api.Gate, after time.Duration, stale bool) {
			t.Helper()
			g := <-changes
			if took := time.Since(start); took < after || took > after+2*time.Second || g.Waiting == nil || g.Waiting.Stale != stale {
				t.Errorf("after %s: %+v, want stale %t after %s", took, g.Waiting, stale, after)
			}
		}
		changes := b.Watch(t.Context())
		synctest.Wait()
		check(b, key, "a")
		told(changes, 0, false)
		time.Sleep(10 * time.Second)
		check(b, key, "a")
		told(changes, 30*time.Second, true)
		check(b, key, "a")
		told(changes, 30*time.Second, false)
		time.Sleep(5 * time.Second)
		check(b, key, "b") // of the same caller
		told(changes, 35*time.Second, false)
		b.Close()
		time.Sleep(5 * time.Second)
		changes = open(t, c).Watch(t.Context())
		told(changes, 77*time.Second, true) // the longest interval was 21 s
	})
}

// TestSlowWatcher holds up nobody, and is given up when it is too far behind.
func TestSlowWatcher(t *testing.T) {
	b := open(t, gate.Config{})
	slow := b.Watch(t.Context())
	for i := range 6000 {
		k := key
		k.Name = fmt.Sprint(i)
		check(b, k, "a")
	}
	seen := 0
	for range slow {
		seen++
	}
	if seen != 1024 {
		t.Errorf("%d were kept for a watcher that does not watch", seen)
	}
}
