package journal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// Follow calls each with the entries that a query selects, and then with those
// that come, until ctx ends, which is no error, or each returns an error, which it returns. Its
// error wraps [fs.ErrClosed] when the journal is closed. An entry
// of [ReasonLost] with the ID 0, whatever the query selects, tells one who is slower than the journal
// is kept that it has missed some.
func (j *Journal) Follow(ctx context.Context, q Query, each func(Entry) error) error {
	f, err := q.filter()
	if err != nil {
		return err
	}
	j.mu.Lock()
	c := cursor{j: j, filter: f, each: each}
	if q.Limit > 0 {
		c.at = j.end
	}
	j.mu.Unlock()
	defer c.close()
	if q.Limit > 0 {
		entries, err := read(ctx, j.config.Dir, q, c.at)
		for i := 0; i < len(entries) && err == nil; i++ {
			err = each(entries[i])
		}
		if err != nil {
			return orEnd(ctx, err)
		}
	}
	return orEnd(ctx, c.follow(ctx))
}

// orEnd returns nil when err is the end of ctx.
func orEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// firstChunk is how much a cursor reads at a time, in bytes. It doubles for an
// entry that is longer.
const firstChunk = 64 << 10

// A cursor is where one who follows is.
type cursor struct {
	j      *Journal
	filter *filter
	each   func(Entry) error

	at   position // 0 for before the first segment
	file *os.File // that of at.segment; nil when it is not open
	buf  []byte
}

func (c *cursor) close() {
	if c.file != nil {
		c.file.Close()
	}
}

// follow tells what is after the cursor, and then what comes.
func (c *cursor) follow(ctx context.Context) error {
	for {
		c.j.mu.Lock()
		grown, finished := c.j.grown, c.j.finished
		c.j.mu.Unlock()
		if err := c.advance(ctx); err != nil {
			return err
		}
		if finished {
			return errClosed
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advance tells all that there is.
func (c *cursor) advance(ctx context.Context) error {
	for {
		c.j.mu.Lock()
		end, removed := c.j.end, c.j.removed
		c.j.mu.Unlock()
		switch c.at.segment {
		case end.segment:
			err := c.tell(ctx, end.offset)
			c.at = end // also when the file has less
			return err
		case 0:
		default:
			if err := c.tell(ctx, -1); err != nil {
				return err
			}
		}
		missed := c.at.segment != 0 && removed > c.at.segment || c.at.segment == 0 && c.filter.After > 0 && removed > c.filter.After
		if err := c.next(end); err != nil {
			return err
		}
		if missed {
			if err := c.each(Entry{Event: c.j.notice("events are missing here: they were removed from the journal before they were read")}); err != nil {
				return err
			}
		}
	}
}

// next goes to the beginning of the segment after that of the cursor, or to end.
func (c *cursor) next(end position) error {
	c.close()
	c.file = nil
	list, err := listSegments(c.j.config.Dir)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	for i, s := range list {
		old := i+1 < len(list) && list[i+1].first <= min(c.filter.After+1, end.segment) // all in it have lower IDs
		if s.first > c.at.segment && s.first <= end.segment && !old {
			c.at = position{segment: s.first}
			return nil
		}
	}
	c.at = end
	return nil
}

// tell tells the entries of the segment of the cursor, up to an offset or, when that is
// negative, to its end. A segment that is removed has none.
func (c *cursor) tell(ctx context.Context, to int64) error {
	if c.file == nil && c.at.segment != 0 && c.at.offset != to {
		f, err := os.Open(segmentPath(c.j.config.Dir, c.at.segment))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("journal: %w", err)
		}
		c.file = f
	}
	size := int64(firstChunk)
	for c.at.offset != to {
		if err := ctx.Err(); err != nil {
			return err
		}
		if to >= 0 {
			size = min(size, to-c.at.offset)
		}
		text, err := c.chunk(size)
		if err != nil {
			return err
		}
		n, err := c.lines(text)
		switch c.at.offset += int64(n); {
		case err != nil:
			return err
		case n > 0:
			size = firstChunk
		case int64(len(text)) < size || c.at.offset+int64(n+len(text)) == to: // the last line has no end
			return nil
		case size >= 2*maxLine: // no line of ours
			c.at.offset += int64(len(text))
		default:
			size *= 2
		}
	}
	return nil
}

// chunk reads up to size bytes at the cursor.
func (c *cursor) chunk(size int64) ([]byte, error) {
	if int64(cap(c.buf)) < size {
		c.buf = make([]byte, size)
	}
	n, err := c.file.ReadAt(c.buf[:size], c.at.offset)
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("journal: %w", err)
	}
	return c.buf[:n], nil
}

// lines tells the entries of the whole lines of text, and returns their length.
func (c *cursor) lines(text []byte) (n int, err error) {
	n = lines(text, func(line []byte) bool {
		if e, ok := c.filter.decode(line, c.at.segment); ok {
			err = c.each(e)
		}
		return err == nil
	})
	return n, err
}
