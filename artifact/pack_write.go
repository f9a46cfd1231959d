package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// How far reading may run ahead of writing. A tree's small files are read
// straight into the place they have in the tar stream, in segments.
const (
	segmentSize = 128 << 10 // a segment is handed on once it has this many bytes
	smallFile   = 256 << 10 // larger files are streamed
	segments    = 12        // segments in flight; one is less than segmentSize + smallFile
	readers     = 16        // files read at a time, so that a slow tree's latencies overlap
)

// ErrChanged is wrapped by the error about a file that was longer or shorter
// than announced when it was packed.
var ErrChanged = errors.New("size changed while it was read: pack again once the tree is at rest")

// A packer turns a tree into a tar stream: one goroutine walks and lays out
// segments, several fill them, and the caller's writes them in order.
type packer struct {
	ctx     context.Context
	tree    fs.FS
	omits   func(dir string) bool
	report  Report // the walker's, until running is done
	laidOut chan *segment
	free    chan *segment
	tasks   chan task
	stream  []byte // buffer for large files
	running sync.WaitGroup
}

// A segment is a stretch of the tar stream.
type segment struct {
	data    []byte
	stream  *fileRef       // a file too large for data, which follows it
	pending sync.WaitGroup // tasks that still fill data
	mu      sync.Mutex
	failed  *fileRef // the first file, in order, that could not be read
	err     error
}

// A fileRef names a file and the bytes it announced.
type fileRef struct {
	name   string
	size   int64
	offset int // in the segment's data
}

// A task is to read one file into its segment.
type task struct {
	to   *segment
	file fileRef
}

func newPacker(ctx context.Context, tree fs.FS) *packer {
	p := &packer{
		ctx: ctx, tree: tree, omits: func(string) bool { return false },
		laidOut: make(chan *segment, segments),
		free:    make(chan *segment, segments),
		tasks:   make(chan task, readers),
	}
	if o, ok := tree.(interface{ Omits(dir string) bool }); ok {
		p.omits = o.Omits
	}
	for range segments {
		p.free <- &segment{}
	}
	p.running.Go(p.walk)
	for range readers {
		p.running.Go(p.fill)
	}
	return p
}

// fill reads files into their segments until there are no more.
func (p *packer) fill() {
	for t := range p.tasks {
		err := context.Cause(p.ctx)
		if err == nil {
			err = p.readFile(t)
		}
		if err != nil {
			t.to.fail(t.file, err)
		}
		t.to.pending.Done()
	}
}

// fail records the error of the first file in order.
func (s *segment) fail(file fileRef, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil || file.offset < s.failed.offset {
		s.failed, s.err = &file, fmt.Errorf("%q: %w", file.name, err)
	}
}

// readFile reads a whole file into its place.
func (p *packer) readFile(t task) error {
	f, err := p.tree.Open(t.file.name)
	if err != nil {
		return err
	}
	defer f.Close()
	n := 0
	for content := t.to.data[t.file.offset:][:t.file.size]; n < len(content) && err == nil; {
		var more int
		more, err = f.Read(content[n:])
		n += more
	}
	switch {
	case int64(n) == t.file.size:
		return atEnd(f)
	case err == io.EOF:
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, t.file.size)
	}
	return err
}

// atEnd checks that r has no more to give; reading up to the end is also what
// makes a verifying reader check.
func atEnd(r io.Reader) error {
	switch n, err := io.ReadFull(r, make([]byte, 1)); {
	case n > 0:
		return fmt.Errorf("%w (it has grown)", ErrChanged)
	case err != io.EOF:
		return err
	}
	return nil
}

// writeTo writes the segments in order, then the end of the archive.
func (p *packer) writeTo(w io.Writer) error {
	for {
		select {
		case <-p.ctx.Done():
			return context.Cause(p.ctx)
		case s, more := <-p.laidOut:
			if !more {
				return p.writeEnd(w)
			}
			if err := p.writeSegment(w, s); err != nil {
				return err
			}
			s.data, s.stream = s.data[:0], nil
			p.free <- s
		}
	}
}

// writeEnd ends the archive, unless that is only where the walk was cut off.
func (p *packer) writeEnd(w io.Writer) error {
	if p.ctx.Err() != nil {
		return context.Cause(p.ctx)
	}
	if _, err := w.Write(tarEnd[:]); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

func (p *packer) writeSegment(w io.Writer, s *segment) error {
	s.pending.Wait()
	if s.err != nil {
		return s.err
	}
	if _, err := w.Write(s.data); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	if s.stream == nil {
		return nil
	}
	if err := p.writeFile(w, *s.stream); err != nil {
		return fmt.Errorf("%q: %w", s.stream.name, err)
	}
	return nil
}

// writeFile streams a large file and its padding.
func (p *packer) writeFile(w io.Writer, file fileRef) error {
	f, err := p.tree.Open(file.name)
	if err != nil {
		return err
	}
	defer f.Close()
	if p.stream == nil {
		p.stream = make([]byte, segmentSize)
	}
	in := &contextReader{p.ctx, f}
	n, err := io.CopyBuffer(struct{ io.Writer }{w}, io.LimitReader(in, file.size), p.stream)
	if err != nil {
		return err
	}
	if n < file.size {
		return fmt.Errorf("%w (%d bytes instead of %d)", ErrChanged, n, file.size)
	}
	if err := atEnd(f); err != nil {
		return err
	}
	_, err = w.Write(tarEnd[:padding(file.size)])
	return err
}

// A contextReader stops reading when its context ends.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *contextReader) Read(p []byte) (int, error) {
	if c.ctx.Err() != nil {
		return 0, context.Cause(c.ctx)
	}
	return c.r.Read(p)
}
