package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A CacheConfig says where a [Cache] lives and how much it holds.
type CacheConfig struct {
	Dir      string // root directory; created with mode 0700
	MaxBytes int64  // size of all entries together; default the smaller of 1 GiB and a tenth of the volume, negative means no limit
}

// A Cache keeps content on disk by key, for any number of objects and
// processes. It may forget any entry at any time: those used longest ago go
// first, as soon as the entries take more than MaxBytes. One process keeps to
// that limit; each further one may exceed it by a sixteenth at a time.
//
// What comes out is what was put in: an entry that a crash or a disk damaged
// is no entry. Entries are written beside and renamed, so a reader never sees
// half of one; they are not flushed to the disk, for losing one is no loss.
//
// A key is any text. It must name everything that decides about the content
// and about who may see it: of content that needs credentials it names them,
// too. No key, nor anything that it could be read from, is written down: files
// are named by the SHA-256 of their key.
type Cache struct {
	root  *os.Root
	limit int64
	temp  scratch
	locks locks

	pieces sync.Pool // buffers

	mu    sync.Mutex
	known int64 // size of all entries when they were last counted; < 0: never
	added int64 // size of those this process put since

	hits, misses atomic.Int64 // of Open
}

// Directories of a cache. Files in them have names without meaning, but for
// those that are the SHA-256 of a key.
const (
	cacheEntries = "entry" // by key
	cacheTemp    = "tmp"   // being written
	cacheLocks   = "lock"  // by key, see [Cache.Lock]
)

// OpenCache opens a cache, and creates its directory when there is none.
func OpenCache(c CacheConfig) (*Cache, error) {
	if c.Dir == "" {
		return nil, errors.New("open cache: no directory given")
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	root, err := os.OpenRoot(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = cacheLimit(c.Dir)
	}
	return &Cache{root: root, limit: bound(c.MaxBytes, 0), temp: scratch{root: root, dir: cacheTemp}, known: -1}, nil
}

// Close releases the directory. Files that the cache handed out stay readable.
func (c *Cache) Close() error { return c.root.Close() }

// A cacheKey is the SHA-256 of a key.
type cacheKey [sha256.Size]byte

func keyOf(key string) cacheKey { return sha256.Sum256([]byte(key)) }

func (k cacheKey) in(dir string) string { return dir + "/" + hex.EncodeToString(k[:]) }

// An Entry is the content of an open entry of a [Cache]: it reads, seeks and
// reads at offsets, the latter from any number of goroutines. It stays
// readable when the cache forgets it meanwhile.
type Entry struct {
	*io.SectionReader
	file *os.File
}

// Close ends the reading.
func (e *Entry) Close() error { return e.file.Close() }

// Open opens the entry of key, after having checked all of it, on all
// processors: a gigabyte in the page cache takes each of two about 0.3 s. The
// error wraps [fs.ErrNotExist] when there is none.
func (c *Cache) Open(key string) (*Entry, error) {
	e, err := c.open(key)
	if err == nil {
		c.hits.Add(1)
	} else {
		c.misses.Add(1)
	}
	return e, err
}

// Counts returns how often Open found an entry, and how often it did not.
func (c *Cache) Counts() (hits, misses int64) { return c.hits.Load(), c.misses.Load() }

func (c *Cache) open(key string) (*Entry, error) {
	id := keyOf(key)
	name := id.in(cacheEntries)
	f, err := c.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open cache entry: %w", err)
	}
	size, err := c.checkEntry(f, id)
	if errors.Is(err, fs.ErrNotExist) && sameFile(c.root, name, f) {
		c.root.Remove(name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open cache entry: %w", err), f.Close())
	}
	now := time.Now()
	c.root.Chtimes(name, now, now) // used just now, for evict; a failure costs nothing but order
	return &Entry{io.NewSectionReader(f, 0, size), f}, nil
}

// Put stores what write writes as the entry of key, in place of the one that
// is there. When write or one of its writes fails nothing changes; the error
// is a [LimitError] when the content alone exceeds the cache.
func (c *Cache) Put(key string, write func(io.Writer) error) error {
	d, err := c.Create()
	if err != nil {
		return err
	}
	defer d.File().Close()
	defer d.Discard()
	out := &quota{w: d.File(), limit: c.limit - min(c.limit, trailerSize)}
	err = write(out)
	if err = cmp.Or(err, out.err); err != nil {
		return fmt.Errorf("store cache entry: %w", err)
	}
	return d.Commit(key)
}

// Remove removes the entry of key, if there is one.
func (c *Cache) Remove(key string) error {
	if err := c.root.Remove(keyOf(key).in(cacheEntries)); ignore(err, fs.ErrNotExist) != nil {
		return fmt.Errorf("remove cache entry: %w", err)
	}
	return nil
}

// Lock takes the lock of key, which orders the goroutines and processes that
// use this directory and ask for it; entries have nothing to do with it. It
// waits until it has the lock or ctx ends. The lock ends with unlock, which may
// be called more than once, or with the process.
func (c *Cache) Lock(ctx context.Context, key string) (unlock func(), err error) {
	name := keyOf(key).in(cacheLocks)
	end, err := c.locks.take(ctx, name, func() (*os.File, error) {
		if err := c.root.MkdirAll(cacheLocks, 0o700); err != nil {
			return nil, err
		}
		return openLocked(c.root, name, os.O_CREATE)
	})
	if err != nil {
		return nil, fmt.Errorf("lock cache: %w", err)
	}
	return sync.OnceFunc(func() {
		c.root.Remove(name) // while nobody else can have it; what is left, evict removes
		end()
	}), nil
}

// A quota takes a limited number of bytes, and remembers the first failure.
type quota struct {
	w        io.Writer
	n, limit int64
	err      error
}

func (q *quota) Write(b []byte) (n int, err error) {
	if q.err == nil && q.n+int64(len(b)) > q.limit {
		q.err = &LimitError{What: "bytes", Limit: q.limit}
	}
	if q.err != nil {
		return 0, q.err
	}
	n, q.err = q.w.Write(b)
	q.n += int64(n)
	return n, q.err
}
