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

// A CacheConfig configures a [Cache].
type CacheConfig struct {
	Dir      string // root directory; created with mode 0700
	MaxBytes int64  // size of all entries together; default: the smaller of 1 GiB and a tenth of the volume; negative: no limit
}

// A Cache stores content on disk by key, for any number of objects and processes. It may delete any
// entry at any time: when the entries take more than MaxBytes, it deletes the least recently used
// entries first. One process keeps to that limit; each further process may exceed it by a sixteenth
// at a time.
//
// Open returns exactly the content that was stored: an entry damaged by a crash or by the disk
// counts as missing. Entries are written to a temporary file and renamed, so a reader never sees a
// partial entry. They are not flushed to the disk, because losing an entry does no harm.
//
// A key is any text. It must identify everything that determines the content and who may see it:
// the key of content that needs credentials includes them. The cache never writes a key to disk:
// files are named by the SHA-256 of their key.
type Cache struct {
	root  *os.Root
	limit int64
	temp  tempDir
	locks locks

	mu   sync.Mutex
	room int64 // bytes that this process may put before the entries are counted again

	hits, misses atomic.Int64 // of Open
}

// Directories of a cache. A file has a random name unless it is named by the SHA-256 of a key.
const (
	cacheEntries = "entry" // by key
	cacheTemp    = "tmp"   // being written
	cacheLocks   = "lock"  // by key, see [Cache.Lock]
)

// OpenCache opens a cache, and creates its directory if there is none.
func OpenCache(c CacheConfig) (*Cache, error) {
	root, err := openDir(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("open cache: %w", err)
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = cacheLimit(c.Dir)
	}
	return &Cache{root: root, limit: limitOrDefault(c.MaxBytes, 0), temp: tempDir{root, cacheTemp}}, nil
}

// Close closes the directory. Files that the cache returned stay readable.
func (c *Cache) Close() error { return c.root.Close() }

// A cacheKey is the SHA-256 of a key.
type cacheKey [sha256.Size]byte

func keyOf(key string) cacheKey { return sha256.Sum256([]byte(key)) }

func (k cacheKey) pathIn(dir string) string { return dir + "/" + hex.EncodeToString(k[:]) }

// An Entry is the content of an open entry of a [Cache]: it reads, seeks and reads at offsets, the
// latter from any number of goroutines. It stays readable if the cache deletes the entry meanwhile.
// The caller must close it.
type Entry struct {
	*io.SectionReader
	file *os.File
}

// Close closes the file of the entry.
func (e *Entry) Close() error { return e.file.Close() }

// Open opens the entry of key after checking all of its content. The error wraps [fs.ErrNotExist]
// if there is no intact entry.
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
	name := id.pathIn(cacheEntries)
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
	c.root.Chtimes(name, now, now) // mark as used, for shrink; a failure affects only the order
	return &Entry{io.NewSectionReader(f, 0, size), f}, nil
}

// Put stores the output of write as the entry of key and replaces an existing entry. If write or
// one of its writes fails, nothing changes. The error is a [LimitError] if the content alone
// exceeds the cache.
func (c *Cache) Put(key string, write func(io.Writer) error) error {
	d, err := c.Create()
	if err != nil {
		return err
	}
	defer d.File().Close()
	defer d.Discard()
	out := &boundedWriter{ctx: context.Background(), w: d.File(), limit: c.maxEntrySize()}
	err = write(out)
	if err = cmp.Or(err, out.err); err != nil {
		return fmt.Errorf("store cache entry: %w", err)
	}
	return d.Commit(key)
}

// maxEntrySize returns the maximum size of the content of an entry, in bytes.
func (c *Cache) maxEntrySize() int64 { return c.limit - min(c.limit, sumSize) }

// Remove removes the entry of key, if there is one.
func (c *Cache) Remove(key string) error {
	if err := c.root.Remove(keyOf(key).pathIn(cacheEntries)); ignoreErr(err, fs.ErrNotExist) != nil {
		return fmt.Errorf("remove cache entry: %w", err)
	}
	return nil
}

