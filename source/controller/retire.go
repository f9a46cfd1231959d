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

// retire removes artifacts, status, state and suspension of a removed object,
// unless it has come back. The status goes first: it never names an artifact
// that is not there.
func (c *Controller) retire(ctx context.Context, e *entry) error {
	dir := directory(e.ref)
	unlock, err := c.Store.Lock(ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	c.mu.Lock()
	back := e.removed == nil
	c.mu.Unlock()
	if back {
		return nil
	}
	if c.Ledger != nil {
		err = c.Ledger.Remove(e.ref)
	}
	if err == nil {
		err = c.Store.Remove(dir)
	}
	unlock()
	if err == nil {
		err = c.Store.Tidy(dir)
	}
	if err != nil {
		c.tell(e.ref, "GarbageCollectionFailed", err.Error())
	}
	return err
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
