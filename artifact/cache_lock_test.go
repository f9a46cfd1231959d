package artifact_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

func TestCacheLock(t *testing.T) {
	dir := t.TempDir()
	a, _ := openCache(t, artifact.CacheConfig{Dir: dir})
	b, _ := openCache(t, artifact.CacheConfig{Dir: dir}) // as another process would
	var wg sync.WaitGroup
	var inside, total atomic.Int64 // a file lock is none for the race detector
	for i := range 40 {
		c := []*artifact.Cache{a, b}[i%2]
		wg.Go(func() {
			unlock, err := c.Lock(t.Context(), "key")
			if err != nil {
				t.Error(err)
				return
			}
			if inside.Add(1) > 1 {
				t.Error("two have the lock")
			}
			total.Add(1)
			inside.Add(-1)
			unlock()
			unlock()
		})
	}
	wg.Wait()
	if total.Load() != 40 {
		t.Errorf("%d turns, want 40", total.Load())
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("left %v", got)
	}
}

func TestCacheLockEnds(t *testing.T) {
	dir := t.TempDir()
	a, _ := openCache(t, artifact.CacheConfig{Dir: dir})
	b, _ := openCache(t, artifact.CacheConfig{Dir: dir})
	unlock, err := a.Lock(t.Context(), "key")
	must(t, err)
	other, err := a.Lock(t.Context(), "other key")
	must(t, err)
	other()
	stop := errors.New("stop")
	for name, c := range map[string]*artifact.Cache{"goroutine": a, "process": b} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() {
			_, err := c.Lock(ctx, "key")
			done <- err
		}()
		cancel(stop)
		if err := <-done; !errors.Is(err, stop) {
			t.Errorf("%s: %v", name, err)
		}
	}
	unlock()
	if unlock, err = b.Lock(t.Context(), "key"); err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := os.WriteFile(filepath.Join(dir, "lock", "x"), nil, 0o600); err != nil { // of a process that died
		t.Fatal(err)
	}
	must(t, a.Put("key", text("content")))
	if got := files(t, dir); len(got) != 1 {
		t.Errorf("left %v", got)
	}
}

// A draft is written in any order, and stays readable whatever becomes of it.
func TestCacheDraft(t *testing.T) {
	c, dir := openCache(t, artifact.CacheConfig{MaxBytes: 1000})
	d, err := c.Create()
	must(t, err)
	defer d.File().Close()
	for at, s := range []string{"c", "o", "n", "t"} {
		must(t, second(d.File().WriteAt([]byte(s), int64(3-at))))
	}
	must(t, d.Commit("key"))
	d.Discard()
	if got := cached(t, c, "key"); got != "tnoc" {
		t.Errorf("the entry holds %q", got)
	}
	e, err := c.Open("key")
	must(t, err)
	defer e.Close()
	if err := c.Remove("key"); err != nil {
		t.Error(err)
	}
	if err := c.Remove("key"); err != nil {
		t.Errorf("removed twice: %v", err)
	}
	for name, f := range map[string]io.ReaderAt{"draft": d.File(), "entry": e} {
		if b := make([]byte, 4); e.Size() != 4 {
			t.Errorf("size %d", e.Size())
		} else if _, err := f.ReadAt(b, 0); err != nil || string(b) != "tnoc" {
			t.Errorf("%s after removal: %q, %v", name, b, err)
		}
	}

	for name, size := range map[string]int64{"discarded": 10, "too large": 2000} {
		d, err := c.Create()
		must(t, err)
		must(t, d.File().Truncate(size))
		var limit *artifact.LimitError
		if size > 1000 && !errors.As(d.Commit("key"), &limit) {
			t.Errorf("%s: committed", name)
		}
		d.Discard()
		if _, err := d.File().ReadAt(make([]byte, 1), 0); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		d.File().Close()
	}
	if _, err := c.Open("key"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("entry that was not committed: %v", err)
	}
	if got := files(t, dir); len(got) > 0 {
		t.Errorf("left %v", got)
	}
}
