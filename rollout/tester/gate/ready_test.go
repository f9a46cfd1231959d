package gate_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
		b := open(t, gate.Config{Dir: t.TempDir()})
		b.Fill(true)
		var err error
		for i := 0; err == nil && i < 5000; i++ {
			k := key
			k.Name = fmt.Sprint(i)
			_, err = b.Open(k, api.Change{})
		}
		if got := b.Ready(); err == nil || got == nil || got.Error() != err.Error() {
			t.Errorf("full: %v, not %v", got, err)
		}
		b.Fill(false)
		time.Sleep(2 * time.Second) // without a caller
		if err := b.Ready(); err != nil {
			t.Errorf("with room: %v", err)
		}
	})
}
