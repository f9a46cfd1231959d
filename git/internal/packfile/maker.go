package packfile

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
)

const (
	deltaBytes = 32 << 10 // the window on a delta
	baseBytes  = 1 << 20  // a base up to this size is held in memory
)

// A maker makes objects of deltas. It belongs to one goroutine.
type maker struct {
	*resolver
	buf   []byte // of the base
	delta *bufio.Reader
	out   sink
}

func newMaker(r *resolver) *maker {
	return &maker{
		resolver: r,
		delta:    bufio.NewReaderSize(nil, deltaBytes),
		out: sink{
			spool:  r.pack.spool,
			hasher: object.NewHasher(r.pack.format),
			buf:    make([]byte, 0, sinkBytes),
		},
	}
}

// do makes the deltas of a job.
func (m *maker) do(j job) error {
	typ, size, from, err := m.base(j)
	if err != nil {
		return fmt.Errorf("base of a delta: %w", err)
	}
	for _, l := range j.byOffset {
		if err := m.make(l.delta, typ, size, from); err != nil {
			return err
		}
	}
	for _, l := range j.byID {
		if err := m.make(l.delta, typ, size, from); err != nil {
			return err
		}
	}
	return nil
}

// base opens the base of a job.
func (m *maker) base(j job) (object.Type, int64, io.ReaderAt, error) {
	if !j.external.IsZero() {
		return m.externalBase(j.external)
	}
	e := m.pack.entries[j.entry]
	section := io.NewSectionReader(m.pack.spool, e.offset, e.size)
	if e.size > baseBytes {
		return e.typ, e.size, section, nil
	}
	from, err := m.load(section, e.size)
	return e.typ, e.size, from, err
}

// externalBase opens a base outside of the pack; a large one goes through the spool.
func (m *maker) externalBase(id object.ID) (object.Type, int64, io.ReaderAt, error) {
	typ, size, content, err := m.external.Open(id)
	if err != nil {
		return 0, 0, nil, err
	}
	defer content.Close()
	if size <= baseBytes {
		from, err := m.load(content, size)
		return typ, size, from, err
	}
	offset, err := m.pack.reserve(size, m.limits)
	if err != nil {
		return 0, 0, nil, err
	}
	if n, err := io.Copy(io.NewOffsetWriter(m.pack.spool, offset), io.LimitReader(content, size)); err != nil {
		return 0, 0, nil, fmt.Errorf("object %v: %w", id, err)
	} else if n < size {
		return 0, 0, nil, fmt.Errorf("object %v: %w", id, io.ErrUnexpectedEOF)
	}
	return typ, size, io.NewSectionReader(m.pack.spool, offset, size), nil
}

// load reads size bytes into the buffer.
func (m *maker) load(r io.Reader, size int64) (io.ReaderAt, error) {
	if int64(cap(m.buf)) < size {
		m.buf = make([]byte, size)
	}
	_, err := io.ReadFull(r, m.buf[:size])
	return bytes.NewReader(m.buf[:size]), err
}

// make makes the object of the delta that is an entry.
func (m *maker) make(entry uint32, typ object.Type, baseSize int64, from io.ReaderAt) error {
	e := &m.pack.entries[entry]
	m.delta.Reset(io.NewSectionReader(m.pack.spool, e.offset, e.size))
	want, size, err := deltaSizes(m.delta)
	if err == nil && want != baseSize {
		err = baseError(want, baseSize)
	}
	if err != nil {
		return fmt.Errorf("object %d: %w", entry+1, err)
	}
	offset, err := m.pack.reserve(size, m.limits)
	if err != nil {
		return fmt.Errorf("object %d: %w", entry+1, err)
	}
	m.out.begin(typ, size, offset)
	if err := apply(&m.out, from, baseSize, m.delta); err != nil {
		return fmt.Errorf("object %d: %w", entry+1, err)
	}
	id, err := m.out.hasher.ID()
	if err != nil {
		return fmt.Errorf("object %d: %w", entry+1, err)
	}
	e.offset, e.size, e.typ = offset, size, typ
	id.AppendTo(m.pack.id(entry)[:0])
	m.ready(entry)
	return nil
}
