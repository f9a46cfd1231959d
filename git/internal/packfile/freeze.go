package packfile

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A frozen pack is a spool, followed by the index of its objects, sorted by ID: for
// each object its ID, its offset and its size (8 bytes each, big-endian) and its type
// (1 byte). A note of the caller comes next. The footer is last: the number of
// objects and the bytes of the note (8 bytes each), the number of bytes in an ID (1
// byte) and a magic. There are no checksums, because the cache that keeps frozen
// packs detects damage.
const (
	frozenMagic  = "headgate objects 2\n"
	frozenFooter = 8 + 8 + 1 + len(frozenMagic)
	frozenRow    = 8 + 8 + 1 // after the ID
	maxNote      = 4 << 10
)

// Freeze writes the index of the pack and a note of at most 4 KiB into its spool, so
// that [Thaw] can read it. The pack stays usable. It must have been read from a
// stream, into a spool with a file name.
func (p *Pack) Freeze(note []byte) error {
	at := p.spool.end.Load()
	out := &counter{w: io.NewOffsetWriter(p.spool, at)}
	w := bufio.NewWriterSize(out, inputBytes)
	var row [frozenRow]byte
	n := 0
	for at, i := range p.order {
		if at > 0 && string(p.id(p.order[at-1])) == string(p.id(i)) {
			continue // a pack may hold an object twice
		}
		n++
		e := p.entries[i]
		binary.BigEndian.PutUint64(row[:], uint64(e.offset))
		binary.BigEndian.PutUint64(row[8:], uint64(e.size))
		row[16] = byte(e.typ)
		w.Write(p.id(i)) // Flush returns the first error
		w.Write(row[:])
	}
	w.Write(note)
	footer := binary.BigEndian.AppendUint64(nil, uint64(n))
	footer = binary.BigEndian.AppendUint64(footer, uint64(len(note)))
	w.Write(append(append(footer, byte(p.format.Size())), frozenMagic...))
	err := w.Flush()
	if err == nil {
		err = p.spool.Truncate(at + out.n)
	}
	if err != nil {
		return fmt.Errorf("freeze pack: %w", err)
	}
	return nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

// A Frozen is the file of a frozen pack.
type Frozen interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Thaw returns the pack that was frozen into f, and the note; closing the pack closes
// f. It trusts the content of f and checks only the form. If that is wrong, the error
// wraps [object.ErrCorrupt]. After an error f stays open.
func Thaw(f Frozen) (p *Pack, note []byte, err error) {
	p = &Pack{content: f, closer: f}
	if note, err = p.thaw(f, f.Size()); err != nil {
		return nil, nil, fmt.Errorf("thaw pack: %w", err)
	}
	return p, note, nil
}

func (p *Pack) thaw(f io.ReaderAt, size int64) (note []byte, err error) {
	var footer [frozenFooter]byte
	at := size - int64(frozenFooter)
	if at < 0 {
		return nil, frozenError("it is too short")
	}
	if _, err := f.ReadAt(footer[:], at); err != nil {
		return nil, err
	}
	n, noted, width := binary.BigEndian.Uint64(footer[:]), binary.BigEndian.Uint64(footer[8:]), int64(footer[16])
	switch {
	case string(footer[17:]) != frozenMagic:
		return nil, frozenError("it ends in no magic")
	case width == int64(object.SHA256.Size()):
		p.format = object.SHA256
	case width != int64(object.SHA1.Size()):
		return nil, frozenError("IDs of %d bytes", width)
	}
	if noted > uint64(min(at, maxNote)) {
		return nil, frozenError("a note of %d bytes", noted)
	}
	at -= int64(noted)
	note = make([]byte, noted)
	if _, err := f.ReadAt(note, at); err != nil && noted > 0 {
		return nil, err
	}
	row := width + frozenRow
	if n > uint64(at/row) || n > 1<<32-1 {
		return nil, frozenError("%d objects", n)
	}
	at -= int64(n) * row
	return note, p.thawIndex(bufio.NewReaderSize(io.NewSectionReader(f, at, int64(n)*row), inputBytes), int(n), at)
}

// thawIndex reads an index of n objects, all of which lie before end.
func (p *Pack) thawIndex(r io.Reader, n int, end int64) error {
	width := p.format.Size()
	p.entries, p.order, p.ids = make([]entry, n), make([]uint32, n), make([]byte, 0, n*width)
	row := make([]byte, width+frozenRow)
	for i := range n {
		if _, err := io.ReadFull(r, row); err != nil {
			return err
		}
		fields := row[width:]
		e := entry{
			offset: int64(binary.BigEndian.Uint64(fields)),
			size:   int64(binary.BigEndian.Uint64(fields[8:])),
			typ:    object.Type(fields[16]),
		}
		if e.offset < 0 || e.size < 0 || e.offset > end || e.size > end-e.offset || e.typ < object.Commit || e.typ > object.Tag {
			return frozenError("object %d is nowhere", i)
		}
		p.entries[i], p.order[i], p.ids = e, uint32(i), append(p.ids, row[:width]...)
		if i > 0 && string(p.id(uint32(i-1))) >= string(row[:width]) {
			return frozenError("object %d is out of order", i)
		}
	}
	return nil
}

func frozenError(format string, args ...any) error {
	return fmt.Errorf("%w: not a frozen pack: %s", object.ErrCorrupt, fmt.Sprintf(format, args...))
}

// Add copies the objects of db with the given ids into the spool. It trusts db to
// return the content that belongs to an ID.
func (p *Pack) Add(ctx context.Context, db object.Database, ids []object.ID) error {
	w := bufio.NewWriterSize(io.NewOffsetWriter(p.spool, p.spool.end.Load()), baseBytes)
	for _, id := range ids {
		if err := p.add(ctx, w, db, id); err != nil {
			return fmt.Errorf("copy object %v: %w", id, err)
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("copy objects: %w", err)
	}
	p.buildIndex()
	return nil
}

func (p *Pack) add(ctx context.Context, w io.Writer, db object.Database, id object.ID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	typ, size, from, err := db.Open(id)
	if err != nil {
		return err
	}
	defer from.Close()
	if _, err := io.CopyN(w, from, size); err != nil {
		return noEOF(err)
	}
	p.entries = append(p.entries, entry{offset: p.spool.end.Add(size) - size, size: size, typ: typ})
	p.ids = id.AppendTo(p.ids)
	return nil
}
