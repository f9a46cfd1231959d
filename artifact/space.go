package artifact

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"

	"github.com/headgate-io/headgate/internal/durable"
)

// A SpaceError is a failure for want of space on the volume of a store, after
// its cache gave way. It unwraps to the failure.
type SpaceError struct {
	Store      string // directory
	StoreBytes int64  // in its artifacts
	Cache      string // directory, "" when the store has no cache
	CacheBytes int64  // in its entries
	Err        error
}

func (e *SpaceError) Error() string {
	cache := "it has no cache"
	if e.Cache != "" {
		cache = fmt.Sprintf("its cache %s %s", e.Cache, mebibytes(e.CacheBytes))
	}
	return fmt.Sprintf("%v: the volume is full: the store %s has %s of artifacts, %s: make room on it, or keep fewer superseded artifacts", e.Err, e.Store, mebibytes(e.StoreBytes), cache)
}

// Unwrap returns the failure.
func (e *SpaceError) Unwrap() error { return e.Err }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// WithRoom calls do, and calls it again when it fails for want of space and the
// cache of the store can give way: first without the half of its bytes that was
// used longest ago, then without any. When that is not enough the error is a
// *[SpaceError].
func (s *Store) WithRoom(do func() error) error {
	err := do()
	for _, share := range []int64{2, 1} {
		if !durable.NoSpace(err) {
			return err
		}
		if s.giveWay(share) {
			err = do()
		}
	}
	if _, told := errors.AsType[*SpaceError](err); told || !durable.NoSpace(err) {
		return err
	}
	full := &SpaceError{Store: s.root.Name(), Err: err}
	for a := range s.All() {
		full.StoreBytes += a.Size
	}
	if s.cache != nil {
		full.Cache = s.cache.root.Name()
		full.CacheBytes, _ = s.cache.Size()
	}
	return full
}

// giveWay has the cache lose one part of share of its bytes, those used longest
// ago. It reports whether anything went.
func (s *Store) giveWay(share int64) bool {
	if s.cache == nil {
		return false
	}
	n, _ := s.cache.shrink(func(total int64) int64 { return total - total/share })
	return n > 0
}

// Writable returns nil when something can be stored: it writes a little, and
// forgets it. The error is a *[SpaceError] where there is no space for it.
func (s *Store) Writable() error {
	return s.WithRoom(func() error {
		f, err := s.Temp()
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 64<<10))
		return errors.Join(err, f.Close())
	})
}

// A roomyWriter writes to a file in a store, whose cache gives way when there is no space for it.
type roomyWriter struct {
	file  *os.File
	store *Store
}

func (w roomyWriter) Write(p []byte) (n int, err error) {
	for {
		m, err := w.file.Write(p[n:])
		n += m
		if !durable.NoSpace(err) || !w.store.giveWay(2) {
			return n, err
		}
	}
}

// Size returns the size of all entries.
func (c *Cache) Size() (int64, error) {
	_, total, err := c.entries()
	return total, err
}

// Clear removes all entries, and returns their number and size. Those that are
// open stay readable, and take their space until they are closed.
func (c *Cache) Clear() (entries int, bytes int64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, bytes, err := c.entries()
	if err != nil {
		return 0, 0, err
	}
	entries, err = c.remove(before, bytes, 0)
	after, left, err1 := c.entries()
	return len(before) - len(after), bytes - left, errors.Join(err, err1)
}

// shrink removes the entries used longest ago until at most least(size of all) bytes are left.
func (c *Cache) shrink(least func(total int64) int64) (removed int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	entries, total, err := c.entries()
	if err != nil {
		return 0, err
	}
	return c.remove(entries, total, least(total))
}

// remove removes the first of entries until at most least bytes of total are left. The caller holds c.mu.
func (c *Cache) remove(entries []fs.FileInfo, total, least int64) (removed int, err error) {
	for _, e := range entries {
		if total <= least {
			break
		}
		if err := c.root.Remove(cacheEntries + "/" + e.Name()); ignore(err, fs.ErrNotExist) != nil {
			return removed, err
		}
		removed++
		total -= e.Size()
	}
	c.known, c.added = total, 0
	return removed, nil
}

// cacheLimit is that of a cache whose configuration names none: the smaller of
// 1 GiB and a tenth of its volume.
func cacheLimit(dir string) int64 {
	volume, err := durable.VolumeSize(dir)
	if err != nil || volume <= 0 {
		volume = math.MaxInt64
	}
	return max(min(1<<30, volume/10), 1)
}
