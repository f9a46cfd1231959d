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
	requests  = 64       // objects asked for at a time
	pieceSize = 64 << 10 // the unit of memory
	allPieces = 128      // 8 MiB
	maxPieces = 32       // of one object
)

// A fetch reads the objects of a tree ahead of their use: several at a time,
// begun in the order of the archive. Its tree opens each once.
type fetch struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	driver Driver
	tree   *tree
	pool   pool
	copies *previousArtifact // where unchanged objects are; nil: nowhere
	jobs   chan *stream      // begun, and to be received; closed behind the last
	queue  chan *stream      // begun, and to be copied; closed behind the last
	begun  chan struct{}     // closed when no more are begun
	stop   chan struct{}     // closed when one has failed
	count  func()            // called for each object that has arrived

	running sync.WaitGroup
	mu      sync.Mutex
	streams map[int]*stream // by the object's place in the listing: begun or asked for, and not closed
	failed  int             // position of the first that failed
}

// newFetch begins to fetch what the artifact of s holds. It takes over copies,
// which may be nil.
func newFetch(ctx context.Context, s *snapshot, copies *previousArtifact, count func()) *fetch {
	f := &fetch{driver: s.driver, copies: copies, count: count, failed: math.MaxInt, streams: map[int]*stream{},
		jobs: make(chan *stream), queue: make(chan *stream, allPieces), begun: make(chan struct{}), stop: make(chan struct{})}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.pool.init(allPieces)
	f.tree = s.tree(false, f.open)
	f.running.Go(f.dispatch)
	for range requests {
		f.running.Go(f.work)
	}
	if copies != nil {
		f.running.Go(f.copy)
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
	defer close(f.queue)
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
		to := f.jobs
		if f.copies.has(i) {
			to = f.queue // which has room
		}
		select {
		case to <- s:
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
	total := int((o.Size-1)/pieceSize + 1)
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
		f.drop(s)
		r := receive(s.ctx, f.driver, s.object)
		s.fill(r)
		r.Close()
	}
}

// copy takes objects from where they are unchanged.
func (f *fetch) copy() {
	for s := range f.queue {
		f.drop(s)
		s.fill(f.copies.find(s.object))
	}
	f.copies.end(f.ctx)
}

// wait waits until everything has come to its end, and tells what was wrong
// with what was copied.
func (f *fetch) wait() error {
	f.running.Wait()
	return f.copies.problem()
}

// drop ends s if an object before it has failed.
func (f *fetch) drop(s *stream) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed < s.position {
		s.cancel(errBehind)
	}
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
