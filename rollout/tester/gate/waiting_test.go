package gate_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestWaiting shows when waits begin and end, also across restarts.
func TestWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, gate.Config{Dir: dir, Idle: time.Minute})
		start := time.Now().UTC()
		waits := func(want string) {
			t.Helper()
			got := "nobody"
			if w := b.Gate(key).Waiting; w != nil {
				got = fmt.Sprintf("%s %s since %s last %s", w.Checksum, w.Phase, w.Since.Sub(start), w.Last.Sub(start))
			}
			testenv.Equal(t, got, want, "after %s", time.Since(start))
			testenv.Equal(t, len(b.List(api.Filter{Waiting: true})) == 1, want != "nobody", "after %s", time.Since(start))
		}
		waits("nobody")
		check(b, key, "a")
		waits("a Waiting since 0s last 0s")
		time.Sleep(30 * time.Second)
		synctest.Wait()
		text, err := os.ReadFile(filepath.Join(dir, "gates.db")) // the file as a crash leaves it
		left := t.TempDir()
		must(t, errors.Join(err, os.WriteFile(filepath.Join(left, "gates.db"), text, 0o600)))
		crashed := open(t, gate.Config{Dir: left, Idle: time.Minute})
		if w := crashed.Gate(key).Waiting; w == nil || w.Checksum != "a" || !w.Since.Equal(start) {
			t.Errorf("a crash leaves %+v", w)
		}
		crashed.Close()
		check(b, key, "a")
		waits("a Waiting since 0s last 30s")
		time.Sleep(50 * time.Second)
		b.Check(key, gate.CheckRequest{Phase: "Progressing", Checksum: "a"})
		waits("a Progressing since 0s last 1m20s")
		time.Sleep(500 * time.Millisecond)
		must(t, b.Close())
		b = open(t, gate.Config{Dir: dir, Idle: time.Minute})
		waits("a Progressing since 0s last 1m20s")
		time.Sleep(500 * time.Millisecond)
		check(b, key, "b")
		waits("b Waiting since 1m21s last 1m21s")
		if _, err := b.Change("open", key, api.Change{Mode: api.Bound}); err != nil || b.Gate(key).Checksum != "b" {
			t.Errorf("bound to %q: %v", b.Gate(key).Checksum, err)
		}
		waits("nobody") // approved
		if _, err := b.Change("close", key, api.Change{}); err != nil {
			t.Error(err)
		}
		waits("b Waiting since 1m21s last 1m21s")
		b.Change("open", key, api.Change{})
		check(b, key, "b")
		b.Change("close", key, api.Change{})
		waits("nobody") // it passed the gate
		check(b, key, "c")
		waits("c Waiting since 1m21s last 1m21s")
		time.Sleep(61 * time.Second)
		waits("nobody") // its checks stopped
		check(b, key, "c")
		waits("c Waiting since 2m22s last 2m22s")
		check(b, rollbackKey, "c")
		if g := b.Gate(rollbackKey); g.Waiting != nil {
			t.Errorf("waits for a rollback: %v", g)
		}
		b.Close()
		time.Sleep(2 * time.Minute)
		b = open(t, gate.Config{Dir: dir, Idle: time.Minute})
		waits("nobody")
	})
}

// TestTTL shows that openings expire, with and without checks.
func TestTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := open(t, gate.Config{Dir: dir})
		start := time.Now()
		changes := b.Watch(t.Context())
		g, err := b.Change("open", key, api.Change{TTL: "90", Mode: api.OneShot})
		if err != nil || !g.Expires.Equal(start.Add(90*time.Second)) {
			t.Fatalf("%v %v", g, err)
		}
		b.Change("open", rollbackKey, api.Change{TTL: "1h"})
		<-changes
		<-changes
		time.Sleep(89 * time.Second)
		testenv.Equal(t, check(b, key, "a"), "pass", "before")
		testenv.Equal(t, (<-changes).Checksum, "a", "used")
		if g := <-changes; g.Open || time.Since(start) != 90*time.Second || g.Reason == "" || !g.Changed.Equal(start.Add(90*time.Second)) {
			t.Errorf("after %s: %v", time.Since(start), g)
		}
		testenv.Equal(t, check(b, key, "a"), "no", "after")
		if e := b.Audit(api.Filter{}, nil)[0]; e.Action != "expire" || e.Key != key || e.Mode != api.OneShot || e.Checksum != "a" {
			t.Errorf("audit: %v", e)
		}
		b.Close()
		for range changes { // closed with the store
		}
		time.Sleep(2 * time.Hour)
		b = open(t, gate.Config{Dir: dir})
		testenv.Equal(t, check(b, rollbackKey, "a"), "no", "after a restart")
		synctest.Wait()
		if e := b.Audit(api.Filter{}, nil)[0]; e.Action != "expire" || e.Key != rollbackKey {
			t.Errorf("audit after a restart: %v", e)
		}
	})
}

// TestClosedGatesAreForgotten shows that closed gates are forgotten after a week.
func TestClosedGatesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{Dir: t.TempDir()})
		b.Change("close", key, api.Change{})
		b.Change("open", rollbackKey, api.Change{})
		time.Sleep(6 * 24 * time.Hour)
		testenv.Equal(t, len(b.List(api.Filter{})), 2)
		time.Sleep(2 * 24 * time.Hour)
		testenv.Equal(t, len(b.List(api.Filter{})), 1)
	})
}

// TestWatchStale shows that watchers learn when checks stop, even before a restart, and when
// they come again.
func TestWatchStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := gate.Config{Dir: t.TempDir()}
		b := open(t, c)
		start := time.Now()
		expectChange := func(changes <-chan *api.Gate, after time.Duration, stale bool) {
			t.Helper()
			g := <-changes
			if took := time.Since(start); took < after || took > after+2*time.Second || g.Waiting == nil || g.Waiting.Stale != stale {
				t.Errorf("after %s: %+v, want stale %t after %s", took, g.Waiting, stale, after)
			}
		}
		changes := b.Watch(t.Context())
		synctest.Wait()
		check(b, key, "a")
		expectChange(changes, 0, false)
		time.Sleep(10 * time.Second)
		check(b, key, "a")
		expectChange(changes, 30*time.Second, true)
		if current, all := b.List(api.Filter{Waiting: true}), b.List(api.Filter{Waiting: true, Stale: true}); len(current) != 0 || len(all) != 1 {
			t.Errorf("listed are %v and %v", current, all)
		}
		check(b, key, "a")
		expectChange(changes, 30*time.Second, false)
		time.Sleep(5 * time.Second)
		check(b, key, "b") // by the same caller
		expectChange(changes, 35*time.Second, false)
		b.Close()
		time.Sleep(5 * time.Second)
		changes = open(t, c).Watch(t.Context())
		expectChange(changes, 77*time.Second, true) // the longest interval was 21 s
	})
}

// TestSlowWatcher shows that a slow watcher blocks nothing, and that its watch ends when it is too
// far behind.
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
	testenv.Equal(t, seen, 1024)
}
