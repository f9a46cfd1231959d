package gate_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestOneShotRace opens a gate for one revision, for which many ask at once.
func TestOneShotRace(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir()})
	for round := range 20 {
		if _, err := b.Change("open", key, api.Change{Mode: api.OneShot}); err != nil {
			t.Fatal(err)
		}
		var passed atomic.Int32
		var group sync.WaitGroup
		for i := range 50 {
			group.Go(func() {
				sum := fmt.Sprint(i)
				if round%2 == 1 {
					sum = "" // older callers: each is another
				}
				if check(b, key, sum) == "pass" {
					passed.Add(1)
				}
			})
		}
		group.Wait()
		if passed.Load() != 1 {
			t.Errorf("round %d: %d passed", round, passed.Load())
		}
	}
}

// TestRace does everything at once, for the race detector; what was acknowledged
// last is what holds.
func TestRace(t *testing.T) {
	b := open(t, gate.Config{Dir: t.TempDir(), MaxKeys: 100})
	changes := b.Watch(t.Context())
	go func() {
		for range changes {
		}
	}()
	var group sync.WaitGroup
	for worker := range 8 {
		group.Go(func() {
			own := key
			own.Gate = fmt.Sprint("own", worker)
			for i := range 5 {
				check(b, key, fmt.Sprint(i%3))
				b.List(api.Filter{Waiting: true})
				b.Change("open", key, api.Change{Mode: api.OneShot, TTL: "1"})
				b.Change("reject", key, api.Change{})
				b.Issue(key, 0, "")
				g, err := b.Change("open", own, api.Change{Reason: fmt.Sprint(i)})
				if err != nil || b.Gate(own) != g {
					t.Errorf("got %+v, want %+v: %v", b.Gate(own), g, err)
				}
			}
		})
	}
	group.Wait()
	last := ^uint64(0)
	for _, e := range b.Audit(api.Filter{Limit: 1000}) {
		if e.ID >= last {
			t.Errorf("entry %d after %d", e.ID, last)
		}
		last = e.ID
	}
}
