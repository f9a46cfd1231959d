package serve

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A saved object is what is known of one from before the controller began.
type saved struct {
	obj     source.Object      // as the ledger has it, with its status
	hold    *source.Suspension // by a command, nil for none
	removed time.Time          // since when it is not in the feed, zero when it was there at last
	lost    bool               // its artifact is not in the store
	unread  bool               // its document cannot be read: only its name is known
}

// restore returns what the ledger knows of the objects of docs, which are new,
// and with list of those that are in no document as well. What cannot be read
// counts as not saved; the first run of its object tells of it. The error is that
// of a ledger which cannot be listed: suspensions would be unknown.
func (c *Controller) restore(ctx context.Context, docs []source.Object, list bool) (map[source.Reference]saved, error) {
	if c.Ledger == nil || len(docs) == 0 && !list {
		return nil, nil
	}
	all := make([]saved, len(docs))
	each(ctx, len(docs), func(i int) { all[i] = c.restoreOne(ctx, docs[i]) })
	known := make(map[source.Reference]saved, len(docs))
	for i, doc := range docs {
		known[source.ReferenceTo(doc)] = all[i]
	}
	if !list {
		for ref, s := range known {
			var err error
			s.hold, err = c.Ledger.Suspension(ref)
			c.tell(ref, readFailed, err)
			known[ref] = s
		}
		return known, nil
	}
	refs, err := c.Ledger.References()
	if err != nil {
		return nil, err
	}
	since, err := c.Ledger.Removed()
	c.tell(source.Reference{}, readFailed, err)
	all = make([]saved, len(refs))
	each(ctx, len(refs), func(i int) {
		s, there := known[refs[i]]
		if !there {
			obj, err := c.Ledger.Object(refs[i])
			if err != nil {
				c.tell(refs[i], readFailed, err)
				obj = source.New(refs[i])
			}
			s.obj, s.unread = obj, err != nil
		}
		s.removed = since[refs[i]]
		all[i] = s
	})
	for i, ref := range refs {
		if _, there := known[ref]; there || all[i].obj != nil {
			known[ref] = all[i]
		}
	}
	holds, err := c.Ledger.Suspensions()
	c.tell(source.Reference{}, readFailed, err)
	for ref, hold := range holds {
		if s, there := known[ref]; there {
			s.hold = &hold
			known[ref] = s
		}
	}
	return known, nil
}

// restoreOne returns what the ledger knows of the object of a document.
func (c *Controller) restoreOne(ctx context.Context, doc source.Object) (s saved) {
	if obj := clone(doc); !external(obj) {
		if _, err := c.Ledger.Load(ctx, obj); err == nil {
			s.obj = obj
			a := obj.Artifact()
			s.lost = a != nil && damaged(c.Store.Check(*a))
		}
	}
	return s
}

// Reasons of events about saved files.
const (
	readFailed    = "ReadOperationFailed"
	removalFailed = "GarbageCollectionFailed"
)

// each calls do with the numbers below n, several at a time, until ctx ends.
func each(ctx context.Context, n int, do func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range min(n, 2*runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := int(next.Add(1)); i <= n && ctx.Err() == nil; i = int(next.Add(1)) {
				do(i - 1)
			}
		})
	}
	all.Wait()
}

// saveHold makes a suspension durable, or with nil its end.
func (c *Controller) saveHold(ref source.Reference, hold *source.Suspension) error {
	if c.Ledger == nil {
		return nil
	}
	if hold != nil {
		return c.Ledger.Suspend(ref, *hold)
	}
	if err := c.Ledger.Resume(ref); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// saveDocument saves the document of an object that is suspended, with the saved
// status, so that the ledger has it though it does not run. The next run tells of
// what cannot be saved.
func (c *Controller) saveDocument(ctx context.Context, e *entry) {
	if c.Ledger == nil || external(e.doc) {
		return
	}
	idle := func() source.Object {
		c.mu.Lock()
		defer c.mu.Unlock()
		if e.removed == nil && e.suspended() && e.state != running {
			return clone(e.doc)
		}
		return nil
	}
	if idle() == nil { // the end of a run saves it
		return
	}
	unlock, err := c.Store.Lock(ctx, directory(e.ref))
	if err != nil {
		return
	}
	defer unlock()
	obj := idle()
	if obj == nil {
		return
	}
	if state, err := c.Ledger.Load(ctx, obj); err == nil {
		_ = c.Ledger.Save(ctx, obj, state)
	}
}

// markAgain is how long after a failure marks are tried again.
const markAgain = time.Minute

// mark makes durable since when objects are not in the feed, and that others are
// there again. What fails is tried again later. The lock setting is held.
func (c *Controller) mark(ctx context.Context) {
	if c.Ledger == nil {
		return
	}
	type change struct {
		*entry
		since time.Time
	}
	var changes []change
	c.mu.Lock()
	for _, e := range c.sorted {
		var since time.Time
		if e.removed != nil {
			since = e.removed.at
		}
		if !since.Equal(e.marked) {
			changes = append(changes, change{e, since})
		}
	}
	c.mu.Unlock()
	var failed atomic.Bool
	each(ctx, len(changes), func(i int) {
		e := changes[i]
		if err := c.Ledger.SetRemoved(e.ref, e.since); err != nil {
			failed.Store(true)
			c.tell(e.ref, removalFailed, err)
			return
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		e.marked = e.since
	})
	if failed.Load() && !c.marking {
		c.marking = true
		c.goes.Go(func() {
			if !sleep(ctx, markAgain) {
				return
			}
			c.setting.Lock()
			defer c.setting.Unlock()
			c.marking = false
			c.mark(ctx)
		})
	}
}

// retire removes what is left of an object whose retention is over. What fails is
// tried again in a minute.
func (c *Controller) retire(e *entry, removed *removal) {
	dir := directory(e.ref)
	err := c.erase(e, removed, dir)
	if err == nil {
		err = c.Store.Tidy(dir)
	} else {
		c.mu.Lock()
		if e.removed == removed {
			c.plan(e, "", c.clock()+time.Minute)
			c.pump()
		}
		c.mu.Unlock()
	}
	if c.ctx.Err() == nil {
		c.tell(e.ref, removalFailed, err)
	}
}

// erase removes artifacts, status, state and suspension of a removed object, and
// then the object itself, unless it has come back. No Desired and no suspension
// comes in between: an object comes back with all that it had or with nothing. The
// status goes first: it never names an artifact that is not there.
func (c *Controller) erase(e *entry, removed *removal, dir string) (err error) {
	unlock, err := c.Store.Lock(c.ctx, dir)
	if err != nil {
		return err
	}
	defer unlock()
	c.setting.Lock()
	defer c.setting.Unlock()
	c.mu.Lock()
	back := e.removed != removed
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
	var hold *source.Suspension
	if err != nil && c.Ledger != nil {
		hold, _ = c.Ledger.Suspension(e.ref)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil { // its status, and its suspension as far as that is not saved, may be gone
		e.hold, e.obj = hold, adopt(e.obj, nil)
		c.changed(e)
		return err
	}
	removed.done = true
	delete(c.entries, e.ref)
	c.sorted = without(c.sorted, e)
	c.changed(e)
	c.bury(e)
	return nil
}

// directory returns the directory of an object in the store.
func directory(ref source.Reference) string {
	return strings.ToLower(ref.Kind) + "/" + ref.Namespace + "/" + ref.Name
}
