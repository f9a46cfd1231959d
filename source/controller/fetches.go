package controller

import (
	"context"
	"time"
)

// A fetcher is a run that waits to open its content.
type fetcher struct {
	ready chan struct{}   // closed when it may
	slot  *slot[*fetcher] // nil before
	gone  bool            // it waits no longer
}

// admit waits for a slot for the content of j.
func (c *Controller) admit(ctx context.Context, j *job) (end func(), err error) {
	w := &fetcher{ready: make(chan struct{})}
	c.mu.Lock()
	c.fetches.add(j.host, w)
	c.pump()
	c.mu.Unlock()
	end = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fetches.done(w.slot)
		c.pump()
	}
	select {
	case <-w.ready:
		j.opened = true
		return end, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	w.gone = true
	given := w.slot != nil
	c.mu.Unlock()
	if given {
		end()
	}
	return nil, context.Cause(ctx)
}

// letIn gives the slots there are to those who wait.
func (c *Controller) letIn(now time.Duration) {
	for {
		w, s := c.fetches.next(now, func(w *fetcher, _ string) bool { return !w.gone })
		if s == nil {
			return
		}
		w.slot = s
		close(w.ready)
	}
}
