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

// errStalled is a break.
var errStalled = fmt.Errorf("no data for %s", stallAfter)

// A receipt reads one object, all of it and as it was listed, over as many
// connections as it takes.
type receipt struct {
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
	err    error // what ended it
}

// receive returns a reader of o. It opens nothing before it is read.
func receive(ctx context.Context, d Driver, o Object) *receipt {
	return &receipt{ctx: ctx, driver: d, object: o}
}

// Read implements [io.Reader].
func (r *receipt) Read(p []byte) (int, error) {
	for r.err == nil && len(p) > 0 {
		n, err := r.read(p)
		r.err = err
		if n > 0 {
			return n, nil
		}
	}
	return 0, r.err
}

// read reads once. Nothing and no error says: once more.
func (r *receipt) read(p []byte) (int, error) {
	left := r.object.Size - r.done
	if r.body == nil {
		if left <= 0 {
			return 0, io.EOF // which the listing says
		}
		if err := r.open(); err != nil || r.body == nil {
			return 0, err
		}
	}
	r.watch.Reset(stallAfter)
	n, err := r.body.Read(p[:min(int64(len(p)), max(left, 1))])
	r.watch.Stop()
	switch {
	case n > 0 && left <= 0:
		return 0, moved("it has grown")
	case n > 0:
		r.done += int64(n)
		if err == nil || err == io.EOF {
			return n, nil
		}
		return n, r.broken(err)
	case err == io.EOF && left <= 0:
		return 0, io.EOF
	case err == nil:
		return 0, nil
	}
	return 0, r.broken(err)
}

// open asks for what is left. Nothing and no error says: once more.
func (r *receipt) open() error {
	ctx, cancel := context.WithCancelCause(r.ctx)
	body, err := r.driver.Open(ctx, r.object, r.done)
	if err != nil {
		cancel(nil)
		return r.broken(err)
	}
	r.body, r.conn, r.end = body, ctx, cancel
	r.watch = time.AfterFunc(stallAfter, func() { cancel(errStalled) })
	return nil
}

// broken judges what ended a connection: nil says that another may go on.
func (r *receipt) broken(err error) error {
	if r.ctx.Err() != nil {
		return context.Cause(r.ctx)
	}
	if stalled := r.hangUp(); stalled {
		err = errStalled
	}
	switch {
	case is[*source.StepError](err) && isAnswer(err): // of who issues credentials
		return err
	case errors.Is(err, ErrChanged):
		return moved("it has changed")
	case errors.Is(err, fs.ErrNotExist):
		return moved("it has disappeared")
	case r.done >= r.object.Size, isAnswer(err):
		return err
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	if r.breaks == 0 || r.done-r.first >= minGain {
		r.breaks, r.first = 0, r.done
	}
	if r.breaks++; r.breaks == maxBreaks {
		return fmt.Errorf("it ends after %d of %d bytes, %d times within %d KiB: %w", r.done, r.object.Size, r.breaks, minGain>>10, err)
	}
	if r.breaks == 1 {
		return nil
	}
	return transport.Sleep(r.ctx, breakPause<<(r.breaks-2))
}

// isAnswer reports whether err is what the store says, which the driver asked
// again if there was any hope.
func isAnswer(err error) bool {
	answer, ok := errors.AsType[*StatusError](err)
	return ok && answer.Status != 0 || errors.Is(err, fs.ErrPermission)
}

// moved is the error of an object that is not what was listed.
func moved(how string) error {
	return fmt.Errorf("%s since it was listed: %w", how, source.ErrMoved)
}

// hangUp ends the connection, and reports whether it had stalled.
func (r *receipt) hangUp() (stalled bool) {
	if r.body == nil {
		return false
	}
	stalled = context.Cause(r.conn) == errStalled
	r.end(nil)
	r.body.Close()
	r.body = nil
	return stalled
}

// Close implements [io.Closer].
func (r *receipt) Close() error {
	r.hangUp()
	return nil
}
