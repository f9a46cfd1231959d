package artifact_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

func TestLock(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	other, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	unlock, err := s.Lock(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	waited := make(chan error, 2)
	for _, s := range []*artifact.Store{s, other} {
		go func() {
			_, err := s.Lock(ctx, object)
			waited <- err
		}()
	}
	free, err := other.Lock(t.Context(), "gitrepository/default/other")
	if err != nil {
		t.Fatal(err)
	}
	free()
	for range 2 {
		if err := <-waited; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a held lock: %v", err)
		}
	}
	unlock()
	unlock()
	unlock, err = other.Lock(t.Context(), object)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}

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
