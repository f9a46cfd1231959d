package serve

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Trigger says why a run began.
type Trigger string

// The triggers.
const (
	Start   Trigger = "start"   // the object is new, or its last run is not known
	Tick    Trigger = "tick"    // its interval is over
	Retry   Trigger = "retry"   // the last run failed, or waited
	Spec    Trigger = "spec"    // its document changed
	Request Trigger = "request" // the annotation requestedAt, a command or the page
	Hook    Trigger = "hook"    // a webhook
	Input   Trigger = "input"   // a source that it is made of changed
	Secret  Trigger = "secret"  // a Secret that it uses changed
	Repair  Trigger = "repair"  // its artifact was found damaged
)

// A Run is one reconciliation that ended.
type Run struct {
	Number  int64 // 1 for the first run of an object since the controller began
	Object  source.Reference
	Kind    string // of the object, as its document spells it
	Trigger Trigger
	Due     time.Time // when it was to begin
	Started time.Time
	Took    time.Duration
	Result  source.Result
	Err     error // fit to be shown

	Artifact *artifact.Artifact // that is published now, by this run or one before; nil for none
}

// A Phase says what an object is doing.
type Phase string

// The phases.
const (
	Idle      Phase = "idle"      // until it is due
	Queued    Phase = "queued"    // due, and waits for its turn
	Running   Phase = "running"   // under reconciliation
	Blocked   Phase = "blocked"   // an object that it is made of has yet to run
	Stalled   Phase = "stalled"   // until its spec changes
	Suspended Phase = "suspended" // by its spec or a command
	Removed   Phase = "removed"   // from the feed; its artifacts go after their retention
	Gone      Phase = "gone"      // with its artifacts; only Watch tells it, as the last of an object
)

// A View is an object as it is at one moment.
type View struct {
	Object     source.Object // as it was after its last run; not to be changed
	Phase      Phase
	Next       time.Time          // when it is due, the zero time when it is not
	Last       Run                // the last run; its Number is 0 when there was none
	Checked    time.Time          // when its origin was last asked with success, the zero time when not since the controller began
	Failures   int                // failed runs since the last that succeeded
	Suspension *source.Suspension // by a command; nil for none
	Missing    bool               // its document is missing, and that of others is defective: it goes on as it was
	Blockers   []source.Reference // what it waits for when it is blocked
}

// Stats say how much there is to do.
type Stats struct {
	Objects  int // in the feed
	Idle     int // until they are due
	Queued   int // due
	Running  int
	Fetching int           // of those that run
	Oldest   time.Duration // how long the first of those that are due has waited
	Asked    int64         // questions that upstreams were asked, as far as objects can share the answers
	Shared   int64         // answers that were those to another object
}

// gather is how long news are gathered before watchers are told: states that
// pass in between are not worth telling.
const gather = 50 * time.Millisecond

// portion is how many views are made while the lock is held.
const portion = 256

// maxGone is how many objects that are gone are kept for slow watchers.
const maxGone = 1024

// ErrBehind is what Watch returns to a caller that has missed too much.
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

// changed gives e a new version and tells watchers.
func (c *Controller) changed(e *entry) {
	c.version++
	e.version = c.version
	if c.news != nil {
		close(c.news)
		c.news = nil
	}
}

// bury keeps an entry that is gone for slow watchers.
func (c *Controller) bury(e *entry) {
	c.gone = append(c.gone, e)
	if n := len(c.gone) - maxGone; n > 0 {
		c.lost = c.gone[n-1].version
		c.gone = slices.Delete(c.gone, 0, n)
	}
}

// Views returns all objects as they are now, in the order of kind, namespace and name.
func (c *Controller) Views() []View {
	c.mu.Lock()
	all := c.sorted
	c.mu.Unlock()
	return c.viewsOf(all)
}

// viewsOf returns the views of entries. It holds the lock for some of them at a time.
func (c *Controller) viewsOf(all []*entry) []View {
	views := make([]View, 0, len(all))
	for part := range slices.Chunk(all, portion) {
		c.mu.Lock()
		for _, e := range part {
			views = append(views, c.view(e))
		}
		c.mu.Unlock()
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
// at first, until ctx or the controller ends; then it returns nil. A slow watcher
// is told of the last change only, and changes that are changed again within some
// milliseconds are not told. A watcher that missed so much that objects are gone
// of which nothing is kept gets [ErrBehind]: it is to watch again.
func (c *Controller) Watch(ctx context.Context, changed func(View)) error {
	over := c.over()
	for seen, first := uint64(0), true; ; first = false {
		fresh, news, version, behind := c.since(seen, first)
		if behind {
			return ErrBehind
		}
		for part := range slices.Chunk(fresh, portion) {
			if ctx.Err() != nil {
				return nil
			}
			for _, v := range c.viewsOf(part) {
				changed(v)
			}
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
		case <-over:
		case <-ctx.Done():
			return nil
		}
		pause.Stop()
	}
}

// since returns the entries that changed after a version, the first change
// first, a channel that is closed when there is more, and the version now; behind
// says that some that are gone are not kept any more. At first nothing that is
// gone is told.
func (c *Controller) since(seen uint64, first bool) (fresh []*entry, news <-chan struct{}, version uint64, behind bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !first && seen < c.lost {
		return nil, nil, 0, true
	}
	for _, e := range c.sorted {
		if e.version > seen {
			fresh = append(fresh, e)
		}
	}
	for _, e := range c.gone {
		if !first && e.version > seen {
			fresh = append(fresh, e)
		}
	}
	slices.SortFunc(fresh, func(a, b *entry) int { return cmp.Compare(a.version, b.version) })
	if c.news == nil {
		c.news = make(chan struct{})
	}
	return fresh, c.news, c.version, false
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
