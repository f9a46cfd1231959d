package bucket

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
)

// How far fetching runs ahead of packing. An object is asked for once there is
// memory for it, or for its share: what was begun never waits for what comes later.
const (
	maxRequests = 64       // objects asked for at a time
	pieceSize   = 64 << 10 // the unit of memory
	allPieces   = 128      // 8 MiB
	maxPieces   = 32       // of one object
)

// A fetch reads the objects of a tree ahead of their use: several at a time,
// begun in the order of the archive. Its tree opens each once, in about that order.
type fetch struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	driver   Driver
	tree     *tree
	previous *previousArtifact // has unchanged objects; nil: there are none
	count    func()            // called for each object that has arrived

	pieces chan []byte     // memory that is free; nil: yet to be made
	copies chan *stream    // those that are copied, in order; closed behind the last
	begun  chan struct{}   // closed when no more are begun
	halted context.Context // ends when an object failed: no more are begun
	halt   context.CancelFunc

	running sync.WaitGroup
	mu      sync.Mutex
	streams map[int]chan *stream            // by the number in the tree: each has room for the one
	fills   map[int]context.CancelCauseFunc // of the streams that are being filled
	copied  error                           // why what was copied does not count
}

// newFetch begins to fetch what the artifact of s holds. It takes over previous, which may be nil.
func newFetch(ctx context.Context, s *snapshot, previous *previousArtifact, count func()) *fetch {
	f := &fetch{driver: s.driver, previous: previous, count: count,
		pieces: make(chan []byte, allPieces), copies: make(chan *stream, allPieces), begun: make(chan struct{}), streams: map[int]chan *stream{}, fills: map[int]context.CancelCauseFunc{}}
	for range allPieces {
		f.pieces <- nil
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.halted, f.halt = context.WithCancel(f.ctx)
	f.tree = newTree(s.files, s.state.Ignore.text(), f.open)
	f.running.Go(f.begin)
	if previous != nil {
		f.running.Go(f.copy)
	}
	return f
}

var (
	errEnded  = errors.New("the fetch has ended")
	errBehind = errors.New("not fetched, since another object could not be")
)

// close ends everything that is still under way.
func (f *fetch) close() {
	f.cancel(errEnded)
	f.running.Wait()
}

// begin begins object after object.
func (f *fetch) begin() {
	defer close(f.begun)
	defer close(f.copies)
	requests := make(chan struct{}, maxRequests)
	for i, o := range f.tree.list {
		if o.Key == ignoreFile {
			continue
		}
		if o.Size == 0 { // nothing is asked for: the listing says it all
			f.count()
			continue
		}
		share := min((o.Size-1)/pieceSize+1, maxPieces)
		s := &stream{of: f, index: i, object: o, full: make(chan piece, share+1), free: make(chan []byte, share)}
		for range share {
			select {
			case p := <-f.pieces:
				s.free <- p
			case <-f.halted.Done():
				return
			}
		}
		if f.previous.has(o.Key) {
			if !f.add(s) {
				return
			}
			f.stream(i) <- s
			f.copies <- s // each has a piece, so there is room
			continue
		}
		select {
		case requests <- struct{}{}:
		case <-f.halted.Done():
			return
		}
		if !f.add(s) {
			return
		}
		f.stream(i) <- s
		f.running.Go(func() {
			r := newObjectReader(s.ctx, f.driver, o)
			s.fill(r)
			r.Close()
			<-requests
		})
	}
}

// add makes s one of those that are being filled, unless an object before it failed.
func (f *fetch) add(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.halted.Err() != nil {
		return false
	}
	s.ctx, f.fills[s.index] = context.WithCancelCause(f.ctx)
	return true
}

// remove ends s. If it failed, what comes behind it ends too, and no more are begun.
func (f *fetch) remove(s *stream, failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fills[s.index](nil)
	delete(f.fills, s.index)
	if !failed {
		return
	}
	f.halt()
	for i, cancel := range f.fills {
		if i > s.index {
			cancel(errBehind)
		}
	}
}

// copy takes unchanged objects from the previous artifact.
func (f *fetch) copy() {
	for s := range f.copies {
		s.fill(f.previous.find(s.object))
	}
	f.copied = f.previous.end(f.ctx)
}

// open returns the object o, the one number i of the tree, for its one reader.
func (f *fetch) open(o Object, i int) (io.ReadCloser, error) {
	if o.Size == 0 {
		return io.NopCloser(strings.NewReader("")), nil
	}
	select {
	case s := <-f.stream(i):
		return s, nil
	case <-f.begun:
	}
	select {
	case s := <-f.stream(i):
		return s, nil
	default:
	}
	if f.ctx.Err() != nil {
		return nil, context.Cause(f.ctx)
	}
	return nil, errBehind
}

// stream returns the channel that hands over the stream of the object i.
func (f *fetch) stream(i int) chan *stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.streams[i] == nil {
		f.streams[i] = make(chan *stream, 1)
	}
	return f.streams[i]
}

// A stream is one object on its way. It keeps its memory until it is closed.
type stream struct {
	of     *fetch
	ctx    context.Context // ends when it need not be filled any more
	index  int             // in the tree
	object Object
	full   chan piece  // in order; there is always room
	free   chan []byte // memory that is not in use

	now  piece  // what is being read
	last []byte // its memory
}

// A piece is some bytes and the error that follows them.
type piece struct {
	data []byte
	err  error
}

// fill passes on the whole of r.
func (s *stream) fill(r io.Reader) {
	failed := true
	defer func() { s.of.remove(s, failed) }()
	for left := s.object.Size; ; {
		var buf []byte
		select {
		case buf = <-s.free:
		case <-s.ctx.Done():
			s.full <- piece{err: context.Cause(s.ctx)}
			return
		}
		if buf == nil {
			buf = make([]byte, pieceSize)
		}
		n, err := io.ReadFull(r, buf[:min(left, pieceSize)])
		left -= int64(n)
		switch {
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		case err == nil && left == 0:
			var more [1]byte
			if _, err = io.ReadFull(r, more[:]); err == nil {
				err = moved("it has grown")
			}
		}
		if err == io.EOF {
			failed = false
			s.of.count()
		}
		s.full <- piece{buf[:n], err}
		if err != nil {
			return
		}
	}
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
		case <-s.of.ctx.Done():
			s.now.err = context.Cause(s.of.ctx)
		}
	}
	n := copy(p, s.now.data)
	s.now.data = s.now.data[n:]
	return n, nil
}

// recycle gives back the memory that was read.
func (s *stream) recycle() {
	if s.last != nil {
		s.free <- s.last[:pieceSize]
		s.last = nil
	}
}

// Close implements [io.Closer]. One that has not been read to its end ends the fetch.
func (s *stream) Close() error {
	if s.now.err == nil {
		s.of.cancel(errEnded)
	}
	if s.now.err != io.EOF {
		return nil
	}
	s.recycle()
	s.of.mu.Lock()
	delete(s.of.streams, s.index)
	s.of.mu.Unlock()
	for range cap(s.free) {
		s.of.pieces <- <-s.free
	}
	return nil
}
