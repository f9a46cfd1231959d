package packfile

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sort"

	"github.com/headgate-io/headgate/git/internal/object"
)

// The object types that only packs have.
const (
	offsetDelta object.Type = 6
	refDelta    object.Type = 7
)

// A scanner parses a pack and inflates its objects into chunks.
type scanner struct {
	ctx      context.Context
	pack     *Pack
	in       *input
	inflater *inflater
	limits   Limits
	progress func(done, total int)

	free  <-chan *chunk
	full  chan<- *chunk
	chunk *chunk // the one being filled

	total   int
	offsets []int64 // of the entries in the pack
	deltas  deltas
}

// scan reads the whole stream.
func (s *scanner) scan() error {
	if err := s.header(); err != nil {
		return err
	}
	for i := range s.total {
		if err := s.object(); err != nil {
			return fmt.Errorf("object %d of %d: %w", i+1, s.total, err)
		}
	}
	if err := s.in.finish(); err != nil {
		return err
	}
	if s.chunk != nil {
		s.full <- s.chunk
	}
	s.report()
	return s.ctx.Err()
}

// header reads the header of the pack: signature, version, number of objects.
func (s *scanner) header() error {
	var head [12]byte
	if _, err := io.ReadFull(s.in, head[:]); err != nil {
		return truncatedError(err)
	}
	version, total := binary.BigEndian.Uint32(head[4:]), binary.BigEndian.Uint32(head[8:])
	if string(head[:4]) != "PACK" {
		return fmt.Errorf("%w: not a pack: it starts with %q", object.ErrCorrupt, head[:4])
	}
	if version != 2 && version != 3 {
		return fmt.Errorf("%w: pack version %d is not supported, only 2 and 3", object.ErrCorrupt, version)
	}
	if int64(total) > s.limits.Objects {
		return &LimitError{"Objects", s.limits.Objects}
	}
	s.total = int(total)
	return nil
}

// object reads one object.
func (s *scanner) object() error {
	offset := s.in.offset()
	e, err := s.objectHeader()
	if err != nil {
		return err
	}
	index := uint32(len(s.pack.entries))
	switch e.typ {
	case object.Commit, object.Tree, object.Blob, object.Tag:
	case offsetDelta:
		base, err := s.baseOffset(offset)
		if err != nil {
			return err
		}
		s.deltas.byOffset = append(s.deltas.byOffset, offsetLink{base, index})
	case refDelta:
		var id [32]byte
		if _, err := io.ReadFull(s.in, id[:s.pack.format.Size()]); err != nil {
			return truncatedError(err)
		}
		base, _ := object.IDFromBytes(id[:s.pack.format.Size()])
		s.deltas.byID = append(s.deltas.byID, idLink{base: base, delta: index})
	default:
		return fmt.Errorf("%w: object of type %d", object.ErrCorrupt, e.typ)
	}
	e.offset, err = s.pack.reserve(e.size, s.limits)
	if err != nil {
		return err
	}
	s.pack.entries = append(s.pack.entries, e)
	s.offsets = append(s.offsets, offset)
	return s.inflate(e)
}

// reserve reserves space in the spool for an object of the given size.
func (p *Pack) reserve(size int64, limits Limits) (offset int64, err error) {
	if size < 0 || size > limits.ObjectBytes {
		return 0, &LimitError{"ObjectBytes", limits.ObjectBytes}
	}
	offset = p.spool.end.Add(size) - size
	if end := offset + size; end < 0 || end > limits.InflatedBytes {
		return 0, &LimitError{"InflatedBytes", limits.InflatedBytes}
	}
	return offset, nil
}

// objectHeader reads the type and size of an object: 3 and 4 bits, then 7 bits a
// byte, the least significant first.
func (s *scanner) objectHeader() (e entry, err error) {
	b, err := s.in.ReadByte()
	if err != nil {
		return e, truncatedError(err)
	}
	e.typ = object.Type(b >> 4 & 7)
	e.size = int64(b & 15)
	for shift := 4; b&0x80 != 0; shift += 7 {
		if b, err = s.in.ReadByte(); err != nil {
			return e, truncatedError(err)
		}
		if shift > 53 {
			return e, fmt.Errorf("%w: an object size of more than 60 bits", object.ErrCorrupt)
		}
		e.size |= int64(b&0x7f) << shift
	}
	return e, nil
}

// baseOffset reads the distance back from the object at offset to its base and
// returns the base's entry: 7 bits a byte, the most significant first, and 1
// added for every byte but the last.
func (s *scanner) baseOffset(offset int64) (uint32, error) {
	var distance int64 = -1
	for more := true; more; {
		b, err := s.in.ReadByte()
		if err != nil {
			return 0, truncatedError(err)
		}
		if distance > 1<<54 {
			break
		}
		distance = (distance+1)<<7 | int64(b&0x7f)
		more = b&0x80 != 0
	}
	base := offset - distance
	i := sort.Search(len(s.offsets), func(i int) bool { return s.offsets[i] >= base })
	if i == len(s.offsets) || s.offsets[i] != base {
		return 0, fmt.Errorf("%w: a delta whose base is %d bytes back, where no object begins", object.ErrCorrupt, distance)
	}
	return uint32(i), nil
}

// inflate inflates the content of an object into chunks.
func (s *scanner) inflate(e entry) error {
	if err := s.ensureRoom(e.size); err != nil {
		return err
	}
	if err := s.inflater.begin(); err != nil {
		return err
	}
	for rest := e.size; ; {
		c := s.chunk
		n := int(min(rest, int64(len(c.buf)-c.end)))
		if err := s.inflater.fill(c.buf[c.end : c.end+n]); err != nil {
			return err
		}
		c.spans = append(c.spans, span{e, n, rest == e.size, rest == int64(n)})
		c.end += n
		if rest -= int64(n); rest == 0 {
			return s.inflater.end()
		}
		s.full <- c
		if err := s.nextChunk(); err != nil {
			return err
		}
	}
}

// ensureRoom makes sure that the chunk has room for size bytes, or is empty.
func (s *scanner) ensureRoom(size int64) error {
	if c := s.chunk; c != nil {
		if len(c.spans) == 0 || len(c.spans) < maxSpans && size <= int64(len(c.buf)-c.end) {
			return nil
		}
		s.full <- c
	}
	return s.nextChunk()
}

// nextChunk makes a free chunk the one to fill. Sending the previous chunk never blocks,
// because the channel has room for all chunks.
func (s *scanner) nextChunk() error {
	select {
	case s.chunk = <-s.free:
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	if s.chunk.buf == nil {
		s.chunk.buf = make([]byte, chunkBytes)
	}
	s.chunk.end, s.chunk.spans = 0, s.chunk.spans[:0]
	s.report()
	return s.ctx.Err()
}

func (s *scanner) report() {
	if s.progress != nil {
		s.progress(len(s.pack.entries), s.total)
	}
}
