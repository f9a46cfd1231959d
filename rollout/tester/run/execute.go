package run

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout/tester/api"
)

// What ends a run before its task does, as the cause of its context.
type (
	timeout   time.Duration
	cancelled string // by whom
	stopped   struct{}
)

func (t timeout) Error() string { return "timed out after " + time.Duration(t).String() }
func (stopped) Error() string   { return "the test runner was shut down" }
func (c cancelled) Error() string {
	if c == "" {
		return "cancelled"
	}
	return "cancelled by " + string(c)
}

// admit runs e, at once or when there is a place for it. The error is ErrBusy.
func (d *Desk) admit(e *entry) error {
	busy := d.running >= d.config.Concurrency
	if busy && len(d.queue) >= d.config.Queue {
		return ErrBusy
	}
	e.run.ID = d.clock.id(e.run.Created)
	d.add(e)
	if busy {
		d.queue = append(d.queue, e)
		d.changed(e)
		d.config.Observe(e.run, false)
		return nil
	}
	d.launch(e)
	return nil
}

// launch starts e: there is a place for it.
func (d *Desk) launch(e *entry) {
	ctx, cancel := context.WithCancelCause(d.root)
	e.live.cancel = cancel
	e.run.State, e.run.Started = api.Running, d.config.Now().UTC()
	d.running++
	d.tasks.Add(1)
	go d.execute(ctx, e, e.live, *e.live)
	d.changed(e)
	d.config.Observe(e.run, false)
}

// execute runs the task, whatever becomes of it. The start of l is as it was
// when e was launched: a shutdown that waits no longer ends e from elsewhere.
func (d *Desk) execute(ctx context.Context, e *entry, l *live, start live) {
	defer d.tasks.Done()
	defer start.cancel(nil)
	ctx, stop := context.WithTimeoutCause(ctx, start.timeout, timeout(start.timeout))
	defer stop()
	err := errors.New("the task ended its goroutine") // unless it returns
	defer func() { d.finish(e, l, start.sink, judge(ctx, err, start.sink.secrets)) }()
	err = attempt(ctx, start.task, start.sink)
}

// attempt makes an error of a panic.
func attempt(ctx context.Context, t Task, s *sink) (err error) {
	returned := false
	defer func() {
		if !returned {
			if p := recover(); p != nil {
				err = fmt.Errorf("the task panicked: %v", p)
			}
		}
	}()
	err = t.Run(ctx, s)
	returned = true
	return err
}

// An outcome is how a task ended.
type outcome struct {
	state  api.RunState
	reason string
	code   *int
}

// judge says what the end of a task means. Who was to end counts as ended,
// whatever it says: a test that was cut short has not passed.
func judge(ctx context.Context, err error, secrets []string) (o outcome) {
	defer func() {
		if recover() != nil { // in a method of err
			o = outcome{state: api.Failed, reason: "the task failed with an error that panics"}
		}
	}()
	o.state, o.code = api.Succeeded, new(int)
	if err != nil {
		o.state = api.Failed
	}
	if ctx.Err() != nil {
		cause := context.Cause(ctx)
		switch cause.(type) {
		case timeout:
			o.state = api.TimedOut
		case cancelled:
			o.state = api.Cancelled
		default:
			o.state = api.Stopped
		}
		switch {
		case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
			err = cause
		case !errors.Is(err, cause):
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	if err != nil {
		o.reason, o.code = reason(err, secrets), nil
		var exit interface{ ExitCode() int }
		if errors.As(err, &exit) && exit.ExitCode() >= 0 {
			code := exit.ExitCode()
			o.code = &code
		}
	}
	return o
}

// reasonMax bounds why a run did not succeed, in bytes.
const reasonMax = 4 << 10

func reason(err error, secrets []string) string {
	text := redact.String(err.Error(), secrets...)
	if len(text) > reasonMax {
		text = text[:whole([]byte(text[:reasonMax]))] + "…"
	}
	return text
}

// finish records how e ended, gives its place to the next, and tells who waits:
// who has heard of the end of a run finds its place free. It returns false when
// that was done before.
func (d *Desk) finish(e *entry, l *live, s *sink, o outcome) bool {
	written, sum := s.close()
	text, truncated := s.tape.text()
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.ended() {
		return false
	}
	now := d.config.Now().UTC()
	r := &e.run
	r.State, r.Reason, r.ExitCode, r.Ended = o.state, o.reason, o.code, now
	r.Summary, r.Bytes, r.Truncated = sum, written, truncated
	r.Duration = milliseconds(r.Started, now)
	l.task, l.sink, l.final = nil, nil, *r
	l.final.Output = text
	d.held += int64(len(text))
	d.config.Observe(l.final, false)
	d.changed(e)
	if l.cancel != nil { // else it had no place
		d.running--
		d.advance()
	}
	close(l.done)
	d.forget()
	return true
}

// advance launches the runs for which there is a place now.
func (d *Desk) advance() {
	for d.running < d.config.Concurrency && len(d.queue) > 0 {
		next := d.queue[0]
		d.queue[0] = nil
		d.queue = d.queue[1:]
		d.launch(next)
	}
}

// Cancel ends a run and waits until its task has returned. Of a run that has
// ended it changes nothing. The error is ErrNotFound, or the cause of ctx when
// that ended before the task.
func (d *Desk) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	d.mu.Lock()
	e := d.byID[id]
	if e == nil {
		d.mu.Unlock()
		return api.Run{}, ErrNotFound
	}
	if e.ended() {
		d.mu.Unlock()
		return d.record(e), nil
	}
	l, s := e.live, e.live.sink
	cause := cancelled(redact.String(actor))
	if i := slices.Index(d.queue, e); i >= 0 {
		d.queue = slices.Delete(d.queue, i, i+1)
		d.mu.Unlock()
		d.finish(e, l, s, outcome{state: api.Cancelled, reason: cause.Error()})
		return l.final, nil
	}
	if l.cancel != nil { // else it is out of the queue, and about to end
		l.cancel(cause)
	}
	d.mu.Unlock()
	select {
	case <-l.done:
		return l.final, nil
	case <-ctx.Done():
		return api.Run{}, context.Cause(ctx)
	}
}
