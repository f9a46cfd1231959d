package artifact_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// Any number of stores in one directory, as those of several processes, take
// turns with an object; sweeps disturb none of them.
func TestLockOrdersWriters(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	var inside atomic.Int64 // a file lock is none for the race detector
	for range 3 {
		s, _ := openStore(t, artifact.StoreConfig{Dir: dir, Keep: 1})
		for range 2 {
			wg.Go(func() {
				for i := range 15 {
					unlock, err := s.Lock(t.Context(), object)
					if err != nil || inside.Add(1) != 1 {
						t.Errorf("%d writers hold the lock, %v", inside.Load(), err)
						return
					}
					a, err := s.Put(t.Context(), object, "a.tar.gz", text(fmt.Sprint(i%4)))
					err = errors.Join(err, s.Prune(object, a), s.Verify(t.Context(), a))
					inside.Add(-1)
					unlock()
					unlock()
					if err = errors.Join(err, second(s.Sweep(t.Context()))); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	s, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	n := 0
	for a, err := range s.All() {
		must(t, errors.Join(err, s.Verify(t.Context(), a)))
		n++
	}
	if n != 2 {
		t.Errorf("%d artifacts, want the current one and one superseded", n)
	}
}
