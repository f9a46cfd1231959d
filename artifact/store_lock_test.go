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

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/testenv"
)

// Any number of stores in one directory, in this process and in others, take turns with an object;
// sweeps do not disturb them.
func TestLockOrdersWriters(t *testing.T) {
	if dir := os.Getenv(childDir); dir != "" {
		putConcurrently(t, dir)
		return
	}
	dir := filepath.Join(t.TempDir(), "store")
	var cmds []*exec.Cmd
	for range 2 {
		cmd, _ := startChild(t, "TestLockOrdersWriters", dir)
		cmds = append(cmds, cmd)
	}
	putConcurrently(t, dir)
	for _, cmd := range cmds {
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

// A caller that waits for a lock, held by this process or another, gives up when its context ends,
// and does not wait for other objects or keys. The locks of a cache leave no files.
func TestLockEnds(t *testing.T) {
	stop := errors.New("stop")
	type lock = func(ctx context.Context, name string) (func(), error)
	dirs := [2]string{t.TempDir(), t.TempDir()}
	for kind, open := range map[string]func() lock{
		"store": func() lock { s, _ := openStore(t, artifact.StoreConfig{Dir: dirs[0]}); return s.Lock },
		"cache": func() lock { c, _ := openCache(t, artifact.CacheConfig{Dir: dirs[1]}); return c.Lock },
	} {
		ownLock, otherLock := open(), open()
		unlock, err := ownLock(t.Context(), object)
		must(t, err)
		for waiter, lock := range map[string]lock{"goroutine": ownLock, "process": otherLock} {
			free, err := lock(t.Context(), "gitrepository/default/other")
			must(t, err)
			free()
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() {
				_, err := lock(ctx, object)
				done <- err
			}()
			cancel(stop)
			if err := <-done; !errors.Is(err, stop) {
				t.Errorf("%s, %s: waiting for a held lock: %v", kind, waiter, err)
			}
		}
		unlock()
		unlock, err = otherLock(t.Context(), object)
		must(t, err)
		unlock()
		unlock()
	}
	dead := filepath.Join(dirs[1], "lock", "x") // of a process that died
	must(t, os.WriteFile(dead, nil, 0o600))
	c, _ := openCache(t, artifact.CacheConfig{Dir: dirs[1]})
	must(t, c.Put("key", text("content")))
	testenv.Equal(t, len(files(t, dirs[1])), 1, "the cache holds")
}

// putConcurrently puts and prunes an object in two stores, each with two goroutines.
func putConcurrently(t *testing.T, dir string) {
	var wg sync.WaitGroup
	inside := dir + ".inside" // exists while a goroutine holds the lock
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
					if err = errors.Join(err, second(s.GC(t.Context(), keepAll))); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
}
