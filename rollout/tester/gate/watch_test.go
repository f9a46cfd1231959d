package gate_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

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
		if current, all := b.List(api.Filter{Waiting: true}), b.List(api.Filter{Waiting: true, Stale: true}); len(current) != 0 || len(all) != 1 {
			t.Errorf("listed are %v and %v", current, all)
		}
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
