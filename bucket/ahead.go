package bucket

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
)

// How far fetching runs ahead of packing. An object is asked for once there is
// room for it, or for its share: what was begun never waits for what comes later.
const (
	requests  = 32       // objects asked for at a time
	pieceSize = 64 << 10 // the unit of memory
	allPieces = 256      // 16 MiB
	maxPieces = 64       // of one object
)

// A fetch reads the objects of a tree ahead of their use: several at a time,
// begun in the order of the archive. Its tree opens each once.
type fetch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	driver Driver
	tree   *tree
	pool   pool
	jobs   chan *stream  // begun; closed behind the last
	begun  chan struct{} // closed when no more are begun
	stop   chan struct{} // closed when one has failed
	count  func()        // called for each object that has arrived

	running sync.WaitGroup
	mu      sync.Mutex
	streams map[int]*stream // by the object's place in the listing: begun or asked for, and not closed
	failed  int             // position of the first that failed
}

// newFetch begins to fetch what the artifact of s holds.
func newFetch(ctx context.Context, s *snapshot, count func()) *fetch {
	f := &fetch{driver: s.driver, count: count, failed: math.MaxInt, streams: map[int]*stream{},
		jobs: make(chan *stream), begun: make(chan struct{}), stop: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.pool.init(allPieces)
	f.tree = s.tree(false, f.open)
	f.running.Go(f.dispatch)
	for range requests {
		f.running.Go(f.work)
	}
	return f
}

// close ends everything that is still under way.
func (f *fetch) close() {
	f.cancel(errEnded)
	f.running.Wait()
}

var (
	errEnded  = errors.New("the fetch has ended")
	errBehind = errors.New("not fetched, since another object could not be")
)

// dispatch begins object after object.
func (f *fetch) dispatch() {
	defer close(f.begun)
	defer close(f.jobs)
	position := 0
	f.tree.each(f.tree.folder("."), func(i int) bool {
		o := f.tree.list.at(i)
		if o.Size == 0 {
			f.count() // nothing is asked for: the listing says it all
			return true
		}
		position++
		s := f.stream(i)
		if !f.admit(s, o, position) {
			return false
		}
		select {
		case f.jobs <- s:
			return true
		case <-f.stop:
			s.cancel(errBehind)
		case <-f.ctx.Done():
		}
		return false
	})
}

// admit gives s the memory that it needs, and makes it known as begun.
func (f *fetch) admit(s *stream, o Object, position int) bool {
	total := int((o.Size + pieceSize - 1) / pieceSize)
	share := min(total, maxPieces)
	for range share {
		select {
		case <-f.pool.tokens:
		case <-f.stop:
			return false
		case <-f.ctx.Done():
			return false
		}
	}
	s.object, s.position, s.again = o, position, total-share
	s.full, s.free = make(chan piece, share+1), make(chan []byte, share)
	for range share {
		s.free <- nil
	}
	s.ctx, s.cancel = context.WithCancelCause(f.ctx)
	close(s.begun)
	return true
}

// stream returns the stream of the object i.
func (f *fetch) stream(i int) *stream {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.streams[i]
	if s == nil {
		s = &stream{of: f, index: i, begun: make(chan struct{})}
		f.streams[i] = s
	}
	return s
}

// open returns the object i, for its one reader.
func (f *fetch) open(i int) (io.ReadCloser, error) {
	if f.tree.list.at(i).Size == 0 {
		return io.NopCloser(eof{}), nil
	}
	s := f.stream(i)
	select {
	case <-s.begun:
		return s, nil
	case <-f.begun:
	}
	select {
	case <-s.begun:
		return s, nil
	default:
		return nil, f.why()
	}
}

type eof struct{}

func (eof) Read([]byte) (int, error) { return 0, io.EOF }

func (f *fetch) why() error {
	if f.ctx.Err() != nil {
		return context.Cause(f.ctx)
	}
	return errBehind
}

// work receives objects.
func (f *fetch) work() {
	for s := range f.jobs {
		if f.isBehind(s) {
			s.cancel(errBehind)
		}
		r := receive(s.ctx, f.driver, s.object)
		s.fill(r)
		r.Close()
	}
}

// isBehind reports whether an object before s has failed.
func (f *fetch) isBehind(s *stream) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.failed < s.position
}

// fail ends what is behind s.
func (f *fetch) fail(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == math.MaxInt {
		close(f.stop)
	}
	f.failed = min(f.failed, s.position)
	for _, other := range f.streams {
		select {
		case <-other.begun:
			if other.position > f.failed {
				other.cancel(errBehind)
			}
		default:
		}
	}
}

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
