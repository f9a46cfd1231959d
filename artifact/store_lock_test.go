package artifact_test

import (
	"runtime"
	"sync"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

func TestLockExcludesGoroutines(t *testing.T) {
	s, _ := openStore(t, artifact.StoreConfig{})
	var wg sync.WaitGroup
	var inside, total int
	for range 4 {
		wg.Go(func() {
			for range 25 {
				unlock, err := s.Lock(t.Context(), object)
				if err != nil {
					t.Error(err)
					return
				}
				if inside++; inside != 1 {
					t.Errorf("%d writers hold the lock", inside)
				}
				runtime.Gosched()
				inside--
				total++
				unlock()
				if _, err := s.Sweep(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if total != 100 {
		t.Errorf("%d turns, want 100", total)
	}
}
