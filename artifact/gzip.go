package artifact

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"runtime"

	"github.com/klauspost/compress/flate"
	"lukechampine.com/blake3"
)

// These values determine the bytes of the gzip layer. Level, window and blocks were chosen by
// measurement: on a source tree the result is 1.06 times the size of gzip -6. Level 6 gives 1.00
// times, but needs a quarter more processor time.
const (
	encoderVersion = "github.com/klauspost/compress v1.20.3" // as in go.mod
	deflateLevel   = 4
	windowSize     = 32 << 10 // bytes before a block that its matches may refer to
)

// A block ends after the first tar block whose checksum says so, or when it is full. Content
// determines the boundary, not position: if a change moves content by a number of tar blocks, as
// any change to a tree does, the content falls into the same blocks as before.
const (
	minBlock   = 384 << 10 // content bytes in a block
	maxBlock   = 1 << 20
	firstBlock = 64 << 10 // allocated for the first block, which grows

	cutMask = 1<<9 - 1 // about one tar block in 512: blocks of 620 KiB on average
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// maxCompressors bounds the number of blocks compressed concurrently; each costs about 3 MiB.
const maxCompressors = 16

// gzipHeader says deflate, no flags, no time, unknown system.
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// A gzipWriter compresses in parallel. Blocks are deflated independently, each
// with the end of its predecessor as dictionary, and written in order as one
// gzip member: the bytes depend on the input alone, not on the number of
// processors or on how the input was cut into writes.
//
// All writing to w happens in Write and Close, so a caller only has to call Close or abandon to
// clean up.
type gzipWriter struct {
	w        io.Writer
	current  *block   // receives input
	queue    []*block // being compressed, oldest first
	free     []*block
	maxQueue int                // maximum length of queue
	tables   chan *flate.Writer // compressors, one per processor; nil until one is needed
	cache    *Cache             // of compressed blocks; may be nil
	crc      uint32
	size     uint32
	err      error
}

// A block is one unit of work and the memory it needs.
type block struct {
	in   []byte // the dictionary, then the content
	dict int    // length of the dictionary
	out  bytes.Buffer
	done chan error
}

// newGzipWriter returns a writer that compresses to w on up to GOMAXPROCS processors. Blocks that
// are in cache are not compressed again; cache may be nil.
func newGzipWriter(w io.Writer, cache *Cache) *gzipWriter {
	z := &gzipWriter{w: w, cache: cache, maxQueue: min(runtime.GOMAXPROCS(0), maxCompressors)}
	z.tables = make(chan *flate.Writer, z.maxQueue)
	for range z.maxQueue {
		z.tables <- nil
	}
	_, z.err = io.WriteString(w, gzipHeader)
	z.current = z.newBlock(nil)
	return z
}

// Write implements [io.Writer]. It returns an error of the underlying writer, possibly of an
// earlier write. At the latest, [gzipWriter.Close] returns the error.
func (z *gzipWriter) Write(p []byte) (int, error) {
	if z.err != nil {
		return 0, z.err
	}
	z.crc = crc32.Update(z.crc, crc32.IEEETable, p)
	z.size += uint32(len(p))
	written := 0
	for len(p) > 0 && z.err == nil {
		n := min(len(p), z.current.room())
		z.current.in = append(z.current.in, p[:n]...)
		p, written = p[n:], written+n
		if full := z.current; full.complete() {
			z.current = z.newBlock(full.in[len(full.in)-windowSize:])
			z.submit(full, false)
		}
	}
	return written, z.err
}

// room returns how many bytes a block takes before it can end.
func (b *block) room() int {
	n := len(b.in) - b.dict
	return max(minBlock-n, tarBlock-n%tarBlock)
}

// complete reports whether the block is complete.
func (b *block) complete() bool {
	content := b.in[b.dict:]
	if len(content) < minBlock || len(content)%tarBlock != 0 {
		return false
	}
	last := content[len(content)-tarBlock:]
	return len(content) == maxBlock || crc32.Checksum(last, castagnoli)&cutMask == 0
}

// Close compresses and writes the remaining input. It does not close the underlying writer.
func (z *gzipWriter) Close() error {
	if z.err == nil {
		z.submit(z.current, true)
	}
	for len(z.queue) > 0 {
		z.writeOldest()
	}
	if z.err == nil {
		trailer := binary.LittleEndian.AppendUint32(nil, z.crc)
		_, z.err = z.w.Write(binary.LittleEndian.AppendUint32(trailer, z.size))
	}
	return z.err
}

// abandon stops the work in progress without writing more.
func (z *gzipWriter) abandon(err error) {
	z.err = err
	z.Close()
}

// newBlock returns an empty block that starts with the dictionary.
func (z *gzipWriter) newBlock(dict []byte) *block {
	var b *block
	if last := len(z.free) - 1; last >= 0 {
		b, z.free = z.free[last], z.free[:last]
	} else {
		size := windowSize + maxBlock
		if len(dict) == 0 { // the first block: the input may be short
			size = firstBlock
		}
		b = &block{in: make([]byte, 0, size), done: make(chan error, 1)}
	}
	b.in = append(b.in[:0], dict...)
	b.dict = len(dict)
	return b
}

// submit starts compressing b and waits until the queue has room again.
func (z *gzipWriter) submit(b *block, last bool) {
	z.queue = append(z.queue, b)
	go func() { b.done <- b.compressCached(z, last) }()
	for len(z.queue) > z.maxQueue {
		z.writeOldest()
	}
}

// writeOldest waits for the oldest block and writes it.
func (z *gzipWriter) writeOldest() {
	b := z.queue[0]
	z.queue = z.queue[1:]
	if err := <-b.done; err != nil && z.err == nil {
		z.err = fmt.Errorf("compress: %w", err)
	}
	if z.err == nil {
		_, z.err = z.w.Write(b.out.Bytes())
	}
	z.free = append(z.free, b)
}

// compress deflates the block up to a byte boundary.
func (b *block) compress(tables chan *flate.Writer, last bool) (err error) {
	deflate := <-tables
	defer func() { tables <- deflate }()
	if deflate == nil {
		if deflate, err = flate.NewWriter(nil, deflateLevel); err != nil {
			return err
		}
	}
	b.out.Reset()
	deflate.ResetDict(&b.out, b.in[:b.dict])
	if _, err := deflate.Write(b.in[b.dict:]); err != nil {
		return err
	}
	if last {
		return deflate.Close()
	}
	return deflate.Flush()
}

// minCached is the minimum size of a block that is cached.
const minCached = 64 << 10

// Pack writes the same bytes as the function [Pack], but does not compress blocks whose compressed
// form is in the cache: content that was packed before, from any tree, and has not changed. The
// cache grows by about the size of the archive. A failing cache only costs time. c may be nil.
func (c *Cache) Pack(ctx context.Context, w io.Writer, tree fs.FS) (Report, error) {
	z := newGzipWriter(w, c)
	report, err := Tar(ctx, z, tree)
	if err != nil {
		z.abandon(err)
		return report, err
	}
	if err := z.Close(); err != nil {
		return report, fmt.Errorf("pack: write archive: %w", err)
	}
	return report, nil
}

// compressCached writes the compressed block to out, from the cache if it has the block.
func (b *block) compressCached(z *gzipWriter, last bool) error {
	if z.cache == nil || len(b.in)-b.dict < minCached {
		return b.compress(z.tables, last)
	}
	// The key identifies everything that determines the compressed bytes. A caller that knows the
	// key has the content.
	key := fmt.Sprintf("deflate by %s level %d, dictionary %d, last %t: blake3:%x", encoderVersion, deflateLevel, b.dict, last, blake3.Sum256(b.in))
	if e, err := z.cache.Open(key); err == nil {
		b.out.Reset()
		b.out.Grow(int(e.Size()))
		_, err = b.out.ReadFrom(e)
		if err = errors.Join(err, e.Close()); err == nil {
			return nil
		}
	}
	if err := b.compress(z.tables, last); err != nil {
		return err
	}
	z.cache.Put(key, func(w io.Writer) error { // for later calls; a failure does not matter
		_, err := w.Write(b.out.Bytes())
		return err
	})
	return nil
}
