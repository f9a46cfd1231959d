package controller

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// mark has it made durable since when an object is not in the feed, the zero
// time when it is.
func (c *Controller) mark(ref source.Reference, since time.Time) {
	if c.marks == nil {
		c.marks = make(map[source.Reference]time.Time)
	}
	c.marks[ref] = since
}

// owed is how long after a failure marks are tried again.
const owed = time.Minute

// note makes marks durable. Those that fail are tried again, unless another took
// their place or the object is gone. The lock setting is held.
func (c *Controller) note(ctx context.Context) {
	c.mu.Lock()
	marks := c.marks
	c.marks = nil
	c.mu.Unlock()
	if c.Ledger == nil || len(marks) == 0 {
		return
	}
	refs := slices.Collect(maps.Keys(marks))
	each(ctx, len(refs), func(i int) {
		ref := refs[i]
		if err := c.Ledger.SetRemoved(ref, marks[ref]); err != nil {
			c.tell(ref, "GarbageCollectionFailed", err.Error())
			c.mu.Lock()
			defer c.mu.Unlock()
			if c.entries[ref] != nil {
				c.mark(ref, marks[ref])
			}
		}
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.marks) > 0 && !c.owing {
		c.owing = true
		c.goes.Go(func() { c.noteAgain(ctx) })
	}
}

// noteAgain tries marks again that failed.
func (c *Controller) noteAgain(ctx context.Context) {
	if !sleep(ctx, owed) {
		return
	}
	c.setting.Lock()
	defer c.setting.Unlock()
	c.mu.Lock()
	c.owing = false
	c.mu.Unlock()
	c.note(ctx)
}

// bury removes what is left of an object that was removed and whose retention is
// over. What fails is tried again in a minute.
func (c *Controller) bury(e *entry, removed *removal) {
	dir := directory(e.ref)
	unlock, err := c.Store.Lock(c.ctx, dir)
	if err != nil {
		c.buryLater(e, removed)
		return
	}
	err = c.retire(e, removed, dir)
	unlock()
	if err == nil {
		err = c.Store.Tidy(dir)
	}
	if err != nil {
		c.tell(e.ref, "GarbageCollectionFailed", err.Error())
	}
}

// retire removes artifacts, status, state and suspension of a removed object, and
// then the object itself, unless it has come back. No Desired and no suspension
// comes in between: an object comes back with all that it had or with nothing. The
// status goes first: it never names an artifact that is not there.
func (c *Controller) retire(e *entry, removed *removal, dir string) error {
	c.setting.RLock()
	defer c.setting.RUnlock()
	c.mu.Lock()
	back := e.removed != removed
	c.mu.Unlock()
	if back {
		return nil
	}
	var err error
	if c.Ledger != nil {
		err = c.Ledger.Remove(e.ref)
	}
	if err == nil {
		err = c.Store.Remove(dir)
	}
	if err != nil {
		c.bereave(e)
		c.buryLater(e, removed)
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.removed.done = true
	delete(c.entries, e.ref)
	delete(c.marks, e.ref)
	c.sorted = slices.DeleteFunc(slices.Clone(c.sorted), func(x *entry) bool { return x == e })
	c.changed(e)
	c.entomb(e)
	return nil
}

// bereave takes from a removed object what may be gone already: its status, and
// its suspension as far as that is not saved.
func (c *Controller) bereave(e *entry) {
	var hold *source.Suspension
	if c.Ledger != nil {
		hold, _ = c.Ledger.Suspension(e.ref)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e.hold, e.obj = hold, adopt(e.obj, nil)
	c.changed(e)
}

// buryLater has a removed object buried in a minute.
func (c *Controller) buryLater(e *entry, removed *removal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e.removed == removed {
		c.plan(e, "", c.clock()+time.Minute)
		c.pump()
	}
}

// directory returns the directory of an object in the store.
func directory(ref source.Reference) string {
	return strings.ToLower(ref.Kind) + "/" + ref.Namespace + "/" + ref.Name
}

// clean removes what killed processes left in the store, and the artifacts of
// objects that neither the feed nor the ledger knows.
func (c *Controller) clean(ctx context.Context) {
	if _, err := c.Store.Sweep(ctx); err != nil && ctx.Err() == nil {
		c.tell(source.Reference{}, "GarbageCollectionFailed", err.Error())
	}
	if c.Ledger == nil {
		return
	}
	refs, err := c.Ledger.References()
	if err != nil {
		return // it may know what cannot be listed now
	}
	known := make(map[string]bool)
	for _, ref := range refs {
		known[directory(ref)] = true
	}
	strange := func(a artifact.Artifact) bool { return !known[path.Dir(path.Dir(a.Path))] }
	if !c.any(ctx, strange) {
		return
	}
	_, err = c.Store.GC(ctx, artifact.GCConfig{Keep: func(a artifact.Artifact) bool { return !strange(a) || c.knows(a) }})
	if err == nil {
		_, err = c.Store.Sweep(ctx)
	}
	if err != nil && ctx.Err() == nil {
		c.tell(source.Reference{}, "GarbageCollectionFailed", err.Error())
	}
}

// any reports whether there is an artifact in the store of which is is true.
func (c *Controller) any(ctx context.Context, is func(artifact.Artifact) bool) bool {
	for a, err := range c.Store.All() {
		if ctx.Err() != nil {
			return false
		}
		if err == nil && is(a) {
			return true
		}
	}
	return false
}

// knows reports whether an artifact belongs to an object that there is now. Its
// lock is held, so that nobody is about to save the object.
func (c *Controller) knows(a artifact.Artifact) bool {
	dir := path.Dir(path.Dir(a.Path))
	c.mu.Lock()
	defer c.mu.Unlock()
	for ref := range c.entries {
		if directory(ref) == dir {
			return true
		}
	}
	return false
}

// absent returns err, unless it says that something does not exist.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
