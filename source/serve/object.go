package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// An entry is one object and what is known of it. The lock of the server
// guards its fields; the objects are replaced and never changed.
type entry struct {
	ref source.Reference
	doc source.Object // as the feed has it
	obj source.Object // the spec of doc with the status of the last run

	foreign bool  // another program keeps it up to date
	invalid error // why its spec cannot be used

	state  state
	timer  *time.Timer             // of the plan
	waiter *waiter                 // in the queue for slots; nil when it is not there
	cancel context.CancelCauseFunc // ends the run under way

	trigger  Trigger // of the run that is due; of a new entry, "" when its saved status is good
	again    Trigger // of a run after the one under way, "" for none
	failures int
	begun    int64 // number of the run that began last

	due   time.Duration // by the clock of the server
	asked time.Duration // when the run that is due was asked for, 0 when it was not
	began time.Duration // when the last run that ended began
	since time.Duration // when the last run ended
	look  time.Duration // when the upstream is looked at again after a webhook, 0 for not

	last    Run                // its Number is 0 when there was none
	runs    []api.Run          // the last notable ones, the newest at the end
	checked time.Time          // when the origin was asked last with success
	hold    *source.Suspension // by a command, nil for none
	removed *removal           // nil as long as it is in the feed
	marked  time.Time          // since when it is removed, as it is saved

	event    source.Event  // the last one, without its time
	told     time.Duration // when it was emitted
	repeated int           // how often it came again

	host     string     // of its upstream
	upstream string     // its address
	before   []*entry   // its inputs that it waits for
	after    []*entry   // what needs it
	inputs   string     // inputsOf when its last run began
	lookups  secretSums // to its last run's questions for Secrets
	version  uint64     // of the view
	serial   uint64     // of the Desired that had it last
}

// A removal is the end of an object.
type removal struct {
	at   time.Time     // wall-clock time
	due  time.Duration // when its artifacts, status and state go
	done bool          // they are gone
}

// A state says where an entry is between two runs.
type state uint8

const (
	resting state = iota // until something happens
	planned              // due some time
	queued               // waits for a slot
	blocked              // waits for an entry in before
	running
)

// suspended reports whether the object is to be left alone.
func (e *entry) suspended() bool { return e.hold != nil || e.doc.Plan().Suspend }

// external reports whether the object is published by another program, and never fetched.
func (e *entry) external() bool { return e.foreign || source.External(e.doc) }

// adopt makes doc the document of e, with the status that the object has, last, which may be nil.
// If the document has no generation, it is that of last, and one more if the spec is another.
func (e *entry) adopt(doc, last source.Object) {
	if e.doc, e.obj = doc, doc; e.external() {
		return
	}
	e.obj = source.Clone(doc)
	source.SetStatus(e.obj, last)
	if last != nil && last.Head().Metadata.Generation != 0 {
		source.AssignGeneration(e.obj, last)
	}
}

// compare orders entries by kind, namespace and name.
func compare(a, b *entry) int {
	return cmp.Or(strings.Compare(a.ref.Kind, b.ref.Kind), strings.Compare(a.ref.Namespace, b.ref.Namespace), strings.Compare(a.ref.Name, b.ref.Name))
}

// sources is the [source.Sources] of a server: objects as they were after their last run.
type sources struct {
	*Server
	*source.Inventory // opens artifacts
}

// Source implements [source.Sources].
func (s *sources) Source(_ context.Context, ref source.Reference) (source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[ref]; e != nil && e.removed == nil {
		return e.obj, nil
	}
	return nil, source.ErrNoObject
}

// List implements [source.Sources].
func (s *sources) List(_ context.Context, kind, namespace string) (found []source.Object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.sorted {
		if e.ref.Kind == kind && e.ref.Namespace == namespace && e.removed == nil {
			found = append(found, e.obj)
		}
	}
	return found, nil
}

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

// live returns the entry of an object that is in the feed, and is not foreign.
func (s *Server) live(ref source.Reference) (*entry, error) {
	if e := s.entries[ref]; e != nil && e.removed == nil && !e.foreign {
		return e, nil
	}
	return nil, fmt.Errorf("%s: %w", ref, source.ErrNoObject)
}

// view returns the view of e.
func (s *Server) view(e *entry) View {
	v := View{
		Object: e.obj, Phase: e.phase(), Last: e.last, Checked: e.checked, Failures: e.failures, Suspension: e.hold,
		Missing: e.removed == nil && e.serial != s.serial,
	}
	if e.state == planned && e.removed == nil {
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
	case e.last.Result.Outcome == source.Stalled:
		return Stalled
	}
	return Idle
}

// changed wakes callers that wait for a change of e, or of any object.
func (s *Server) changed(e *entry) {
	s.version++
	e.version = s.version
	close(s.news)
	s.news = make(chan struct{})
}

// Views returns all objects as they are now, in the order of kind, namespace and name.
func (s *Server) Views() []View {
	s.mu.Lock()
	defer s.mu.Unlock()
	views := make([]View, 0, len(s.sorted))
	for _, e := range s.sorted {
		if !e.foreign {
			views = append(views, s.view(e))
		}
	}
	return views
}

