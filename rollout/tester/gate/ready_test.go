package gate_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// TestReady shows when a book takes no changes.
func TestReady(t *testing.T) {
	for _, dir := range []string{"", t.TempDir()} {
		b := open(t, gate.Config{Dir: dir})
		if err := b.Ready(); err != nil {
			t.Errorf("directory %q: %v", dir, err)
		}
		b.Close()
		if err := b.Ready(); !errors.Is(err, gate.ErrClosed) {
			t.Errorf("directory %q, closed: %v", dir, err)
		}
	}
	var later atomic.Int64
	b := open(t, gate.Config{Dir: t.TempDir(), Now: func() time.Time { return time.Now().Add(time.Duration(later.Load())) }})
	b.Fill()
	var err error
	for i := 0; err == nil && i < 5000; i++ {
		k := key
		k.Name = fmt.Sprint(i)
		_, err = b.Open(k, api.Change{})
	}
	if got := b.Ready(); err == nil || !errors.Is(got, err) {
		t.Errorf("full: %v, not %v", got, err)
	}
	for _, by := range []time.Duration{time.Minute, -time.Hour} {
		later.Store(int64(by))
		if err := b.Ready(); err != nil {
			t.Errorf("%s later: %v", by, err)
		}
	}
}
