package packfile

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A frozen pack is a spool and behind it the index of its objects, sorted by
// ID, which takes it up again: for each object its ID, its offset and its size
// (8 bytes each, big-endian) and its type (1 byte). The end is a footer: the
// number of objects (8 bytes), that of the bytes in an ID (1 byte) and a magic.
// There are no checksums: a frozen pack is kept where damage is found out.
const (
	frozenMagic  = "headgate objects 1\n"
	frozenFooter = 8 + 1 + len(frozenMagic)
	frozenPlace  = 8 + 8 + 1
)

// Freeze writes the index of the pack into its spool, which [Thaw] can read
// from then on, and has the size that is returned. The pack stays usable. It
// must have been read from a stream or copied, and with a file that has a name.
func (p *Pack) Freeze() (size int64, err error) {
	at := p.spool.end.Load()
	w := bufio.NewWriterSize(io.NewOffsetWriter(p.spool, at), inputBytes)
	var place [frozenPlace]byte
	n := 0
	for at, i := range p.order {
		if at > 0 && string(p.id(p.order[at-1])) == string(p.id(i)) {
			continue // a pack may hold an object twice
		}
		n++
		e := p.entries[i]
		binary.BigEndian.PutUint64(place[:], uint64(e.offset))
		binary.BigEndian.PutUint64(place[8:], uint64(e.size))
		place[16] = byte(e.typ)
		w.Write(p.id(i)) // a Writer keeps its first error
		w.Write(place[:])
	}
	footer := binary.BigEndian.AppendUint64(nil, uint64(n))
	footer = append(append(footer, byte(p.format.Size())), frozenMagic...)
	w.Write(footer)
	if err := w.Flush(); err != nil {
		return 0, fmt.Errorf("freeze pack: %w", err)
	}
	size = at + int64(n*(p.format.Size()+frozenPlace)+len(footer))
	if err := p.spool.Truncate(size); err != nil {
		return 0, fmt.Errorf("freeze pack: %w", err)
	}
	return size, nil
}

// A Frozen is what a frozen pack is read from.
type Frozen interface {
	io.ReaderAt
	io.Closer
	Size() int64
}

// Thaw returns the pack that was frozen into f; closing it closes f. It trusts
// that f holds what was frozen; that it cannot, by its form, is an error that
// wraps [object.ErrCorrupt] and leaves f open.
func Thaw(f Frozen) (*Pack, error) {
	p := &Pack{content: f, closer: f}
	if err := p.thaw(f, f.Size()); err != nil {
		return nil, fmt.Errorf("thaw pack: %w", err)
	}
	return p, nil
}

func (p *Pack) thaw(f io.ReaderAt, size int64) error {
	var footer [frozenFooter]byte
	at := size - int64(frozenFooter)
	if at < 0 {
		return frozenError("it is too short")
	}
	if _, err := f.ReadAt(footer[:], at); err != nil {
		return err
	}
	n, width := binary.BigEndian.Uint64(footer[:]), int64(footer[8])
	switch {
	case string(footer[9:]) != frozenMagic:
		return frozenError("it ends in no magic")
	case width == int64(object.SHA256.Size()):
		p.format = object.SHA256
	case width != int64(object.SHA1.Size()):
		return frozenError("IDs of %d bytes", width)
	}
	row := width + frozenPlace
	if n > uint64(at/row) || n > 1<<32-1 {
		return frozenError("%d objects", n)
	}
	at -= int64(n) * row
	return p.thawIndex(bufio.NewReaderSize(io.NewSectionReader(f, at, int64(n)*row), inputBytes), int(n), at)
}

// thawIndex reads an index of n objects, all of which lie before end.
func (p *Pack) thawIndex(r io.Reader, n int, end int64) error {
	width := p.format.Size()
	p.entries, p.order, p.ids = make([]entry, n), make([]uint32, n), make([]byte, 0, n*width)
	row := make([]byte, width+frozenPlace)
	for i := range n {
		if _, err := io.ReadFull(r, row); err != nil {
			return err
		}
		place := row[width:]
		e := entry{
			offset: int64(binary.BigEndian.Uint64(place)),
			size:   int64(binary.BigEndian.Uint64(place[8:])),
			typ:    object.Type(place[16]),
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

// Copy returns a pack of those objects of db that ids names, each once. It
// trusts db to return what they are the IDs of. Of the options it uses Temp and
// Format.
func Copy(ctx context.Context, db object.Database, ids []object.ID, o Options) (*Pack, error) {
	s, err := newSpool(o.Temp)
	if err != nil {
		return nil, fmt.Errorf("copy objects: %w", err)
	}
	p := newPack(o.Format, s)
	w := bufio.NewWriterSize(s, baseBytes)
	for _, id := range ids {
		if err := p.copy(ctx, w, db, id); err != nil {
			s.Close()
			return nil, fmt.Errorf("copy object %v: %w", id, err)
		}
	}
	if err := w.Flush(); err != nil {
		s.Close()
		return nil, fmt.Errorf("copy objects: %w", err)
	}
	p.sort()
	return p, nil
}

func (p *Pack) copy(ctx context.Context, w io.Writer, db object.Database, id object.ID) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	typ, size, from, err := db.Open(id)
	if err != nil {
		return err
	}
	defer from.Close()
	if n, err := io.Copy(w, io.LimitReader(from, size)); err != nil {
		return err
	} else if n < size {
		return io.ErrUnexpectedEOF
	}
	p.entries = append(p.entries, entry{offset: p.spool.reserve(size), size: size, typ: typ})
	p.ids = id.AppendTo(p.ids)
	return nil
}