// View returns one object as it is now. The error wraps fs.ErrNotExist.
func (s *Server) View(ref source.Reference) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[ref]; e != nil && !e.foreign {
		return s.view(e), nil
	}
	return View{}, fmt.Errorf("%s: %w", ref, source.ErrNoObject)
}

// gather is how long changes are gathered before watchers are told.
const gather = 50 * time.Millisecond

// Watch calls each with all objects once the feed was read, and then with those whose view changed, until
// ctx or the server ends; then it returns nil. Changes that are changed again within some milliseconds, or
// while each has not returned, are not told.
func (s *Server) Watch(ctx context.Context, each func([]View)) error {
	var told []*entry  // at the last look
	var version uint64 // of the last look
	select {
	case <-s.ready:
	case <-s.ended:
	case <-ctx.Done():
	}
	for first := true; ; first = false {
		var fresh []View
		s.mu.Lock()
		news := s.news
		for _, e := range told {
			if e.phase() == Gone {
				fresh = append(fresh, s.view(e))
			}
		}
		for _, e := range s.sorted {
			if e.version > version && !e.foreign {
				fresh = append(fresh, s.view(e))
			}
		}
		told, version = s.sorted, s.version
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if first || len(fresh) > 0 {
			each(fresh)
		}
		select {
		case <-news:
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		retry.Sleep(ctx, gather)
	}
}

// Stats say how much there is to do.
type Stats struct {
	Fetching int           // contents of objects that run
	Oldest   time.Duration // how long the first of those that are due has waited
	Asked    int64         // questions that upstreams were asked, as far as objects can share the answers
	Shared   int64         // answers that were those to another object
}

// Stats returns how much there is to do.
func (s *Server) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	stats := Stats{Fetching: s.fetches.taken}
	stats.Asked, stats.Shared = s.share.Counts()
	for _, e := range s.sorted {
		if e.state == queued || e.state == blocked {
			stats.Oldest = max(stats.Oldest, s.clock()-e.due)
		}
	}
	return stats
}

// ErrEnded is what Wait returns when there will be no more runs.
var ErrEnded = errors.New("the server has ended")

// ErrSuspended marks an object that is suspended.
var ErrSuspended = errors.New("suspended")

// suspension returns an error that says what suspends e.
func suspension(e *entry) error {
	switch {
	case e.hold == nil || e.doc.Plan().Suspend:
		return fmt.Errorf("%s is %w by its spec: set spec.suspend to false", e.obj.Head(), ErrSuspended)
	case e.hold.By != "":
		return fmt.Errorf("%s is %w by %s: resume it", e.obj.Head(), ErrSuspended, e.hold.By)
	}
	return fmt.Errorf("%s is %w: resume it", e.obj.Head(), ErrSuspended)
}

// Request asks for a run of an object at once, after the one under way if there
// is one, and returns the number of that run; of an ExternalArtifact of another
// program, which is never run, 0. What a generator makes runs before it. The error
// wraps fs.ErrNotExist, or [ErrSuspended].
func (s *Server) Request(ref source.Reference, by Trigger) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.live(ref)
	switch {
	case err != nil:
		return 0, err
	case e.suspended():
		return 0, suspension(e)
	case e.external():
		return 0, nil
	}
	for _, e := range append(s.outputs(e), e) {
		s.enqueue(e, by, s.clock())
	}
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
	look := func() (v View, news chan struct{}, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e, err := s.live(ref)
		switch {
		case err != nil:
		case e.last.Number >= run:
			return s.view(e), nil, nil
		case e.suspended() && e.state != running:
			err = suspension(e)
		}
		return View{}, s.news, err
	}
	for {
		v, news, err := look()
		if err != nil || news == nil {
			return v, err
		}
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

// outputs returns what e makes if it is a generator.
func (s *Server) outputs(e *entry) (made []*entry) {
	g, is := e.doc.(*source.ArtifactGenerator)
	if !is {
		return nil
	}
	for _, ref := range g.Plan().Needs {
		if out, err := s.live(ref); err == nil {
			made = append(made, out)
		}
	}
	return made
}

// hold makes a suspension, or with nil its end, durable and then effective, for what a
// generator makes as well.
func (s *Server) hold(ref source.Reference, hold *source.Suspension) error {
	s.setting.Lock() // in memory and on the disk they come in the same order
	defer s.setting.Unlock()
	s.mu.Lock()
	e, err := s.live(ref)
	if err != nil {
		s.mu.Unlock()
		return err
	}
	all := append(s.outputs(e), e)
	s.mu.Unlock()
	for _, e := range all {
		if hold != nil {
			err = s.config.Statuses.Suspend(e.ref, *hold)
		} else if err = s.config.Statuses.Resume(e.ref); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		if err != nil {
			return err
		}
		s.mu.Lock()
		switch e.hold = hold; {
		case hold != nil:
			s.rest(e)
		case e.suspended():
			err = suspension(e) // the generator itself says so, too
		default:
			s.enqueue(e, Request, s.clock())
		}
		s.changed(e)
		s.dispatch()
		s.mu.Unlock()
	}
	return err
}
