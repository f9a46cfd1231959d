package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A content is the content of one revision.
type content struct {
	origin   *Origin
	rev      source.Revision
	snapshot *snapshot
	ctx      context.Context // of what Explain returns, until end is called
	end      context.CancelFunc
}

func newContent(ctx context.Context, o *Origin, rev source.Revision, s *snapshot) *content {
	c := &content{origin: o, rev: rev, snapshot: s}
	c.ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	return c
}

var _ source.Explainer = (*content)(nil)

// Verify implements [source.Content]: buckets have no signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]. Objects that are unchanged since the
// published artifact was made are copied from it. The error wraps
// [source.ErrMoved] when an object is not what was listed any more, and when the
// published artifact turns out to be damaged.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (source.Report, error) {
	out := &output{Writer: w}
	report := source.Report{Notes: c.snapshot.notes[:len(c.snapshot.notes):len(c.snapshot.notes)]}
	files := len(c.snapshot.files)
	if c.snapshot.state.Ignore != nil {
		files-- // .sourceignore, which is no part of the revision
	}
	err := c.origin.within(ctx, "fetch", func(ctx context.Context) error { return c.pack(ctx, out, files, &report) })
	if err != nil && out.err == nil { // the bucket is at fault, not the storage
		err = c.origin.failed(source.StepFetch, err)
	}
	report.Emptied = c.snapshot.rules.Emptied(report.Report)
	report.Message = fmt.Sprintf("stored artifact with %d fetched files from '%s' bucket", files, c.origin.bucket.Spec.BucketName)
	return report, err
}

// pack fetches the objects and packs them while they arrive.
func (c *content) pack(ctx context.Context, out *output, total int, report *source.Report) error {
	progress, err := c.origin.progress("receiving objects", total)
	if err != nil {
		return err
	}
	f := newFetch(ctx, c.snapshot, c.openPrevious(ctx))
	f.count = func(arrived int) {
		if arrived%(total/maxReports+1) == 0 || arrived == total {
			progress(arrived)
		}
	}
	if f.previous != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%d of %d objects are unchanged and were copied from the artifact before", len(f.previous.same), total))
	}
	out.failed = f.cancel
	f.running.Go(f.begin)
	f.running.Go(f.copy)
	report.Report, err = c.origin.env.Cache.Pack(f.ctx, out, f.tree)
	if err == nil {
		f.running.Wait()
		err = f.previous.end(ctx)
	}
	f.close()
	switch {
	case err != nil && ctx.Err() != nil:
		return fmt.Errorf("%d of %d objects arrived: %w", f.arrived, total, err)
	case err != nil:
		return err
	}
	c.remember(out.Writer)
	return nil
}

// maxReports is how often progress is reported, about.
const maxReports = 100

// An output notes that writing failed, and ends what produces its content.
type output struct {
	io.Writer
	err    error
	failed context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.err = err
		o.failed(err)
	}
	return n, err
}

// Explain implements [source.Explainer].
func (c *content) Explain(context.Context) (fs.FS, *artifact.Rules, error) {
	s := c.snapshot
	t := newTree(s.all(), s.state.Ignore.text(), func(o Object, _ int) (io.ReadCloser, error) { return newObjectReader(c.ctx, s.driver, o), nil })
	return t, s.rules, nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.end()
	c.snapshot.access.close()
	return nil
}

// How far fetching runs ahead of packing. Objects get their share of the memory
// in the order of the archive: what was begun never waits for what comes later.
const (
	maxRequests = 64       // objects asked for at a time
	maxAhead    = 8 << 20  // bytes of an object that is read ahead; larger ones are streamed when it is their turn
	allAhead    = 16 << 20 // bytes of all objects that are read ahead
	minShare    = 64 << 10 // bytes that each object counts for at least
)

// A fetch reads the objects of a tree ahead of their use: several at a time,
// begun in the order of the archive. Its tree opens each once, in about that order.
type fetch struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	driver   Driver
	tree     *tree
	previous *previousArtifact   // has unchanged objects; nil: there are none
	memory   *semaphore.Weighted // bytes
	copies   chan *arrival       // those that are copied, in order
	running  sync.WaitGroup

	mu       sync.Mutex
	arrivals map[int]*arrival // by the number in the tree
	failed   int              // the first that could not be had
	arrived  int
	count    func(arrived int) // called for each object that has arrived
}

