package controller

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/source"
)

// restore returns what the ledger knows of the objects of docs, which are new,
// and with all of those that are in no document as well. What cannot be read
// counts as not saved; the first run of its object tells of it. The error is that
// of a ledger which cannot be listed: what it has would be unknown for as long as
// the controller runs, suspensions among it.
func (c *Controller) restore(ctx context.Context, docs []source.Object, all bool) (map[source.Reference]saved, error) {
	if c.Ledger == nil || len(docs) == 0 && !all {
		return nil, nil
	}
	found := make([]source.Object, len(docs))
	each(ctx, len(docs), func(i int) {
		if obj := clone(docs[i]); !external(obj) {
			if _, err := c.Ledger.Load(ctx, obj); err == nil {
				found[i] = obj
			}
		}
	})
	known := make(map[source.Reference]saved, len(docs))
	for i, doc := range docs {
		known[source.ReferenceTo(doc)] = saved{obj: found[i]}
	}
	if all {
		refs, err := c.Ledger.References()
		if err != nil {
			return nil, err
		}
		c.restoreMissing(ctx, refs, known)
	}
	c.restoreHolds(docs, known, all)
	if all {
		c.recall(known)
	}
	return known, nil
}

// restoreMissing adds the objects of refs, which are saved, that are in no document.
func (c *Controller) restoreMissing(ctx context.Context, refs []source.Reference, known map[source.Reference]saved) {
	since, err := c.Ledger.Removed()
	c.complain(source.Reference{}, err)
	var missing []source.Reference
	for _, ref := range refs {
		if _, there := known[ref]; !there {
			missing = append(missing, ref)
		} else if !since[ref].IsZero() {
			c.complain(ref, c.Ledger.SetRemoved(ref, time.Time{}))
		}
	}
	objects := make([]saved, len(missing))
	each(ctx, len(missing), func(i int) {
		obj, err := c.Ledger.Object(missing[i])
		if err != nil {
			c.complain(missing[i], err)
			obj = source.New(missing[i])
		}
		objects[i] = saved{obj: obj, removed: since[missing[i]], unread: err != nil}
	})
	for i, ref := range missing {
		if objects[i].obj != nil {
			known[ref] = objects[i]
		}
	}
}

// restoreHolds adds the suspensions.
func (c *Controller) restoreHolds(docs []source.Object, known map[source.Reference]saved, all bool) {
	holds := make(map[source.Reference]source.Suspension)
	if all {
		var err error
		holds, err = c.Ledger.Suspensions()
		c.complain(source.Reference{}, err)
	} else {
		for _, doc := range docs {
			ref := source.ReferenceTo(doc)
			hold, err := c.Ledger.Suspension(ref)
			c.complain(ref, err)
			if hold != nil {
				holds[ref] = *hold
			}
		}
	}
	for ref, hold := range holds {
		if s, there := known[ref]; there {
			s.hold = &hold
			known[ref] = s
		}
	}
}

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

// complain tells of what is wrong with saved files.
func (c *Controller) complain(ref source.Reference, err error) {
	if err != nil {
		c.tell(ref, "ReadOperationFailed", err.Error())
	}
}

// tell emits an event about something that is no part of a run.
func (c *Controller) tell(ref source.Reference, reason, message string) {
	involved := source.ObjectReference{APIVersion: source.Group + "/" + source.V1, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	if v, err := c.View(ref); err == nil {
		involved = source.Involved(v.Object)
	}
	c.emit(source.Event{
		InvolvedObject: involved,
		Severity:       "error",
		Timestamp:      c.wall().UTC().Truncate(time.Second),
		Message:        message,
		Reason:         reason,
		Controller:     "headgate",
	})
}

// saveHold makes a suspension durable, or with nil its end.
func (c *Controller) saveHold(ref source.Reference, hold *source.Suspension) error {
	if c.Ledger == nil {
		return nil
	}
	if hold != nil {
		return c.Ledger.Suspend(ref, *hold)
	}
	return absent(c.Ledger.Resume(ref))
}
