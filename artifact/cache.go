package artifact

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"lukechampine.com/blake3"

	"github.com/headgate-io/headgate/internal/durable"
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
	temp  tempDir
	locks locks

	mu   sync.Mutex
	room int64 // bytes that this process may put before the entries are counted again

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
	root, err := openDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = cacheLimit(c.Dir)
	}
	return &Cache{root: root, limit: bound(c.MaxBytes, 0), temp: tempDir{root, cacheTemp}}, nil
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

// Open opens the entry of key, after having checked all of it. The error wraps
// [fs.ErrNotExist] when there is none.
func (c *Cache) Open(key string) (*Entry, error) {
	e, err := c.open(keyOf(key))
	if err != nil {
		c.misses.Add(1)
		return nil, fmt.Errorf("open cache entry: %w", err)
	}
	c.hits.Add(1)
	return e, nil
}

// Counts returns how often Open found an entry, and how often it did not.
func (c *Cache) Counts() (hits, misses int64) { return c.hits.Load(), c.misses.Load() }

func (c *Cache) open(id cacheKey) (*Entry, error) {
	name := id.in(cacheEntries)
	f, err := c.root.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := checkEntry(f, id)
	if err != nil {
		if same, _ := sameFile(c.root, name, f); same && errors.Is(err, fs.ErrNotExist) {
			c.root.Remove(name)
		}
		return nil, errors.Join(err, f.Close())
	}
	now := time.Now()
	c.root.Chtimes(name, now, now) // used just now, for shrink; a failure costs nothing but order
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
	out := &sink{ctx: context.Background(), w: d.File(), limit: c.most()}
	err = write(out)
	if err = cmp.Or(err, out.err); err != nil {
		return fmt.Errorf("store cache entry: %w", err)
	}
	return d.Commit(key)
}

// most is how much content an entry may have.
func (c *Cache) most() int64 { return c.limit - min(c.limit, sumSize) }

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
	defer wrap(&err, "lock cache")
	name := keyOf(key).in(cacheLocks)
	end, err := c.locks.take(ctx, c.root, name)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		c.root.Remove(name) // while no other process can hold it; what is left, evict removes
		end()
	}), nil
}

// An entry is a file: the content and a sum, the BLAKE3 of the hash of its key
// and the content.
const sumSize = 32

// A Draft is an entry being written, for content that comes in no order or is
// used while the cache already has it. It ends with Commit or Discard, neither
// of which closes the file.
type Draft struct {
	cache *Cache
	file  *tempFile
}

// Create begins a draft: an empty file that disappears unless it is committed.
func (c *Cache) Create() (*Draft, error) {
	f, err := c.temp.create()
	if err != nil {
		return nil, fmt.Errorf("create cache entry: %w", err)
	}
	return &Draft{c, f}, nil
}

// File is where the content goes. The caller closes it.
func (d *Draft) File() *os.File { return d.file.File }

// Commit makes what the file holds the entry of key, in place of the one that
// is there. The content must not change any more; more may be written behind
// it by the cache. The error is a [LimitError] when the content alone exceeds
// the cache.
func (d *Draft) Commit(key string) (err error) {
	defer wrap(&err, "store cache entry")
	id := keyOf(key)
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if limit := d.cache.most(); size > limit {
		return &LimitError{What: "bytes", Limit: limit}
	}
	sum, err := entrySum(d.file, size, id)
	if err != nil {
		return err
	}
	if _, err := d.file.WriteAt(sum, size); err != nil {
		return err
	}
	if err := d.file.move(id.in(cacheEntries)); err != nil {
		return err
	}
	return d.cache.account(size + sumSize)
}

// Discard removes the file, unless it was committed. It stays usable while it
// is open.
func (d *Draft) Discard() { d.file.discard() }

// checkEntry returns the length of the content of f. The error wraps
// fs.ErrNotExist when f is not a whole entry.
func checkEntry(f *os.File, id cacheKey) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size() - sumSize
	if size < 0 {
		return 0, fmt.Errorf("torn entry: %w", fs.ErrNotExist)
	}
	var want [sumSize]byte
	if _, err := f.ReadAt(want[:], size); err != nil {
		return 0, err
	}
	sum, err := entrySum(f, size, id)
	if err == nil && !bytes.Equal(sum, want[:]) {
		err = fmt.Errorf("damaged entry: %w", fs.ErrNotExist)
	}
	return size, err
}

const sumBuffer = 128 << 10

var sumBuffers = sync.Pool{New: func() any { return new([sumBuffer]byte) }}

// entrySum computes the sum of an entry.
func entrySum(r io.ReaderAt, size int64, id cacheKey) ([]byte, error) {
	h := blake3.New(sumSize, nil)
	h.Write(id[:])
	buf := sumBuffers.Get().(*[sumBuffer]byte)
	defer sumBuffers.Put(buf)
	n, err := io.CopyBuffer(h, struct{ io.Reader }{io.NewSectionReader(r, 0, size)}, buf[:])
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	return h.Sum(nil), err
}

// account counts the entries when size more bytes may have made the cache too
// large, and removes the oldest of those that are too much and a sixteenth more,
// so that not every Put comes here. Other processes may do so at the same time.
func (c *Cache) account(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room -= size; c.room >= 0 {
		return nil
	}
	_, _, left, err := c.shrink(func(total int64) int64 {
		if total <= c.limit {
			return total
		}
		return max(c.limit-c.limit/16, size) // the newest fits alone
	})
	c.room = min(c.limit/16, c.limit-left)
	for _, dir := range []string{cacheTemp, cacheLocks} {
		if err == nil {
			_, err = tempDir{c.root, dir}.sweep(context.Background())
		}
	}
	return err
}

// entries lists the entries, those used longest ago first.
func (c *Cache) entries() (list []fs.FileInfo, total int64, err error) {
	all, err := readDir(c.root, cacheEntries)
	for _, e := range all {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // another process was faster
		}
		list = append(list, info)
		total += info.Size()
	}
	slices.SortFunc(list, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	return list, total, err
}

// Size returns the size of all entries.
func (c *Cache) Size() (int64, error) {
	_, total, err := c.entries()
	return total, err
}

// Clear removes all entries, and returns their number and size. Those that are
// open stay readable, and take their space until they are closed.
func (c *Cache) Clear() (entries int, bytes int64, err error) {
	entries, bytes, _, err = c.shrink(func(int64) int64 { return 0 })
	return entries, bytes, err
}

// shrink removes the entries used longest ago until at most most(size of all)
// bytes are left.
func (c *Cache) shrink(most func(total int64) int64) (removed int, freed, left int64, err error) {
	list, left, err := c.entries()
	for limit := most(left); err == nil && left > limit && len(list) > 0; list = list[1:] {
		err = ignore(c.root.Remove(cacheEntries+"/"+list[0].Name()), fs.ErrNotExist)
		if err == nil {
			removed++
			freed += list[0].Size()
			left -= list[0].Size()
		}
	}
	return removed, freed, left, err
}

// cacheLimit is that of a cache whose configuration names none: the smaller of
// 1 GiB and a tenth of its volume.
func cacheLimit(dir string) int64 {
	volume, _, err := durable.Volume(dir)
	if err != nil || volume <= 0 {
		volume = math.MaxInt64
	}
	return max(min(1<<30, volume/10), 1)
}
