package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

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
