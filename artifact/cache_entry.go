package artifact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/zeebo/blake3"
)

// An entry is a file: the content, its length (8 bytes, big-endian) and a sum:
// the BLAKE3 of the hash of its key and the BLAKE3 of each piece of its content.
const (
	sumSize     = 32
	trailerSize = 8 + sumSize
	pieceSize   = 256 << 10
)

// A Draft is an entry being written, for content that comes in no order or is
// used while the cache already has it. It ends with Commit or Discard, neither
// of which closes the file.
type Draft struct {
	cache *Cache
	file  *scratchFile
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
func (d *Draft) Commit(key string) error {
	size, err := d.commit(keyOf(key))
	if err == nil {
		err = d.cache.account(size)
	}
	if err != nil {
		return fmt.Errorf("store cache entry: %w", err)
	}
	return nil
}

func (d *Draft) commit(id cacheKey) (int64, error) {
	info, err := d.file.Stat()
	if err != nil {
		return 0, err
	}
	c, size := d.cache, info.Size()
	if limit := c.limit - min(c.limit, trailerSize); size > limit {
		return 0, &LimitError{What: "bytes", Limit: limit}
	}
	sum, err := c.entrySum(d.file, size, id)
	if err != nil {
		return 0, err
	}
	trailer := binary.BigEndian.AppendUint64(nil, uint64(size))
	if _, err := d.file.WriteAt(append(trailer, sum[:]...), size); err != nil {
		return 0, err
	}
	err = d.file.become(id.in(cacheEntries))
	if errors.Is(err, fs.ErrNotExist) {
		if err = c.root.MkdirAll(cacheEntries, 0o700); err == nil {
			err = d.file.become(id.in(cacheEntries))
		}
	}
	return size + trailerSize, err
}

// Discard removes the file, unless it was committed. It stays usable while it
// is open.
func (d *Draft) Discard() {
	if d.file.name != "" {
		d.file.root.Remove(d.file.name) // what fails here is left to sweep
	}
}

// checkEntry returns the length of the content of f. The error wraps
// fs.ErrNotExist when f is not a whole entry.
func (c *Cache) checkEntry(f *os.File, id cacheKey) (int64, error) {
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
	sum, err := c.entrySum(f, size, id)
	if err != nil {
		return 0, err
	}
	if string(sum[:]) != string(trailer[8:]) {
		return 0, fmt.Errorf("damaged entry: %w", fs.ErrNotExist)
	}
	return size, nil
}

// entrySum computes the sum of an entry, on all processors when it is large.
func (c *Cache) entrySum(r io.ReaderAt, size int64, id cacheKey) ([sumSize]byte, error) {
	pieces := int((size + pieceSize - 1) / pieceSize)
	sums := make([]byte, sumSize*(1+pieces))
	copy(sums, id[:])
	var (
		next    atomic.Int64
		workers sync.WaitGroup
		once    sync.Once
		failed  error
	)
	work := func() {
		buf, _ := c.pieces.Get().(*[pieceSize]byte)
		if buf == nil {
			buf = new([pieceSize]byte)
		}
		defer c.pieces.Put(buf)
		for i := int(next.Add(1)); i <= pieces; i = int(next.Add(1)) {
			at := int64(i-1) * pieceSize
			piece := buf[:min(size-at, pieceSize)]
			if _, err := r.ReadAt(piece, at); err != nil {
				once.Do(func() { failed = err })
				return
			}
			sum := blake3.Sum256(piece)
			copy(sums[sumSize*i:], sum[:])
		}
	}
	for range min(runtime.GOMAXPROCS(0), pieces) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
	return blake3.Sum256(sums), failed
}
