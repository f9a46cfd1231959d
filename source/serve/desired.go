package serve

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// set makes d what there is to be. The error, at the first d, is the ledger's.
func (c *Controller) set(ctx context.Context, d Desired) error {
	if d.Secrets == nil {
		d.Secrets = source.Chain()
	}
	suspended, err := c.take(ctx, d)
	if err != nil {
		return fmt.Errorf("read what was saved: %w", err)
	}
	each(ctx, len(suspended), func(i int) { c.saveDocument(ctx, suspended[i]) })
	if ctx.Err() == nil {
		c.mu.Lock()
		all := c.sorted
		c.mu.Unlock()
		c.review(ctx, d.Secrets, all)
	}
	return nil
}

// take takes over d, and returns the objects that are suspended since.
func (c *Controller) take(ctx context.Context, d Desired) (suspended []*entry, err error) {
	c.setting.Lock()
	defer c.setting.Unlock()
	first := !c.Ready()
	list := first || !c.listed && len(d.Defects) == 0
	known, err := c.restore(ctx, c.unknown(d.Objects), list)
	if err != nil {
		return nil, err
	}
	c.listed = c.listed || list && len(d.Defects) == 0
	suspended = c.desire(d, known, first)
	c.mark(ctx)
	if first {
		c.goes.Go(func() { c.scrub(ctx) })
	}
	return suspended, nil
}

// desire makes d what there is to be; the controller is ready after the first.
func (c *Controller) desire(d Desired, known map[source.Reference]saved, first bool) (suspended []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	c.secrets, c.defects = d.Secrets, slices.Clone(d.Defects)
	for _, doc := range d.Objects {
		ref := source.ReferenceTo(doc)
		e := c.entries[ref]
		switch {
		case e == nil:
			e = c.add(ref, doc, known[ref])
		case e.serial == c.serial: // of several documents the first counts
			continue
		case c.update(e, doc):
			suspended = append(suspended, e)
		}
		e.serial = c.serial
	}
	for ref, s := range known { // the rest is in no document
		if c.entries[ref] == nil && (!s.unread || len(c.defects) == 0) {
			c.add(ref, s.obj, s)
		}
	}
	for _, e := range c.entries {
		switch {
		case e.serial == c.serial || e.removed != nil:
		case len(c.defects) == 0:
			c.remove(e, e.marked)
		case !e.missing:
			e.missing = true
			c.changed(e)
		}
	}
	suspended = append(suspended, c.settle()...)
	if first {
		close(c.ready)
	}
	c.pump()
	return suspended
}

// unknown returns those of the objects that are new.
func (c *Controller) unknown(objects []source.Object) []source.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []source.Object
	seen := make(map[source.Reference]bool)
	for _, obj := range objects {
		if ref := source.ReferenceTo(obj); c.entries[ref] == nil && !seen[ref] {
			seen[ref] = true
			fresh = append(fresh, obj)
		}
	}
	return fresh
}

// settle brings up to date what depends on which objects there are, and plans the
// first runs of new ones. It returns those that are suspended.
func (c *Controller) settle() (suspended []*entry) {
	c.sorted = make([]*entry, 0, len(c.entries))
	for _, e := range c.entries {
		c.sorted = append(c.sorted, e)
	}
	slices.SortFunc(c.sorted, func(a, b *entry) int { return compare(a.ref, b.ref) })
	c.link()
	hosts := make(map[string]bool)
	for _, e := range c.sorted {
		if e.removed == nil && !external(e.obj) {
			e.upstream, e.host = upstreamOf(e.obj, c.object)
			if e.state == queued {
				c.lineUp(e)
			}
		}
		hosts[e.host] = true
	}
	c.runs.keep(hosts)
	c.fetches.keep(hosts)
	c.keepTicks()
	for _, e := range c.sorted {
		switch {
		case e.removed != nil:
			continue
		case !e.planned:
			e.planned = true
			if c.planFirst(e); e.suspended() {
				suspended = append(suspended, e)
			}
		case c.sumInputs(e) != e.inputs:
			c.kick(e, Input, 0)
		}
		if e.state == blocked {
			c.enter(e)
		}
	}
	return suspended
}

// add adds an object that was not there.
func (c *Controller) add(ref source.Reference, doc source.Object, s saved) *entry {
	e := &entry{ref: ref, doc: doc, obj: adopt(doc, s.obj), at: -1, hold: s.hold, lost: s.lost, marked: s.removed}
	e.suspend = doc.Plan().Suspend
	c.entries[ref] = e
	c.changed(e)
	return e
}

// planFirst decides when an object that was added runs for the first time: at
// once, or at its next tick when what was saved says that it is up to date.
func (c *Controller) planFirst(e *entry) {
	now := c.clock()
	switch {
	case external(e.obj) || e.suspended():
	case !settled(e.obj) || c.moved(e.obj):
		c.kick(e, Start, now)
	case e.lost:
		c.kick(e, Repair, now)
	default:
		e.inputs = c.sumInputs(e)
		switch {
		case !c.sawInputs(e):
			c.kick(e, Input, now)
		case e.obj.Interval() > 0:
			c.plan(e, Tick, c.tick(e, now))
		}
	}
}

// moved reports whether the saved status of obj leads to where the store was
// served before. The next run, which fetches nothing for that, says where it is now.
func (c *Controller) moved(obj source.Object) bool {
	a := obj.Artifact()
	return a != nil && a.URL != c.Store.URL(a.Path)
}

// update gives an entry the document that the feed has now, and reports whether
// it says that the object is suspended.
func (c *Controller) update(e *entry, doc source.Object) (suspended bool) {
	if e.doc == doc && e.removed == nil && !e.missing {
		return false
	}
	before, back := e.obj, e.removed != nil
	e.doc, e.obj = doc, adopt(doc, before)
	e.missing, e.removed = false, nil
	e.suspend = doc.Plan().Suspend
	c.changed(e)
	now := c.clock()
	switch {
	case e.suspended():
		c.rest(e)
		c.answer(e)
		return true
	case back:
		c.unplan(e)
		c.kick(e, Start, now)
	case !sameSpec(doc, before):
		c.kick(e, Spec, now)
	case requestedAt(doc) != "" && requestedAt(doc) != requestedAt(before):
		c.kick(e, Request, now)
	}
	return false
}

// remove ends the work on an object that is not in the feed any more. Its
// artifacts go after their retention, which counts from since, now when that is zero.
func (c *Controller) remove(e *entry, since time.Time) {
	if since.IsZero() {
		since = c.wall()
	}
	left := c.retention - c.wall().Sub(since)
	e.removed = &removal{at: since, due: later(c.clock(), min(max(left, 0), c.retention))}
	e.missing, e.planned, e.lookups = false, true, nil
	c.rest(e)
	if e.state != running {
		c.plan(e, "", e.removed.due)
	}
	c.changed(e)
	c.answer(e)
}
