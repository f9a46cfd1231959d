package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
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
	*snapshot
	origin *Origin
}

var _ source.Explainer = (*content)(nil)

// Verify implements [source.Content]: buckets have no signatures.
func (c *content) Verify(context.Context) (source.Verification, error) {
	return source.Verification{}, nil
}

// WriteTo implements [source.Content]. Objects that are unchanged since the
// published artifact was made are copied from it. The error wraps
// [source.ErrMoved] when an object changed since it was listed, and when the
// published artifact turns out to be damaged.
func (c *content) WriteTo(ctx context.Context, w io.Writer) (report source.Report, err error) {
	out := &output{Writer: w}
	err = c.origin.within(ctx, "fetch", func(ctx context.Context) (err error) {
		report, err = c.pack(ctx, out)
		return err
	})
	if err != nil && out.err == nil { // the bucket is at fault, not the storage
		err = c.origin.failed(source.StepFetch, err)
	}
	report.Notes = append(c.notes[:len(c.notes):len(c.notes)], report.Notes...)
	report.Emptied = c.rules.Emptied(report.Report)
	report.Message = fmt.Sprintf("stored artifact with %d fetched files from '%s' bucket", c.count(), c.origin.bucket.Spec.BucketName)
	return report, err
}

// count returns the number of objects in the revision: all files except .sourceignore.
func (s *snapshot) count() int {
	if s.state.Ignore != nil {
		return len(s.files) - 1
	}
	return len(s.files)
}

// maxReports is the approximate number of progress reports per fetch.
const maxReports = 100

// pack fetches the objects and packs them while they arrive.
func (c *content) pack(ctx context.Context, out *output) (report source.Report, err error) {
	total := c.count()
	progress, err := c.origin.progress("receiving objects", total)
	if err != nil {
		return report, err
	}
	f := newFetch(ctx, c.snapshot, c.openPrevious(ctx), func(arrived int) {
		if arrived%(total/maxReports+1) == 0 || arrived == total {
			progress(arrived)
		}
	})
	if f.previous != nil {
		report.Notes = append(report.Notes, fmt.Sprintf("%d of %d objects are unchanged and were copied from the artifact before", len(f.previous.unchanged), total))
	}
	out.cancel = f.cancel
	report.Report, err = f.pack(func(ctx context.Context) (artifact.Report, error) { return c.origin.env.Cache.Pack(ctx, out, f.tree) })
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%d of %d objects arrived: %w", f.arrived, total, err)
	}
	if err == nil {
		c.cacheIndex(out.Writer)
	}
	return report, err
}

// An output records a write error, and cancels the producer of its content.
type output struct {
	io.Writer
	err    error
	cancel context.CancelCauseFunc
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil {
		o.err = err
		o.cancel(err)
	}
	return n, err
}

// Explain implements [source.Explainer].
func (c *content) Explain(ctx context.Context) (fs.FS, *artifact.Rules, error) {
	ctx = context.WithoutCancel(ctx) // the tree is valid until Close
	return newTree(c.all(), c.state.Ignore.text(), func(o Object, _ int) (io.ReadCloser, error) {
		return &objectReader{ctx: ctx, driver: c.driver, object: o}, nil
	}), c.rules, nil
}

// Close implements [source.Content].
func (c *content) Close() error {
	c.access.close()
	return nil
}

// Limits of reading ahead of packing. Objects acquire memory in the order of the
// archive, so a read that has begun never waits for a later object.
const (
	maxRequests   = 64       // concurrent requests for objects
	maxAhead      = 8 << 20  // bytes of an object that is read ahead; larger objects are streamed when packing reaches them
	maxAheadTotal = 16 << 20 // bytes of all objects that are read ahead
	minShare      = 64 << 10 // bytes that each object counts for at least
)

// A fetch reads the objects of a tree ahead of packing: several at a time, started
// in the order of the archive. The packer opens each object of the tree once, in
// about that order. The first error ends the fetch.
type fetch struct {
	ctx      context.Context
	cancel   context.CancelCauseFunc
	driver   Driver
	tree     *tree
	previous *previousArtifact   // has unchanged objects; nil: there are none
	memory   *semaphore.Weighted // bytes
	report   func(arrived int)   // called for each object that has arrived

	mu       sync.Mutex
	arrivals map[int]chan io.ReadCloser // by index in the tree; entries of opened objects are removed
	arrived  int
}

// newFetch prepares to fetch the files of s. It takes ownership of previous, which may be nil.
func newFetch(ctx context.Context, s *snapshot, previous *previousArtifact, report func(arrived int)) *fetch {
	f := &fetch{driver: s.driver, previous: previous, memory: semaphore.NewWeighted(maxAheadTotal), report: report, arrivals: map[int]chan io.ReadCloser{}}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	f.tree = newTree(s.files, s.state.Ignore.text(), f.open)
	return f
}

// pack fetches all objects while do packs the tree. It returns after all reads have ended.
func (f *fetch) pack(do func(context.Context) (artifact.Report, error)) (artifact.Report, error) {
	defer f.previous.close()
	var running sync.WaitGroup
	running.Go(f.readAhead)
	report, err := do(f.ctx)
	if err != nil {
		f.cancel(err)
		err = context.Cause(f.ctx) // the first error; packing may have reported it for another object
	}
	running.Wait()
	if err == nil {
		err = f.previous.end(f.ctx)
	}
	f.cancel(nil)
	return report, err
}

