package controller

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/source"
)

// gather is how long news are gathered before watchers are told: states that
// pass in between are not worth telling.
const gather = 50 * time.Millisecond

// portion is how many views are made at a time, while everything else waits.
const portion = 256

// maxTombs is how many objects that are gone are kept for slow watchers.
const maxTombs = 1024

// ErrBehind is told to a watcher who has missed too much.
var ErrBehind = errors.New("too slow for the changes there were: watch again")

// view returns the view of e.
func (c *Controller) view(e *entry) View {
	v := View{
		Object: e.obj, Phase: e.phase(), Checked: e.checked, Failures: e.failures,
		Suspension: e.hold, Missing: e.missing,
	}
	if e.last != nil {
		v.Last = *e.last
	}
	if e.at >= 0 && e.removed == nil {
		v.Next = c.wall().Add(e.due - c.clock())
	}
	if e.state == blocked {
		v.Blockers = c.blockers(e)
	}
	return v
}

// phase says what the object is doing.
func (e *entry) phase() Phase {
	switch {
	case e.removed != nil && e.removed.done:
		return Gone
	case e.removed != nil:
		return Removed
	case e.state == running:
		return Running
	case e.suspended():
		return Suspended
	case e.state == queued:
		return Queued
	case e.state == blocked:
		return Blocked
	case e.stalled:
		return Stalled
	}
	return Idle
}

// changed gives e a new version: it is the last in the list, and watchers are told.
func (c *Controller) changed(e *entry) {
	c.version++
	c.unlist(e)
	e.version, e.prev = c.version, c.newest
	if c.newest != nil {
		c.newest.next = e
	}
	c.newest = e
	if c.news != nil && !c.told {
		c.told = true
		close(c.news)
	}
}

// unlist takes e out of the list by version.
func (c *Controller) unlist(e *entry) {
	if e.prev != nil {
		e.prev.next = e.next
	}
	if e.next != nil {
		e.next.prev = e.prev
	}
	if c.newest == e {
		c.newest = e.prev
	}
	e.prev, e.next = nil, nil
}

// entomb keeps an entry that is gone in the list, for those who watch.
func (c *Controller) entomb(e *entry) {
	c.tombs = append(c.tombs, e)
	keep := maxTombs
	if c.watchers == 0 {
		keep = 0
	}
	for len(c.tombs) > keep {
		c.lost = max(c.lost, c.tombs[0].version)
		c.unlist(c.tombs[0])
		c.tombs = c.tombs[1:]
	}
}

// Views returns all objects as they are now, in the order of kind, namespace and name.
func (c *Controller) Views() []View {
	c.mu.Lock()
	all := c.sorted
	c.mu.Unlock()
	return c.viewsOf(all)
}

// viewsOf returns the views of entries, without holding up everybody for all of them.
func (c *Controller) viewsOf(all []*entry) []View {
	views := make([]View, 0, len(all))
	for len(all) > 0 {
		n := min(len(all), portion)
		c.mu.Lock()
		for _, e := range all[:n] {
			views = append(views, c.view(e))
		}
		c.mu.Unlock()
		all = all[n:]
	}
	return views
}

// View returns one object as it is now. The error wraps fs.ErrNotExist.
func (c *Controller) View(ref source.Reference) (View, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.entries[ref]; e != nil {
		return c.view(e), nil
	}
	_, err := c.live(ref)
	return View{}, err
}

// Watch calls changed with each object whose view changed, those of all objects
// at first, until ctx or the controller ends; then it returns nil. Who is slow
// is told of the last change only, and nobody is told of changes that were
// changed again within some milliseconds. Who is so slow that objects are gone
// of which nothing is kept any more gets [ErrBehind]: he is to watch again.
func (c *Controller) Watch(ctx context.Context, changed func(View)) error {
	c.mu.Lock()
	c.watchers++
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.watchers--; c.watchers == 0 {
			for _, e := range c.tombs {
				c.unlist(e)
			}
			c.tombs = nil
		}
	}()
	over, seen := c.over(), uint64(0)
	for {
		fresh, news, version := c.since(seen)
		if news == nil {
			return ErrBehind
		}
		for len(fresh) > 0 && ctx.Err() == nil {
			n := min(len(fresh), portion)
			for _, v := range c.viewsOf(fresh[:n]) {
				changed(v)
			}
			fresh = fresh[n:]
		}
		seen = version
		select {
		case <-news:
		case <-over:
			return nil
		case <-ctx.Done():
			return nil
		}
		pause := time.NewTimer(gather)
		select {
		case <-pause.C:
		case <-ctx.Done():
		case <-over:
		}
		pause.Stop()
		if ctx.Err() != nil {
			return nil
		}
	}
}

// since returns the entries that changed after a version, the first change
// first, a channel that is closed when there is more, which is nil when some are
// not kept any more, and the version now.
func (c *Controller) since(seen uint64) ([]*entry, <-chan struct{}, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if seen != 0 && seen < c.lost {
		return nil, nil, 0
	}
	n := 0
	first := c.newest
	for e := c.newest; e != nil && e.version > seen; e = e.prev {
		first = e
		n++
	}
	fresh := make([]*entry, 0, n)
	for e := first; e != nil && n > 0; e = e.next {
		if seen != 0 || e.removed == nil || !e.removed.done {
			fresh = append(fresh, e)
		}
	}
	if c.news == nil || c.told {
		c.news, c.told = make(chan struct{}), false
	}
	return fresh, c.news, c.version
}

// Stats returns how much there is to do.
func (c *Controller) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var s Stats
	now := c.clock()
	for _, e := range c.sorted {
		if e.removed != nil {
			continue
		}
		s.Objects++
		switch e.state {
		case running:
			s.Running++
		case queued, blocked:
			s.Queued++
			s.Oldest = max(s.Oldest, now-e.due)
		default:
			s.Idle++
		}
	}
	s.Fetching = c.fetches.taken
	s.Asked, s.Shared = c.share.Counts()
	return s
}
