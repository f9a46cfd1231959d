package artifact

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sync"
	"time"
)

// A CacheConfig says where a [Cache] lives and how much it holds.
type CacheConfig struct {
	Dir      string // root directory; created with mode 0700
	MaxBytes int64  // size of all entries together; default 1 GiB, negative means no limit
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
// too.
type Cache struct {
	root  *os.Root
	limit int64
	temp  scratch

	mu    sync.Mutex
	known int64 // size of all entries when they were last counted; < 0: never
	added int64 // size of those this process put since
}

// An entry is a file: the content, its length (8 bytes, big-endian) and the
// SHA-256 of key and content.
const trailerSize = 8 + sha256.Size

// entryDir holds the entries, named by the SHA-256 of their key.
const entryDir = "entry"

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
	return &Cache{root: root, limit: bound(c.MaxBytes, 1<<30), temp: scratch{root: root, dir: "tmp"}, known: -1}, nil
}

// Close releases the directory. Files that the cache handed out stay readable.
func (c *Cache) Close() error { return c.root.Close() }

// entryName returns the file of a key, and the hash that its trailer ends.
func entryName(key string) (name string, h hash.Hash) {
	id := sha256.Sum256([]byte(key))
	h = sha256.New()
	h.Write(id[:])
	return entryDir + "/" + hex.EncodeToString(id[:]), h
}

// Open opens the entry of key, after having checked all of it. The error wraps
// [fs.ErrNotExist] when there is none.
func (c *Cache) Open(key string) (io.ReadSeekCloser, error) {
	name, h := entryName(key)
	f, err := c.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open cache entry: %w", err)
	}
	size, err := checkEntry(f, h)
	if errors.Is(err, fs.ErrNotExist) && sameFile(c.root, name, f) {
		c.root.Remove(name)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open cache entry: %w", err), f.Close())
	}
	now := time.Now()
	c.root.Chtimes(name, now, now) // used just now, for evict; a failure costs nothing but order
	return struct {
		io.ReadSeeker
		io.Closer
	}{io.NewSectionReader(f, 0, size), f}, nil
}

// checkEntry returns the length of the content of f. The error wraps
// fs.ErrNotExist when f is not a whole entry.
func checkEntry(f *os.File, h hash.Hash) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	size := info.Size() - trailerSize
	if size < 0 {
		return 0, fmt.Errorf("torn entry: %w", fs.ErrNotExist)
	}
	var trailer [trailerSize]byte
	if _, err := f.ReadAt(trailer[:], size); err != nil {
		return 0, err
	}
	if int64(binary.BigEndian.Uint64(trailer[:8])) != size {
		return 0, fmt.Errorf("torn entry: %w", fs.ErrNotExist)
	}
	if _, err := io.Copy(h, io.NewSectionReader(f, 0, size)); err != nil {
		return 0, err
	}
	if sum := h.Sum(nil); string(sum) != string(trailer[8:]) {
		return 0, fmt.Errorf("damaged entry: %w", fs.ErrNotExist)
	}
	return size, nil
}

// Put stores what write writes as the entry of key, in place of the one that
// is there. When write or one of its writes fails nothing changes; the error
// is a [LimitError] when the content alone exceeds the cache.
func (c *Cache) Put(key string, write func(io.Writer) error) error {
	size, err := c.put(key, write)
	if err == nil {
		err = c.account(size)
	}
	if err != nil {
		return fmt.Errorf("store cache entry: %w", err)
	}
	return nil
}

func (c *Cache) put(key string, write func(io.Writer) error) (int64, error) {
	t, err := c.temp.create()
	if err != nil {
		return 0, err
	}
	defer t.discard()
	name, h := entryName(key)
	out := &quota{w: io.MultiWriter(t, h), limit: c.limit - min(c.limit, trailerSize)}
	err = write(out)
	if err = cmp.Or(err, out.err); err != nil {
		return 0, err
	}
	trailer := h.Sum(binary.BigEndian.AppendUint64(nil, uint64(out.n)))
	if _, err := t.Write(trailer); err != nil {
		return 0, err
	}
	if err := c.root.MkdirAll(entryDir, 0o700); err != nil {
		return 0, err
	}
	return out.n + trailerSize, t.rename(name)
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

// account evicts when size more bytes may have made the cache too large.
func (c *Cache) account(size int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.added += size
	slack := c.limit / 16
	if c.known >= 0 && c.added <= slack && c.known+c.added <= c.limit {
		return nil
	}
	return c.evict()
}

// evict counts the entries and removes the oldest while they exceed the limit:
// a sixteenth more than needed, so that not every Put comes here. The caller
// holds c.mu; other processes may evict at the same time.
func (c *Cache) evict() error {
	entries, total, err := c.entries()
	if err != nil {
		return err
	}
	if total > c.limit {
		for _, e := range entries[:max(len(entries)-1, 0)] { // the newest fits alone
			if total <= c.limit-c.limit/16 {
				break
			}
			if err := c.root.Remove(path.Join(entryDir, e.Name())); ignore(err, fs.ErrNotExist) != nil {
				return err
			}
			total -= e.Size()
		}
	}
	c.known, c.added = total, 0
	_, err = c.temp.sweep(context.Background())
	return err
}

// entries lists the entries, those used longest ago first.
func (c *Cache) entries() (list []fs.FileInfo, total int64, err error) {
	all, err := readDir(c.root, entryDir)
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
