package gate_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

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
			{func() { b.Open(key, api.Change{}) }, "true -"},
			{func() { check(b, key, "a") }, "true -"},
			{func() { b.Shut(key, api.Change{}) }, "false -"},
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

// TestSlowWatcher holds up nobody, and is told the latest of each gate or given up.
func TestSlowWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{MaxKeys: 20000})
		slow, lost := b.Watch(t.Context()), b.Watch(t.Context())
		for i := range 1000 {
			b.Open(key, api.Change{Reason: fmt.Sprint(i)})
		}
		var last api.Gate
		count := 0
		for last.Reason != "999" {
			last = <-slow
			count++
		}
		if count > 3 {
			t.Errorf("the latest state came after %d", count)
		}
		go func() {
			for range slow {
			}
		}()
		for i := range 6000 {
			k := key
			k.Name = fmt.Sprint(i)
			check(b, k, "a")
		}
		synctest.Wait()
		seen := 0
		for range lost {
			seen++
		}
		if seen > 4200 {
			t.Errorf("%d were kept for a watcher that does not watch", seen)
		}
	})
}
