package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/zeebo/blake3"
)

// minCached is the size from which a block is worth an entry.
const minCached = 64 << 10

// Pack is the function [Pack] and writes the same bytes, but compresses only
// what is not in the cache in compressed form: what was packed before, from
// whatever tree, and has not changed. The cache keeps about as much as is
// written. A cache that fails costs time only; nil is none.
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

// produce puts the compressed block into out, from the cache if that has it.
func (b *block) produce(z *gzipWriter, last bool) error {
	c := z.cache
	if c == nil || len(b.in)-b.dict < minCached {
		return b.compress(z.tables, last)
	}
	key := b.key(last)
	if b.recall(c, key) == nil {
		return nil
	}
	if err := b.compress(z.tables, last); err != nil {
		return err
	}
	c.Put(key, func(w io.Writer) error { // for the next time only
		_, err := w.Write(b.out.Bytes())
		return err
	})
	return nil
}

// key names everything that decides about the compressed bytes. Whoever knows
// it has the content.
func (b *block) key(last bool) string {
	sum := blake3.Sum256(b.in)
	return fmt.Sprintf("deflate by %s level %d, dictionary %d, last %t: blake3:%s", encoder, deflateLevel, b.dict, last, hex.EncodeToString(sum[:]))
}

func (b *block) recall(c *Cache, key string) error {
	e, err := c.Open(key)
	if err != nil {
		return err
	}
	b.out.Reset()
	b.out.Grow(int(e.Size()))
	_, err = b.out.ReadFrom(e)
	return errors.Join(err, e.Close())
}