// Lock acquires the lock of key. Locks serialize the goroutines and processes that use this
// directory and call Lock; they do not affect entries. Lock waits until it has the lock or ctx
// ends. The lock is released by unlock, which may be called more than once, or when the process
// exits.
func (c *Cache) Lock(ctx context.Context, key string) (unlock func(), err error) {
	defer wrap(&err, "lock cache")
	name := keyOf(key).pathIn(cacheLocks)
	end, err := c.locks.acquire(ctx, c.root, name)
	if err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() {
		c.root.Remove(name) // while no other process can hold it; sweep removes files that are left
		end()
	}), nil
}

// An entry is a file with the content, followed by a checksum: the BLAKE3 hash of the hash of the
// key and the content.
const sumSize = 32

// A Draft is an entry being written, for content that is not written in order or that is still used
// when the cache already has it. It ends with Commit or Discard, neither of which closes the file.
type Draft struct {
	cache *Cache
	file  *tempFile
}

// Create begins a draft: an empty file that is deleted unless it is committed.
func (c *Cache) Create() (*Draft, error) {
	f, err := c.temp.create()
	if err != nil {
		return nil, fmt.Errorf("create cache entry: %w", err)
	}
	return &Draft{c, f}, nil
}

// File returns the file for the content. The caller closes it.
func (d *Draft) File() *os.File { return d.file.File }

// Commit makes the content of the file the entry of key and replaces an existing entry. The caller
// must not change the content afterwards; the cache appends its checksum to the file. The error is
// a [LimitError] if the content alone exceeds the cache.
func (d *Draft) Commit(key string) (err error) {
	defer wrap(&err, "store cache entry")
	id := keyOf(key)
	info, err := d.file.Stat()
	if err != nil {
		return err
	}
	size := info.Size()
	if limit := d.cache.maxEntrySize(); size > limit {
		return &LimitError{What: "bytes", Limit: limit}
	}
	sum, err := entrySum(d.file, size, id)
	if err != nil {
		return err
	}
	if _, err := d.file.WriteAt(sum, size); err != nil {
		return err
	}
	if err := d.file.move(id.pathIn(cacheEntries)); err != nil {
		return err
	}
	return d.cache.reserve(size + sumSize)
}

// Discard removes the file unless it was committed. An open file stays usable.
func (d *Draft) Discard() { d.file.discard() }

// checkEntry returns the length of the content of f. The error wraps fs.ErrNotExist if f is not an
// intact entry.
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

// reserve reserves size bytes. If the cache may have become too large, it counts the entries and
// removes the least recently used ones, a sixteenth more than necessary, so that not every Put has
// to count. Other processes may do so at the same time.
func (c *Cache) reserve(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.room -= size; c.room >= 0 {
		return nil
	}
	_, _, left, err := c.shrink(func(total int64) int64 {
		if total <= c.limit {
			return total
		}
		return max(c.limit-c.limit/16, size) // the newest entry fits alone
	})
	c.room = min(c.limit/16, c.limit-left)
	for _, dir := range []string{cacheTemp, cacheLocks} {
		if err == nil {
			_, err = tempDir{c.root, dir}.sweep(context.Background())
		}
	}
	return err
}

// entries lists the entries, least recently used first.
func (c *Cache) entries() (list []fs.FileInfo, total int64, err error) {
	all, err := readDir(c.root, cacheEntries)
	for _, e := range all {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() {
			continue // another process has removed it
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

// Clear removes all entries and returns their number and size. Open entries stay readable, and take
// their space until they are closed.
func (c *Cache) Clear() (entries int, bytes int64, err error) {
	entries, bytes, _, err = c.shrink(func(int64) int64 { return 0 })
	return entries, bytes, err
}

// shrink removes the least recently used entries until at most maxBytes(total size) bytes are left.
func (c *Cache) shrink(maxBytes func(total int64) int64) (removed int, freed, left int64, err error) {
	list, left, err := c.entries()
	for limit := maxBytes(left); err == nil && left > limit && len(list) > 0; list = list[1:] {
		err = ignoreErr(c.root.Remove(cacheEntries+"/"+list[0].Name()), fs.ErrNotExist)
		if err == nil {
			removed++
			freed += list[0].Size()
			left -= list[0].Size()
		}
	}
	return removed, freed, left, err
}

// cacheLimit returns the default size of a cache in bytes, the smaller of 1 GiB and a tenth of its
// volume.
func cacheLimit(dir string) int64 {
	volume, _, err := durable.Volume(dir)
	if err != nil || volume <= 0 {
		volume = math.MaxInt64
	}
	return max(min(1<<30, volume/10), 1)
}
