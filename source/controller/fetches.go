package controller

import "context"

// A fetcher is a run that waits to open its content.
type fetcher struct {
	ready chan struct{} // closed when it may
	given bool
	gone  bool // it waits no longer
}

// admit waits for a slot for the content of j.
func (c *Controller) admit(ctx context.Context, j *job) (end func(), err error) {
	w := &fetcher{ready: make(chan struct{})}
	c.mu.Lock()
	c.fetches.add(j.host, w)
	c.letIn()
	c.mu.Unlock()
	end = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fetches.done(j.host)
		c.letIn()
	}
	select {
	case <-w.ready:
		j.opened = true
		return end, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	w.gone = true
	given := w.given
	c.mu.Unlock()
	if given {
		end()
	}
	return nil, context.Cause(ctx)
}

// letIn gives the slots there are to those who wait.
func (c *Controller) letIn() {
	for {
		w, ok := c.fetches.next(func(w *fetcher, _ string) bool { return !w.gone })
		if !ok {
			return
		}
		w.given = true
		close(w.ready)
	}
}
