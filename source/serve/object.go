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

// An entry is one object with its state in the server. Server.mu guards its fields. The objects
// are replaced but never modified.
type entry struct {
	ref source.Reference
	doc source.Object // the document of the feed
	obj source.Object // the spec of doc with the status of the last run

	foreign bool  // another program keeps it up to date
	invalid error // why its spec cannot be used

	state  state
	timer  *time.Timer             // fires when the entry is due
	waiter *waiter                 // in the queue for slots; nil if the entry is not queued
	cancel context.CancelCauseFunc // ends the run under way

	trigger   Trigger // of the next run; "" for a new entry whose saved status is good
	rerun     Trigger // of a run after the one under way, "" for none
	failures  int
	runNumber int64 // number of the latest run

	due        time.Duration // by the clock of the server
	requested  time.Duration // when the next run was requested, 0 if it was not
	began      time.Duration // when the last ended run began
	ended      time.Duration // when the last run ended
	secondLook time.Duration // when to check the upstream again after a webhook, 0 for never

	last         Run                // the last ended run; its Number is 0 if there was none
	runs         []api.Run          // the latest notable runs, the newest at the end
	checked      time.Time          // when the origin was last checked successfully
	suspension   *source.Suspension // by a command, nil for none
	removed      *removal           // nil as long as it is in the feed
	savedRemoval time.Time          // the saved time of its removal, zero for none

	event    source.Event  // the last event, without its time
	emitted  time.Duration // when that event was emitted
	repeated int           // how often it was repeated since

	host          string     // of its upstream
	upstream      string     // address of its upstream
	inputs        []*entry   // its inputs, which run before it
	dependents    []*entry   // the entries that need it
	inputVersions string     // inputVersions when its last run began
	lookups       secretSums // Secrets that its last run looked up
	version       uint64     // of the view
	serial        uint64     // of the last Desired that contained it
}

// A removal is the removal of an object from the feed.
type removal struct {
	at   time.Time     // wall-clock time
	due  time.Duration // when its artifacts, status and state are deleted
	done bool          // they are deleted
}

// A state is the scheduling state of an entry.
type state uint8

const (
	unplanned state = iota // not due until something happens
	planned                // due at a known time
	queued                 // waits for a slot
	blocked                // waits for an entry in inputs
	running
)

// suspended reports whether a command or the spec suspends the object.
func (e *entry) suspended() bool { return e.suspension != nil || e.doc.Plan().Suspend }

// external reports whether another program publishes the object, so that it is never run.
func (e *entry) external() bool { return e.foreign || source.External(e.doc) }

// setDocument makes doc the document of e, with the status of last, which may be nil. If doc has no
// generation, it gets the generation of last, increased by one if the spec differs.
func (e *entry) setDocument(doc, last source.Object) {
	if e.doc, e.obj = doc, doc; e.external() {
		return
	}
	e.obj = source.Clone(doc)
	source.SetStatus(e.obj, last)
	if last != nil && last.Head().Metadata.Generation != 0 {
		source.AssignGeneration(e.obj, last)
	}
}

// compareEntries orders entries by kind, namespace and name.
func compareEntries(a, b *entry) int {
	return cmp.Or(strings.Compare(a.ref.Kind, b.ref.Kind), strings.Compare(a.ref.Namespace, b.ref.Namespace), strings.Compare(a.ref.Name, b.ref.Name))
}

// sources is the [source.Sources] of a server: its objects as their last runs left them.
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

// A Phase is the activity of an object.
type Phase string

// The phases.
const (
	Idle      Phase = "idle"      // not due
	Queued    Phase = "queued"    // due, waiting for a slot
	Running   Phase = "running"   // being reconciled
	Blocked   Phase = "blocked"   // due, waiting for the run of an object that it needs
	Stalled   Phase = "stalled"   // not retried until something changes
	Suspended Phase = "suspended" // by its spec or a command
	Removed   Phase = "removed"   // from the feed; its artifacts are deleted after the retention
	Gone      Phase = "gone"      // deleted with its artifacts; only the last view of Watch for an object has this phase
)

