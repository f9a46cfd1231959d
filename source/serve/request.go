package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/headgate-io/headgate/source"
)

// ErrEnded is what Wait returns when there will be no more runs.
var ErrEnded = errors.New("the controller has ended")

// live returns the entry of an object that is in the feed.
func (c *Controller) live(ref source.Reference) (*entry, error) {
	if e := c.entries[ref]; e != nil && e.removed == nil {
		return e, nil
	}
	return nil, fmt.Errorf("%s: %w", ref, errNoObject)
}

// suspension returns an error that says who suspended e.
func suspension(e *entry) error {
	switch {
	case e.suspend:
		return fmt.Errorf("%s is %w by its spec: set spec.suspend to false", e.obj.Head(), ErrSuspended)
	case e.hold != nil && e.hold.By != "":
		return fmt.Errorf("%s is %w by %s: resume it", e.obj.Head(), ErrSuspended, e.hold.By)
	}
	return fmt.Errorf("%s is %w: resume it", e.obj.Head(), ErrSuspended)
}

// Request asks for a run of an object at once, after the one under way if there
// is one, and returns the number of that run; of an ExternalArtifact, which is
// never run, 0. The error wraps fs.ErrNotExist, or [ErrSuspended].
func (c *Controller) Request(ref source.Reference, by Trigger) (int64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.live(ref)
	switch {
	case err != nil:
		return 0, err
	case e.suspended():
		return 0, suspension(e)
	case external(e.obj):
		return 0, nil
	}
	c.kick(e, by, c.clock())
	c.pump()
	if e.state == running && e.again == "" { // it began with this request
		return e.begun, nil
	}
	return e.begun + 1, nil
}

// A waiter is a caller that waits for the end of a run.
type waiter struct{ done chan struct{} }

// Wait waits until the run of that number, or a later one, of an object has
// ended, and returns the object's view then. The error is that of ctx, or wraps
// fs.ErrNotExist when the object is removed, or [ErrSuspended] when it is
// suspended, so that there will be no such run; or it is [ErrEnded].
func (c *Controller) Wait(ctx context.Context, ref source.Reference, run int64) (View, error) {
	for {
		v, w, err := c.await(ref, run)
		if w == nil {
			return v, err
		}
		select {
		case <-w.done:
		case <-c.over():
			return View{}, ErrEnded
		case <-ctx.Done():
			c.mu.Lock()
			if e := c.entries[ref]; e != nil {
				delete(e.waits, w)
			}
			c.mu.Unlock()
			return View{}, context.Cause(ctx)
		}
	}
}

// await returns the view of an object whose run has ended, or a waiter for it.
func (c *Controller) await(ref source.Reference, run int64) (View, *waiter, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, err := c.live(ref)
	switch {
	case err != nil:
		return View{}, nil, err
	case e.ended >= run:
		return c.view(e), nil, nil
	case e.suspended() && e.state != running:
		return View{}, nil, suspension(e)
	}
	w := &waiter{make(chan struct{})}
	if e.waits == nil {
		e.waits = make(map[*waiter]int64)
	}
	e.waits[w] = run
	return View{}, w, nil
}

// answer wakes callers that wait for a run that ended, or will never be.
func (c *Controller) answer(e *entry) {
	for w, run := range e.waits {
		if e.ended >= run || e.removed != nil || e.suspended() && e.state != running {
			close(w.done)
			delete(e.waits, w)
		}
	}
}

// Suspend has an object left alone until Resume; a run that is under way ends
// first. It is durable. Suspending again changes By and Reason. The error wraps
// fs.ErrNotExist, or says why it cannot be made durable; then nothing changed.
func (c *Controller) Suspend(ref source.Reference, s source.Suspension) error {
	if s.Since.IsZero() {
		s.Since = c.wall().UTC()
	}
	var held *entry
	err := c.holding(ref, &s, func(e *entry) {
		held = e
		c.rest(e)
		c.answer(e)
	})
	if held != nil {
		c.saveDocument(c.ctx, held)
	}
	return err
}

// Resume ends what Suspend began, and asks for a run. The error wraps
// [ErrSuspended] when the spec itself suspends the object.
func (c *Controller) Resume(ref source.Reference) error {
	var suspended error
	err := c.holding(ref, nil, func(e *entry) {
		if e.suspend {
			suspended = suspension(e)
			return
		}
		c.kick(e, Request, c.clock())
	})
	return errors.Join(err, suspended)
}

// holding makes a suspension durable and then effective.
func (c *Controller) holding(ref source.Reference, hold *source.Suspension, then func(*entry)) error {
	c.setting.Lock() // in memory and on the disk they come in the same order
	defer c.setting.Unlock()
	c.mu.Lock()
	e, err := c.live(ref)
	c.mu.Unlock()
	if err != nil {
		return err
	}
	if err := c.saveHold(ref, hold); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.hold = hold
	then(e)
	c.changed(e)
	c.pump()
	return nil
}