// An arrival is one object on its way.
type arrival struct {
	object Object
	index  int           // in the tree
	share  int64         // of the memory
	ready  chan struct{} // closed when what follows is set
	done   bool
	io.Reader
	err    error         // instead of the object
	closed chan struct{} // when it was read
}

// newFetch prepares to fetch what the artifact of s holds. It takes over previous, which may be nil.
func newFetch(ctx context.Context, s *snapshot, previous *previousArtifact) *fetch {
	f := &fetch{driver: s.driver, previous: previous, memory: semaphore.NewWeighted(allAhead), copies: make(chan *arrival, allAhead/minShare), arrivals: map[int]*arrival{}, failed: math.MaxInt}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.tree = newTree(s.files, s.state.Ignore.text(), f.open)
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
	f.previous.close()
}

// arrival returns the one of the object o, number i of the tree.
func (f *fetch) arrival(o Object, i int) *arrival {
	f.mu.Lock()
	defer f.mu.Unlock()
	a := f.arrivals[i]
	if a == nil {
		a = &arrival{object: o, index: i, ready: make(chan struct{}), closed: make(chan struct{})}
		f.arrivals[i] = a
		if i > f.failed {
			a.finish(nil, errBehind)
		}
	}
	return a
}

// finish hands an object over, or the error instead. What comes behind an error is not waited for.
func (f *fetch) finish(a *arrival, r io.Reader, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a.finish(r, err)
	if err == nil || a.index > f.failed {
		return
	}
	f.failed = a.index
	for i, b := range f.arrivals {
		if i > a.index {
			b.finish(nil, errBehind)
		}
	}
}

func (a *arrival) finish(r io.Reader, err error) {
	if !a.done {
		a.Reader, a.err, a.done = r, err, true
		close(a.ready)
	}
}

// arrive counts an object.
func (f *fetch) arrive() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived++
	f.count(f.arrived)
}

// begin begins object after object.
func (f *fetch) begin() {
	defer close(f.copies)
	var requests errgroup.Group
	requests.SetLimit(maxRequests)
	defer requests.Wait()
	for i, o := range f.tree.list {
		copied := f.previous.has(o.Key)
		switch {
		case o.Key == ignoreFile:
			continue
		case o.Size == 0: // nothing is asked for: the listing says it all
			f.arrive()
			continue
		case o.Size > maxAhead && !copied:
			continue
		}
		share := max(o.Size, minShare)
		if o.Size > maxAhead {
			share = minShare
		}
		if f.memory.Acquire(f.ctx, share) != nil {
			return
		}
		a := f.arrival(o, i)
		a.share = share
		if copied {
			f.copies <- a // each has a share, so there is room
			continue
		}
		requests.Go(func() error {
			r := newObjectReader(f.ctx, f.driver, o)
			defer r.Close()
			f.readAhead(a, r)
			return nil
		})
	}
}