// A View is a snapshot of an object.
type View struct {
	Object     source.Object // as its last run left it; must not be modified
	Phase      Phase
	Next       time.Time          // when it is due, the zero time if it is not planned
	Last       Run                // the last run, without its report; its Number is 0 if there was none
	Checked    time.Time          // last successful check of its origin, the zero time if none since the server started
	Failures   int                // failed runs since the last success
	Suspension *source.Suspension // by a command; nil for none
	Missing    bool               // its document is missing while others are defective; it is kept up to date as before
	Blockers   []source.Reference // the objects that a blocked object waits for
}

// liveEntry returns the entry of an object that is in the feed and not foreign. The error wraps [source.ErrNoObject].
func (s *Server) liveEntry(ref source.Reference) (*entry, error) {
	if e := s.entries[ref]; e != nil && e.removed == nil && !e.foreign {
		return e, nil
	}
	return nil, fmt.Errorf("%s: %w", ref, source.ErrNoObject)
}

// view returns the view of e.
func (s *Server) view(e *entry) View {
	v := View{
		Object: e.obj, Phase: e.phase(), Last: e.last, Checked: e.checked, Failures: e.failures, Suspension: e.suspension,
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

// phase returns the phase of the object.
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

// markChanged gives the view of e a new version and wakes callers that wait for changes.
func (s *Server) markChanged(e *entry) {
	s.version++
	e.version = s.version
	close(s.news)
	s.news = make(chan struct{})
}

// Views returns the current views of all objects, ordered by kind, namespace and name.
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

// View returns the current view of an object. The error wraps fs.ErrNotExist.
func (s *Server) View(ref source.Reference) (View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[ref]; e != nil && !e.foreign {
		return s.view(e), nil
	}
	return View{}, fmt.Errorf("%s: %w", ref, source.ErrNoObject)
}

// watchDelay is how long Watch collects changes before it reports them.
const watchDelay = 50 * time.Millisecond

// Watch calls each with the views of all objects once the feed has been read, and then with the views that
// changed, until ctx or the server ends. Then it returns nil. It does not report a change that another
// one replaces within some milliseconds, or before each returns.
func (s *Server) Watch(ctx context.Context, each func([]View)) error {
	var reported []*entry // the entries of the last round
	var version uint64    // of the last round
	select {
	case <-s.ready:
	case <-s.ended:
	case <-ctx.Done():
	}
	for first := true; ; first = false {
		var changed []View
		s.mu.Lock()
		changes := s.news
		for _, e := range reported {
			if e.phase() == Gone {
				changed = append(changed, s.view(e))
			}
		}
		for _, e := range s.sorted {
			if e.version > version && !e.foreign {
				changed = append(changed, s.view(e))
			}
		}
		reported, version = s.sorted, s.version
		s.mu.Unlock()
		if ctx.Err() != nil {
			return nil
		}
		if first || len(changed) > 0 {
			each(changed)
		}
		select {
		case <-changes:
		case <-s.ended:
			return nil
		case <-ctx.Done():
			return nil
		}
		retry.Sleep(ctx, watchDelay)
	}
}

// Stats describe the workload of a server.
type Stats struct {
	Fetching int           // contents being fetched and packed
	Oldest   time.Duration // the longest time that a due object has been waiting
	Asked    int64         // requests to upstreams whose answers objects can share
	Shared   int64         // answers that an object got from the request of another
}

// Stats returns the workload of the server.
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

// ErrEnded is the error of [Server.Wait] when the server has ended.
var ErrEnded = errors.New("the server has ended")

// ErrSuspended is wrapped by errors about a suspended object.
var ErrSuspended = errors.New("suspended")

// suspendedError returns an error that says what suspends e.
func suspendedError(e *entry) error {
	switch {
	case e.suspension == nil || e.doc.Plan().Suspend:
		return fmt.Errorf("%s is %w by its spec: set spec.suspend to false", e.obj.Head(), ErrSuspended)
	case e.suspension.By != "":
		return fmt.Errorf("%s is %w by %s: resume it", e.obj.Head(), ErrSuspended, e.suspension.By)
	}
	return fmt.Errorf("%s is %w: resume it", e.obj.Head(), ErrSuspended)
}

// Request requests a run of an object at once, or after the run under way if there is one, and
// returns the number of that run. The number is 0 for an ExternalArtifact of another program, which
// is never run. For a generator, Request also requests runs of the objects that it makes, which run
// before it. The error wraps fs.ErrNotExist or [ErrSuspended].
func (s *Server) Request(ref source.Reference, by Trigger) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err := s.liveEntry(ref)
	switch {
	case err != nil:
		return 0, err
	case e.suspended():
		return 0, suspendedError(e)
	case e.external():
		return 0, nil
	}
	for _, e := range append(s.outputs(e), e) {
		s.enqueue(e, by, s.clock())
	}
	s.dispatch()
	if e.state == running && e.rerun == "" { // this request started the run
		return e.runNumber, nil
	}
	return e.runNumber + 1, nil
}

// Wait waits until the run of an object with the given number, or a later run, has ended, and returns
// the view of the object then. The error is the cause of ctx, or [ErrEnded], or it wraps
// fs.ErrNotExist if the object was removed, or [ErrSuspended] if it is suspended and will not run.
func (s *Server) Wait(ctx context.Context, ref source.Reference, run int64) (View, error) {
	check := func() (v View, changes chan struct{}, err error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		e, err := s.liveEntry(ref)
		switch {
		case err != nil:
		case e.last.Number >= run:
			return s.view(e), nil, nil
		case e.suspended() && e.state != running:
			err = suspendedError(e)
		}
		return View{}, s.news, err
	}
	for {
		v, changes, err := check()
		if err != nil || changes == nil {
			return v, err
		}
		select {
		case <-changes:
		case <-s.ended:
			return View{}, ErrEnded
		case <-ctx.Done():
			return View{}, context.Cause(ctx)
		}
	}
}

// Suspend suspends an object until Resume. A run that is under way ends first. The suspension is
// saved before it takes effect, and outlives the server. Suspending again replaces it. The default of
// hold.Since is now. The error wraps fs.ErrNotExist, or says why the suspension cannot be saved.
func (s *Server) Suspend(ref source.Reference, hold source.Suspension) error {
	if hold.Since.IsZero() {
		hold.Since = s.config.Now().UTC()
	}
	return s.setSuspension(ref, &hold)
}

// Resume ends a suspension by [Server.Suspend] and requests a run. The error wraps fs.ErrNotExist, or
// [ErrSuspended] if the spec of the object suspends it as well.
func (s *Server) Resume(ref source.Reference) error { return s.setSuspension(ref, nil) }

// outputs returns the entries of the objects that e makes, if it is a generator.
func (s *Server) outputs(e *entry) (outputs []*entry) {
	g, is := e.doc.(*source.ArtifactGenerator)
	if !is {
		return nil
	}
	for _, ref := range g.Plan().Needs {
		if out, err := s.liveEntry(ref); err == nil {
			outputs = append(outputs, out)
		}
	}
	return outputs
}

// setSuspension saves a suspension, or removes it if hold is nil, and then applies it. For a generator it does
// the same with the objects that it makes.
func (s *Server) setSuspension(ref source.Reference, hold *source.Suspension) error {
	s.applyMu.Lock() // so that suspensions are applied in the order in which they are saved
	defer s.applyMu.Unlock()
	s.mu.Lock()
	e, err := s.liveEntry(ref)
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
		switch e.suspension = hold; {
		case hold != nil:
			s.cancelPlan(e)
		case e.suspended():
			err = suspendedError(e) // the generator comes last: its result decides
		default:
			s.enqueue(e, Request, s.clock())
		}
		s.markChanged(e)
		s.dispatch()
		s.mu.Unlock()
	}
	return err
}
