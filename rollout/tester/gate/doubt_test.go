package gate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestDoubt refuses changes whose write the disk did not confirm, though it is in
// the file: after the next change, some seconds, or an orderly end it is not.
func TestDoubt(t *testing.T) {
	other := key
	other.Gate = "other"
	for name, next := range map[string]func(*gate.Store) error{
		"a change":     func(b *gate.Store) error { _, err := b.Shut(other, api.Change{}); return err },
		"some seconds": func(b *gate.Store) error { time.Sleep(20 * time.Second); return nil },
		"the end":      func(b *gate.Store) error { return nil },
	} {
		for _, writes := range []int{1, 2} { // the second is that of a repair, which writes what holds
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				b := open(t, gate.Config{Dir: dir})
				b.Open(other, api.Change{Mode: api.Bound, Checksum: "a", Reason: "before"})
				b.Doubt(writes)
				if _, err := b.Open(key, api.Change{Reason: "refused"}); err == nil {
					t.Fatal("opened")
				}
				synctest.Wait()
				if err := next(b); err != nil && writes == 1 {
					t.Error(err)
				}
				left := b.Gate(other)
				if err := b.Close(); err != nil && (name != "the end" || writes == 1) {
					t.Error(err)
				}
				b = open(t, gate.Config{Dir: dir})
				defer b.Close()
				if g := b.Gate(key); g.Open || g.Reason != "" || b.Gate(other) != left {
					t.Errorf("%s: %+v, %+v", name, g, b.Gate(other))
				}
				for _, e := range b.Audit(api.Filter{}) {
					if e.Reason == "refused" {
						t.Errorf("%s: %+v", name, e)
					}
				}
				if _, err := b.Open(key, api.Change{}); err != nil {
					t.Error(err)
				}
			})
		}
	}
}