// readAhead reads the whole of an object into memory.
func (f *fetch) readAhead(a *arrival, r io.Reader) {
	data, more := make([]byte, a.object.Size), make([]byte, 1)
	_, err := io.ReadFull(r, data)
	if err == nil {
		_, err = io.ReadFull(r, more) // at its end a reader judges what it has read
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	switch err {
	case io.EOF:
		f.arrive()
		f.finish(a, bytes.NewReader(data), nil)
	case nil:
		f.finish(a, nil, moved("it has grown"))
	default:
		f.finish(a, nil, err)
	}
}

// copy takes unchanged objects from the previous artifact.
func (f *fetch) copy() {
	for a := range f.copies {
		r := f.previous.find(a.object)
		if a.object.Size <= maxAhead {
			f.readAhead(a, r)
			continue
		}
		f.finish(a, r, nil)
		select {
		case <-a.closed:
			f.arrive()
		case <-f.ctx.Done():
			return
		}
	}
}

// open returns the object o, number i of the tree, for its one reader.
func (f *fetch) open(o Object, i int) (io.ReadCloser, error) {
	switch {
	case o.Size == 0:
		return io.NopCloser(strings.NewReader("")), nil
	case o.Size > maxAhead && !f.previous.has(o.Key):
		return &streamed{newObjectReader(f.ctx, f.driver, o), f}, nil
	}
	a := f.arrival(o, i)
	select {
	case <-a.ready:
	case <-f.ctx.Done():
		return nil, context.Cause(f.ctx)
	}
	if a.err != nil {
		return nil, a.err
	}
	return &opened{a, f}, nil
}

// An opened is an object that was read ahead, or is being copied. It has its memory until it is closed.
type opened struct {
	*arrival
	of *fetch
}

func (o *opened) Close() error {
	o.of.mu.Lock()
	delete(o.of.arrivals, o.index)
	o.of.mu.Unlock()
	close(o.closed)
	o.of.memory.Release(o.share)
	return nil
}

// A streamed is a large object that is read when it is its turn.
type streamed struct {
	*objectReader
	of *fetch
}

func (s *streamed) Close() error {
	if s.of.ctx.Err() == nil {
		s.of.arrive()
	}
	return s.objectReader.Close()
}

const (
	maxBreaks  = 4                      // in a row with less than minGain between the first and the last
	minGain    = 64 << 10               // bytes
	breakPause = 200 * time.Millisecond // after the second in a row, doubled each time
	stallAfter = 20 * time.Second       // without a byte a connection is given up
)

var errStalled = fmt.Errorf("no data for %s", stallAfter)

// An objectReader reads one object, all of it and as it was listed, over as many
// connections as it takes.
type objectReader struct {
	ctx    context.Context
	driver Driver
	object Object
	done   int64 // bytes that were read

	body   io.ReadCloser   // nil: to be opened
	conn   context.Context // of body
	end    context.CancelCauseFunc
	watch  *time.Timer
	breaks int   // in a row
	first  int64 // what done was at the first of them
	err    error // that ended reading
}

// newObjectReader returns a reader of o. It opens nothing before it is read.
func newObjectReader(ctx context.Context, d Driver, o Object) *objectReader {
	return &objectReader{ctx: ctx, driver: d, object: o}
}

// Read implements [io.Reader].
func (r *objectReader) Read(p []byte) (n int, err error) {
	for r.err == nil && n == 0 && len(p) > 0 {
		n, r.err = r.read(p)
	}
	if n > 0 {
		return n, nil
	}
	return 0, r.err
}

// read reads once. Nothing and no error means that the caller is to read again.
func (r *objectReader) read(p []byte) (n int, err error) {
	left := r.object.Size - r.done
	switch {
	case r.body == nil && left <= 0:
		return 0, io.EOF // which the listing says
	case r.body == nil:
		conn, end := context.WithCancelCause(r.ctx)
		body, err := r.driver.Open(conn, r.object, r.done)
		if err != nil {
			end(nil)
			return 0, r.broken(err)
		}
		r.body, r.conn, r.end = body, conn, end
		r.watch = time.AfterFunc(stallAfter, func() { end(errStalled) })
	}
	r.watch.Reset(stallAfter)
	n, err = r.body.Read(p[:min(int64(len(p)), max(left, 1))])
	r.watch.Stop()
	r.done += int64(n)
	switch {
	case r.done > r.object.Size:
		return 0, moved("it has grown")
	case err == nil || err == io.EOF && n > 0:
		return n, nil
	case err == io.EOF && left <= 0:
		return 0, io.EOF
	}
	return n, r.broken(err)
}

// broken judges the error that ended a connection: nil means that another may go on.
func (r *objectReader) broken(err error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.body != nil && context.Cause(r.conn) == errStalled {
		err = errStalled
	}
	r.Close()
	answer, ok := errors.AsType[*StatusError](err)
	answered := ok && answer.Status != 0 || errors.Is(err, fs.ErrPermission) // the driver asked again if there was any hope
	switch {
	case answered && is[*source.StepError](err): // of a token service
		return err
	case errors.Is(err, ErrChanged):
		return moved("it has changed")
	case errors.Is(err, fs.ErrNotExist):
		return moved("it has disappeared")
	case answered || r.done >= r.object.Size:
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if r.breaks == 0 || r.done-r.first >= minGain {
		r.breaks, r.first = 0, r.done
	}
	switch r.breaks++; r.breaks {
	case 1:
		return nil
	case maxBreaks:
		return fmt.Errorf("it ends after %d of %d bytes, %d times within %d KiB: %w", r.done, r.object.Size, r.breaks, minGain>>10, err)
	}
	return transport.Sleep(r.ctx, breakPause<<(r.breaks-2))
}

// moved is the error of an object that is not what was listed.
func moved(how string) error {
	return fmt.Errorf("%s since it was listed: %w", how, source.ErrMoved)
}

// Close implements [io.Closer].
func (r *objectReader) Close() error {
	if r.body != nil {
		r.end(nil)
		r.body.Close()
		r.body = nil
	}
	return nil
}
