package bucket

import (
	"context"
	"io"
)

// A stream is one object on its way.
type stream struct {
	of    *fetch
	index int
	begun chan struct{} // closed when what follows is set

	object   Object
	position int // in the order of the archive
	ctx      context.Context
	cancel   context.CancelCauseFunc
	full     chan piece  // in order; there is always room
	free     chan []byte // the share that is not in use; nil: yet to be made

	again int    // how many pieces are to be used again for this object
	now   piece  // what is being read
	last  []byte // its buffer
}

// A piece is some bytes and the error that follows them.
type piece struct {
	data []byte
	err  error
}

// fill passes on the whole of r.
func (s *stream) fill(r io.Reader) {
	for left := s.object.Size; ; {
		var p piece
		p, left = s.next(r, left)
		if p.err == io.EOF {
			s.of.count()
		}
		s.full <- p
		if p.err == nil {
			continue
		}
		if p.err != io.EOF {
			s.of.fail(s)
		}
		return
	}
}

// next fills a piece of r, of which there are left bytes.
func (s *stream) next(r io.Reader, left int64) (piece, int64) {
	var buf []byte
	select {
	case buf = <-s.free:
	case <-s.ctx.Done():
		return piece{err: context.Cause(s.ctx)}, left
	}
	if buf == nil {
		buf = s.of.pool.take()
	}
	n, err := io.ReadFull(r, buf[:min(left, pieceSize)])
	left -= int64(n)
	if err == nil && left == 0 {
		var more [1]byte
		if _, err = io.ReadFull(r, more[:]); err == nil {
			err = moved("it has grown")
		}
	}
	return piece{buf[:n], err}, left
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	for len(s.now.data) == 0 {
		if s.now.err != nil {
			return 0, s.now.err
		}
		s.recycle()
		select {
		case s.now = <-s.full:
			s.last = s.now.data
		case <-s.ctx.Done():
			s.now.err = context.Cause(s.ctx)
		}
	}
	n := copy(p, s.now.data)
	s.now.data = s.now.data[n:]
	return n, nil
}

// recycle gives back the buffer that was read.
func (s *stream) recycle() {
	switch {
	case s.last == nil:
	case s.again > 0:
		s.again--
		s.free <- s.last[:pieceSize]
	default:
		s.of.pool.put(s.last[:pieceSize])
	}
	s.last = nil
}

// Close implements [io.Closer]. One that has not been read to its end ends the fetch.
func (s *stream) Close() error {
	s.recycle()
	s.cancel(nil)
	s.of.mu.Lock()
	delete(s.of.streams, s.index)
	s.of.mu.Unlock()
	if s.now.err == nil {
		s.of.cancel(errEnded)
	}
	return nil
}