// arrival returns the channel that passes object i to open.
func (f *fetch) arrival(i int) chan io.ReadCloser {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.arrivals[i] == nil {
		f.arrivals[i] = make(chan io.ReadCloser, 1)
	}
	return f.arrivals[i]
}

// countArrival counts one object as arrived, and reports progress.
func (f *fetch) countArrival() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arrived++
	f.report(f.arrived)
}

// streamed reports whether o is requested only when it is opened.
func (f *fetch) streamed(o Object) bool { return o.Size > maxAhead && !f.previous.has(o.Key) }

// readAhead reads the objects in order. It reads small objects into memory, and copies
// unchanged large objects from the previous artifact, which has the same order. It
// skips large objects that are streamed.
func (f *fetch) readAhead() {
	var requests errgroup.Group
	requests.SetLimit(maxRequests)
	defer requests.Wait()
	for i, o := range f.tree.list {
		share := max(o.Size, minShare)
		switch {
		case o.Key == ignoreFile || f.streamed(o):
			continue
		case o.Size == 0: // no request is needed
			f.countArrival()
			continue
		case o.Size > maxAhead:
			read := make(chan struct{})
			f.arrival(i) <- &prefetched{f.previous.find(o), func() { close(read) }}
			select {
			case <-read:
				f.countArrival()
			case <-f.ctx.Done():
				return
			}
			continue
		case f.memory.Acquire(f.ctx, share) != nil:
			return
		case f.previous.has(o.Key):
			f.read(i, share, f.previous.find(o))
			continue
		}
		requests.Go(func() error {
			r := &objectReader{ctx: f.ctx, driver: f.driver, object: o}
			defer r.Close()
			f.read(i, share, r)
			return nil
		})
	}
}

// read reads object i completely from r, and passes it to open. An error ends the fetch.
func (f *fetch) read(i int, share int64, r io.Reader) {
	o := f.tree.list[i]
	data, more := make([]byte, o.Size), make([]byte, 1)
	_, err := io.ReadFull(r, data)
	if err == nil {
		if _, err = io.ReadFull(r, more); err == nil { // readers verify the content at its end
			err = moved("it has grown")
		}
	} else if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != io.EOF {
		f.cancel(fmt.Errorf("%s: %w", quoted(o.Key), err))
		return
	}
	f.countArrival()
	f.arrival(i) <- &prefetched{bytes.NewReader(data), func() { f.memory.Release(share) }}
}

// A prefetched reader returns the content of an object that is or was read ahead, or
// streamed. Close calls giveBack, for example to release memory.
type prefetched struct {
	io.Reader
	release func()
}

func (a *prefetched) Close() error {
	a.release()
	return nil
}

// open returns object i of the tree, which is o. It is called once for each object.
func (f *fetch) open(o Object, i int) (io.ReadCloser, error) {
	switch {
	case o.Size == 0:
		return io.NopCloser(strings.NewReader("")), nil
	case f.streamed(o):
		r := &objectReader{ctx: f.ctx, driver: f.driver, object: o}
		return &prefetched{r, func() {
			if r.Close(); r.done == o.Size {
				f.countArrival()
			}
		}}, nil
	}
	select {
	case r := <-f.arrival(i):
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.arrivals, i)
		return r, nil
	case <-f.ctx.Done():
		return nil, context.Cause(f.ctx)
	}
}

const (
	maxBreaks  = 4                      // consecutive broken connections, with less than minGain between the first and the last
	minGain    = 64 << 10               // bytes
	breakPause = 200 * time.Millisecond // after the second break in a row, doubled each time
	stallAfter = 20 * time.Second       // time without a byte after which a connection is closed
)

var errStalled = fmt.Errorf("no data for %s", stallAfter)

// An objectReader reads one complete object, as it was listed. If a connection
// breaks, it continues over a new one. The first Read opens the first connection.
type objectReader struct {
	ctx    context.Context
	driver Driver
	object Object
	done   int64 // bytes that were read

	body   io.ReadCloser   // nil: Read opens it
	conn   context.Context // of body
	cancel context.CancelCauseFunc
	watch  *time.Timer
	breaks int   // in a row
	first  int64 // value of done at the first of these breaks
	err    error // the error that ended reading
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

// read reads once. If it returns 0 and nil, the caller must call it again.
func (r *objectReader) read(p []byte) (n int, err error) {
	left := r.object.Size - r.done
	switch {
	case r.body == nil && left <= 0:
		return 0, io.EOF // the size is known from the listing
	case r.body == nil:
		conn, end := context.WithCancelCause(r.ctx)
		body, err := r.driver.Open(conn, r.object, r.done)
		if err != nil {
			end(nil)
			return 0, r.broken(err)
		}
		r.body, r.conn, r.cancel = body, conn, end
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

// broken handles the error that ended a connection. It returns nil if reading may
// continue over a new connection, after a pause if necessary.
func (r *objectReader) broken(err error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if r.body != nil && context.Cause(r.conn) == errStalled {
		err = errStalled
	}
	r.Close()
	answer, ok := errors.AsType[*StatusError](err)
	answered := ok && answer.Status != 0 || errors.Is(err, fs.ErrPermission) // the driver has already retried if that made sense
	switch {
	case answered && is[*source.StepError](err): // from a token service
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

// moved returns the error for an object that is not as it was listed. It wraps [source.ErrMoved].
func moved(how string) error {
	return fmt.Errorf("%s since it was listed: %w", how, source.ErrMoved)
}

// Close implements [io.Closer].
func (r *objectReader) Close() error {
	if r.body != nil {
		r.cancel(nil)
		r.body.Close()
		r.body = nil
	}
	return nil
}
