package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Phase says what an object is doing.
type Phase string

// The phases.
const (
	Idle      Phase = "idle"      // until it is due
	Queued    Phase = "queued"    // due, and waits for its turn
	Running   Phase = "running"   // under reconciliation
	Blocked   Phase = "blocked"   // an object that it needs has yet to run
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
	Last       Run                // the last run, without its report; its Number is 0 when there was none
	Checked    time.Time          // when its origin was last asked with success, the zero time when not since the server began
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

// entry returns the entry of an object, nil when there is none.
func (s *Server) entry(ref source.Reference) *entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.entries[ref]
}

// live returns the entry of an object that is in the feed.
func (s *Server) live(ref source.Reference) (*entry, error) {
	if e := s.entries[ref]; e != nil && e.removed == nil {
		return e, nil
	}
	return nil, fmt.Errorf("%s: %w", ref, errNoObject)
}

// view returns the view of e.
func (s *Server) view(e *entry) View {
	v := View{Object: e.obj, Phase: e.phase(), Last: e.last, Checked: e.checked, Failures: e.failures, Suspension: e.hold, Missing: e.missing}
	if e.at >= 0 && e.removed == nil {
		v.Next = s.config.Now().Add(e.due - s.clock())
	}
	if e.state == blocked {
		v.Blockers = s.blockers(e)
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

// changed gives e a new version and wakes callers that wait for it, or for any object.
func (s *Server) changed(e *entry) {
	e.version++
	close(s.news)
	s.news = make(chan struct{})
	if e.news != nil {
		close(e.news)
		e.news = nil
	}
}

// Views returns all objects as they are now, in the order of kind, namespace and name.
func (s *Server) Views() []View {
	s.mu.Lock()
	all := s.sorted
	s.mu.Unlock()
	return s.views(all)
}

// views returns the views of entries. It holds the lock for some of them at a time.
func (s *Server) views(all []*entry) []View {
	views := make([]View, 0, len(all))
	for part := range slices.Chunk(all, 256) {
		s.mu.Lock()
		for _, e := range part {
			views = append(views, s.view(e))
		}
		s.mu.Unlock()
	}
	return views
}

// View returns one object as it is now. The error wraps fs.ErrNotExist.
func (s *Server) View(ref source.Reference) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[ref]; e != nil {
		return s.view(e), nil
	}
	return View{}, fmt.Errorf("%s: %w", ref, errNoObject)
}

// gather is how long changes are gathered before watchers are told.
const gather = 50 * time.Millisecond

// Watch calls each with all objects once the feed was read, and then with those whose view changed, until
// ctx or the server ends; then it returns nil. Changes that are changed again within some milliseconds, or
// while each has not returned, are not told.
func (s *Server) Watch(ctx context.Context, each func([]View)) error {
	told := make(map[*entry]uint64) // versions
	select {
	case <-s.ready:
	case <-s.ended:
	case <-ctx.Done():
	}
	for first := true; ; first = false {
		var fresh []*entry
		s.mu.Lock()
		news := s.news
		for _, e := range s.sorted {
			if version, known := told[e]; !known || version != e.version {
				told[e] = e.version
				fresh = append(fresh, e)
			}
		}
		if len(told) > len(s.sorted) {
			for e := range told {
				if e.removed != nil && e.removed.done {
					fresh = append(fresh, e)
					delete(told, e)
				}
			}
		}
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if first || len(fresh) > 0 {
			each(s.views(fresh))
		}
		select {
		case <-news:
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(gather):
		case <-s.ended:
		case <-ctx.Done():
			return nil
		}
	}
}

// Stats returns how much there is to do.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Fetching: s.fetches.taken}
	for _, e := range s.sorted {
		if e.removed != nil {
			continue
		}
		stats.Objects++
		switch e.state {
		case running:
			stats.Running++
		case queued, blocked:
			stats.Queued++
			stats.Oldest = max(stats.Oldest, s.clock()-e.due)
		default:
			stats.Idle++
		}
	}
	stats.Asked, stats.Shared = s.share.Counts()
	return stats
}

// ErrEnded is what Wait returns when there will be no more runs.
var ErrEnded = errors.New("the server has ended")

// suspension returns an error that says what suspends e.
func suspension(e *entry) error {
	switch {
	case e.suspend:
		return fmt.Errorf("%s is %w by its spec: set spec.suspend to false", e.obj.Head(), ErrSuspended)
	case e.hold.By != "":
		return fmt.Errorf("%s is %w by %s: resume it", e.obj.Head(), ErrSuspended, e.hold.By)
	}
	return fmt.Errorf("%s is %w: resume it", e.obj.Head(), ErrSuspended)
}

// Request asks for a run of an object at once, after the one under way if there
// is one, and returns the number of that run; of an ExternalArtifact, which is
// never run, 0. The error wraps fs.ErrNotExist, or [ErrSuspended].
func (s *Server) Request(ref source.Reference, by Trigger) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.live(ref)
	switch {
	case err != nil:
		return 0, err
	case e.suspended():
		return 0, suspension(e)
	case external(e.obj):
		return 0, nil
	}
	s.kick(e, by, s.clock())
	s.dispatch()
	if e.state == running && e.again == "" { // it began with this request
		return e.begun, nil
	}
	return e.begun + 1, nil
}

// Wait waits until the run of that number, or a later one, of an object has
// ended, and returns the object's view then. The error is that of ctx, or wraps
// fs.ErrNotExist when the object is removed, or [ErrSuspended] when it is
// suspended, so that there will be no such run; or it is [ErrEnded].
func (s *Server) Wait(ctx context.Context, ref source.Reference, run int64) (View, error) {
	for {
		s.mu.Lock()
		e, err := s.live(ref)
		switch {
		case err != nil:
		case e.ended >= run:
			v := s.view(e)
			s.mu.Unlock()
			return v, nil
		case e.suspended() && e.state != running:
			err = suspension(e)
		case e.news == nil:
			e.news = make(chan struct{})
		}
		if err != nil {
			s.mu.Unlock()
			return View{}, err
		}
		news := e.news
		s.mu.Unlock()
		select {
		case <-news:
		case <-s.ended:
			return View{}, ErrEnded
		case <-ctx.Done():
			return View{}, context.Cause(ctx)
		}
	}
}

// Suspend has an object left alone until Resume; a run that is under way ends
// first. It is durable. Suspending again changes By and Reason. The error wraps
// fs.ErrNotExist, or says why it cannot be made durable; then nothing changed.
func (s *Server) Suspend(ref source.Reference, hold source.Suspension) error {
	if hold.Since.IsZero() {
		hold.Since = s.config.Now().UTC()
	}
	return s.hold(ref, &hold)
}

// Resume ends what Suspend began, and asks for a run. The error wraps
// [ErrSuspended] when the spec itself suspends the object.
func (s *Server) Resume(ref source.Reference) error { return s.hold(ref, nil) }

// hold makes a suspension, or with nil its end, durable and then effective.
func (s *Server) hold(ref source.Reference, hold *source.Suspension) error {
	s.setting.Lock() // in memory and on the disk they come in the same order
	defer s.setting.Unlock()
	s.mu.Lock()
	e, err := s.live(ref)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if hold != nil {
		err = s.config.Statuses.Suspend(ref, *hold)
	} else if err = s.config.Statuses.Resume(ref); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch e.hold = hold; {
	case hold != nil:
		s.rest(e)
	case e.suspend:
		err = suspension(e)
	default:
		s.kick(e, Request, s.clock())
	}
	s.changed(e)
	s.dispatch()
	return err
}
