package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A saved object is what is known of one from before the controller began.
type saved struct {
	obj     source.Object      // as the ledger has it, with its status
	hold    *source.Suspension // by a command, nil for none
	removed time.Time          // since when it is not in the feed, zero when it was there at last
	lookups []lookup           // Secrets that its last run asked for
	unread  bool               // its document cannot be read: only its name is known
}

// set makes d what there is to be. The error, at the first d, is the ledger's.
func (c *Controller) set(ctx context.Context, d Desired) error {
	c.setting.Lock()
	defer c.setting.Unlock()
	if d.Secrets == nil {
		d.Secrets = source.Chain()
	}
	first := !c.Ready()
	known, err := c.restore(ctx, c.unknown(d.Objects), first)
	if err != nil {
		return fmt.Errorf("read what was saved: %w", err)
	}
	c.desire(d, known, first)
	c.note(ctx)
	if first {
		c.goes.Go(func() { c.scrub(ctx) })
	}
	if ctx.Err() == nil {
		c.review(ctx, d.Secrets)
	}
	return nil
}

// desire makes d what there is to be; the controller is ready after the first.
func (c *Controller) desire(d Desired, known map[source.Reference]saved, first bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serial++
	c.secrets, c.defects = d.Secrets, slices.Clone(d.Defects)
	for _, doc := range d.Objects {
		ref := source.ReferenceTo(doc)
		switch e := c.entries[ref]; {
		case e == nil:
			s := known[ref]
			c.add(ref, doc, s).serial = c.serial
		case e.serial != c.serial: // of several the first counts
			c.update(e, doc)
			e.serial = c.serial
		}
	}
	c.keep(known)
	c.settle()
	if first {
		close(c.ready)
	}
	c.pump()
}

// unknown returns those of the objects that are new.
func (c *Controller) unknown(objects []source.Object) []source.Object {
	c.mu.Lock()
	defer c.mu.Unlock()
	var fresh []source.Object
	seen := make(map[source.Reference]bool)
	for _, obj := range objects {
		if ref := source.ReferenceTo(obj); c.entries[ref] == nil && !seen[ref] { // of several the first counts
			seen[ref] = true
			fresh = append(fresh, obj)
		}
	}
	return fresh
}

// keep sees to objects that are not in the feed.
func (c *Controller) keep(known map[source.Reference]saved) {
	if len(c.defects) == 0 && len(c.unread) > 0 {
		maps.Copy(c.unread, known)
		known, c.unread = c.unread, nil
	}
	for ref, s := range known {
		switch {
		case c.entries[ref] != nil:
		case s.unread && len(c.defects) > 0:
			if c.unread == nil {
				c.unread = make(map[source.Reference]saved)
			}
			c.unread[ref] = s
		default:
			c.add(ref, s.obj, s).doc = nil
		}
	}
	for _, e := range c.entries {
		switch {
		case e.serial == c.serial || e.removed != nil:
		case len(c.defects) > 0:
			if !e.missing {
				e.missing = true
				c.changed(e)
			}
		default:
			c.remove(e, known[e.ref].removed)
		}
	}
}

// settle brings up to date what depends on which objects there are.
func (c *Controller) settle() {
	c.sorted = c.sorted[:0:0]
	hosts := make(map[string]bool)
	for _, e := range c.entries {
		c.sorted = append(c.sorted, e)
	}
	slices.SortFunc(c.sorted, func(a, b *entry) int { return compare(a.ref, b.ref) })
	c.link()
	for _, e := range c.sorted {
		if e.removed == nil {
			c.follow(e)
		}
		hosts[e.host] = true
	}
	c.runs.keep(hosts)
	c.fetches.keep(hosts)
	c.scatter()
	for _, e := range c.sorted {
		if e.removed != nil {
			continue
		}
		if !e.placed {
			c.place(e)
		} else if sum := c.sumInputs(e); sum != e.inputs {
			c.kick(e, Input, 0)
		}
		if e.state == blocked {
			c.enter(e)
		}
	}
}

// scatter spreads the ticks of new objects over their interval when there are
// more of them than can run at a time: else all would be due together for long.
func (c *Controller) scatter() {
	var fresh []*entry
	for _, e := range c.sorted {
		if !e.placed && e.pace != nil && e.pace.next == 0 {
			fresh = append(fresh, e)
		}
	}
	if len(fresh) <= c.runs.all {
		return
	}
	for _, e := range fresh {
		if e.pace.next == 0 {
			e.pace.next = c.clock() + within(e.pace.interval)
		}
	}
}

// add adds an object that was not there.
func (c *Controller) add(ref source.Reference, doc source.Object, s saved) *entry {
	e := &entry{ref: ref, doc: doc, obj: adopt(doc, s.obj), at: -1, hold: s.hold, lookups: s.lookups}
	e.suspend = doc.Plan().Suspend
	c.entries[ref] = e
	c.changed(e)
	return e
}

// place decides when an object that was added runs for the first time: at once,
// or some time within its interval when what was saved says that it is up to date.
func (c *Controller) place(e *entry) {
	e.placed = true
	now := c.clock()
	switch {
	case external(e.obj):
		return
	case e.suspended():
		c.shelve(e)
		return
	case !settled(e.obj) || c.moved(e.obj):
		c.kick(e, Start, now)
		return
	}
	e.inputs = c.sumInputs(e)
	switch {
	case !c.sawInputs(e):
		c.kick(e, Input, now)
	case e.pace != nil:
		if e.pace.next == 0 {
			e.pace.next = now + within(e.pace.interval)
		}
		c.plan(e, Tick, e.pace.next)
	}
}

// moved reports whether the saved status of obj leads to where the store was
// served before. The next run, which fetches nothing for that, says where it is now.
func (c *Controller) moved(obj source.Object) bool {
	a := obj.Artifact()
	return a != nil && a.URL != c.Store.URL(a.Path)
}

// update gives an entry the document that the feed has now.
func (c *Controller) update(e *entry, doc source.Object) {
	if e.doc == doc && e.removed == nil && !e.missing {
		return
	}
	before := e.obj
	back := e.removed != nil
	e.doc, e.obj = doc, adopt(doc, before)
	e.missing, e.removed = false, nil
	e.suspend = doc.Plan().Suspend
	c.changed(e)
	if back {
		c.mark(e.ref, time.Time{})
	}
	now := c.clock()
	switch {
	case e.suspended():
		c.rest(e)
		c.answer(e)
		c.shelve(e)
	case back:
		c.agenda.drop(e)
		c.kick(e, Start, now)
	case !sameSpec(doc, before):
		c.kick(e, Spec, now)
	case requestedAt(doc) != "" && requestedAt(doc) != requestedAt(before):
		c.kick(e, Request, now)
	}
}

// remove ends the work on an object that is not in the feed any more. Its
// artifacts go after their retention, which counts from since, now when that is zero.
func (c *Controller) remove(e *entry, since time.Time) {
	if since.IsZero() {
		since = c.wall()
		c.mark(e.ref, since)
	}
	left := c.retention - c.wall().Sub(since)
	e.removed = &removal{at: since, due: later(c.clock(), min(max(left, 0), c.retention))}
	e.missing, e.lookups = false, nil
	e.placed = true
	c.rest(e)
	c.leave(e)
	if e.state != running {
		c.dig(e)
	}
	c.changed(e)
	c.answer(e)
}

// dig has what is left of a removed object go when its retention is over.
func (c *Controller) dig(e *entry) {
	c.plan(e, "", e.removed.due)
}
