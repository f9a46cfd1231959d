//go:build unix

package artifact_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/headgate-io/headgate/artifact"
)

// WithRoom deletes half of the cache at a time, least recently used entries first, and no more than
// needed.
func TestWithRoom(t *testing.T) {
	cache, err := artifact.OpenCache(artifact.CacheConfig{Dir: t.TempDir()})
	must(t, err)
	defer cache.Close()
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: t.TempDir(), Cache: cache})
	must(t, err)
	defer store.Close()
	put := func(key string) {
		must(t, cache.Put(key, func(w io.Writer) error { _, err := w.Write(make([]byte, 1000)); return err }))
	}
	has := func(key string) bool {
		e, err := cache.Open(key)
		if err == nil {
			e.Close()
		}
		return err == nil
	}
	for i := range 4 {
		put(fmt.Sprint(i))
	}
	if !has("0") { // marks it as used
		t.Fatal("the entry is gone")
	}
	tries := 0
	err = store.WithRoom(func() error {
		if tries++; tries < 2 {
			return fmt.Errorf("write: %w", syscall.ENOSPC)
		}
		return nil
	})
	if err != nil || tries != 2 || !has("0") || has("1") || has("2") {
		t.Errorf("%v after %d tries; left: %t %t %t %t", err, tries, has("0"), has("1"), has("2"), has("3"))
	}
	tries = 0
	err = store.WithRoom(func() error { tries++; return fmt.Errorf("write: %w", syscall.ENOSPC) })
	var full *artifact.SpaceError
	if !errors.As(err, &full) || tries != 3 || !strings.Contains(full.Error(), "has 0.0 MiB of artifacts, its cache ") || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%d tries: %v", tries, err)
	}
	tries = 0
	if err = store.WithRoom(func() error { tries++; return syscall.EIO }); err != syscall.EIO || tries != 1 {
		t.Errorf("%d tries: %v", tries, err)
	}
	put("a")
	if n, size, err := cache.Clear(); n != 1 || size < 1000 || err != nil || has("a") {
		t.Errorf("%d entries, %d bytes, %v", n, size, err)
	}
	if err := store.Writable(); err != nil {
		t.Error(err)
	}
}
