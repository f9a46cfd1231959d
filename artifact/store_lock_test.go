package artifact_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// Any number of stores in one directory, in this process and in others, take
// turns with an object; sweeps disturb none of them.
func TestLockOrdersWriters(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		takeTurns(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	var others []*exec.Cmd
	for range 2 {
		cmd, _ := startChild(t, "TestLockOrdersWriters", dir)
		others = append(others, cmd)
	}
	takeTurns(t, dir)
	for _, cmd := range others {
		must(t, cmd.Wait())
	}
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

// Who waits for a lock waits no longer than its context, and not for other objects.
func TestLockEnds(t *testing.T) {
	s, dir := openStore(t, artifact.StoreConfig{})
	other, _ := openStore(t, artifact.StoreConfig{Dir: dir})
	unlock, err := s.Lock(t.Context(), object)
	must(t, err)
	for _, s := range []*artifact.Store{s, other} {
		free, err := s.Lock(t.Context(), "gitrepository/default/other")
		must(t, err)
		free()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		if _, err := s.Lock(ctx, object); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a held lock: %v", err)
		}
		cancel()
	}
	unlock()
	unlock, err = other.Lock(t.Context(), object)
	must(t, err)
	unlock()
}

// takeTurns has two stores put and prune an object, each in two goroutines.
func takeTurns(t *testing.T, dir string) {
	var wg sync.WaitGroup
	inside := dir + ".inside" // is there while somebody holds the lock
	for range 2 {
		s, _ := openStore(t, artifact.StoreConfig{Dir: dir, Keep: 1})
		for range 2 {
			wg.Go(func() {
				for i := range 8 {
					unlock, err := s.Lock(t.Context(), object)
					if err = errors.Join(err, os.Mkdir(inside, 0o700)); err != nil {
						t.Error("two hold the lock, or none:", err)
						return
					}
					a, err := s.Put(t.Context(), object, "a.tar.gz", text(fmt.Sprint(i%4)))
					err = errors.Join(err, s.Prune(object, a), s.Verify(t.Context(), a), os.Remove(inside))
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
}
