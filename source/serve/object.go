package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// An entry is one object and what is known of it. The lock of the server
// guards its fields; the objects are replaced and never changed.
type entry struct {
	ref source.Reference
	doc source.Object // as the feed has it
	obj source.Object // the spec of doc with the status of the last run

	state   state
	stalled bool // until something changes
	missing bool // from the feed, which has defects
	suspend bool // by its spec
	planned bool // its first run was
	lost    bool // when the server began, its artifact was not in the store
	unread  bool // its saved document cannot be read, and there is no other: only its name is known
	line    string
	inLine  bool // it waits for a slot of the host line

	trigger  Trigger // of the run that is due
	again    Trigger // of a run after the one under way, "" for none
	failures int
	begun    int64 // number of the run that began last
	ended    int64 // number of the run that ended last

	at    int           // in the queue, -1 when it is not there
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
	event   lastEvent

	host     string        // of its upstream
	upstream string        // what it asks which server with which credentials
	before   []*entry      // what it needs, as far as it is to wait for it
	after    []*entry      // what needs it
	inputs   uint64        // sum of what before was when its last run began
	lookups  []lookup      // Secrets that its last run asked for
	news     chan struct{} // closed when the view changes; nil when no caller waits
	version  uint64        // of the view
	serial   uint64        // of the Desired that had it last
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
	resting state = iota // in the queue, if it is due some time
	queued               // waits for a slot
	blocked              // waits for an entry in before
	running
)

// suspended reports whether the object is to be left alone.
func (e *entry) suspended() bool { return e.hold != nil || e.suspend }

// external reports whether the object is published by another program, and never fetched.
func external(obj source.Object) bool {
	_, is := obj.(*source.ExternalArtifact)
	return is
}

// adopt returns doc with the status that the object has, last, which may be nil.
// If the document has no generation, it is that of last, and one more if the spec is another.
func adopt(doc, last source.Object) source.Object {
	if external(doc) {
		return doc
	}
	obj := clone(doc)
	status := statusOf(obj)
	status.SetZero()
	if last == nil || reflect.TypeOf(last) != reflect.TypeOf(doc) {
		return obj
	}
	status.Set(statusOf(last))
	if last.Head().Metadata.Generation != 0 {
		source.AssignGeneration(obj, last)
	}
	return obj
}

// clone returns a copy of obj that shares what its fields refer to.
func clone(obj source.Object) source.Object {
	to := reflect.New(reflect.TypeOf(obj).Elem())
	to.Elem().Set(reflect.ValueOf(obj).Elem())
	return to.Interface().(source.Object)
}

// statusOf returns the status of obj: the field Status of its struct, or else
// the part that all kinds have.
func statusOf(obj source.Object) reflect.Value {
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		return status
	}
	return reflect.ValueOf(obj.Common()).Elem()
}

// requestedAt returns the annotation that asks for a run, of headgate's group
// or else of the reference's.
func requestedAt(obj source.Object) string {
	a := obj.Head().Metadata.Annotations
	if at := a["reconcile.headgate.dev/requestedAt"]; at != "" {
		return at
	}
	return a["reconcile.fluxcd.io/requestedAt"]
}

// settled reports whether the status of obj says that nothing is to be done
// before its interval is over.
func settled(obj source.Object) bool {
	status, head := obj.Common(), obj.Head()
	return status.Condition(source.ReadyCondition).Status == "True" &&
		status.ObservedGeneration != 0 && status.ObservedGeneration == head.Metadata.Generation &&
		(requestedAt(obj) == "" || requestedAt(obj) == status.LastHandledReconcileAt)
}

// compare orders references by kind, namespace and name.
func compare(a, b source.Reference) int {
	if a.Kind != b.Kind {
		return strings.Compare(a.Kind, b.Kind)
	}
	if a.Namespace != b.Namespace {
		return strings.Compare(a.Namespace, b.Namespace)
	}
	return strings.Compare(a.Name, b.Name)
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
	if obj := s.object(ref); obj != nil {
		return obj, nil
	}
	return nil, errNoObject
}

// List implements [source.Sources].
func (s *sources) List(_ context.Context, kind, namespace string) ([]source.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := source.Reference{Kind: kind, Namespace: namespace}
	i, _ := slices.BinarySearchFunc(s.sorted, from, func(e *entry, ref source.Reference) int { return compare(e.ref, ref) })
	var found []source.Object
	for ; i < len(s.sorted) && s.sorted[i].ref.Kind == kind && s.sorted[i].ref.Namespace == namespace; i++ {
		if e := s.sorted[i]; e.removed == nil {
			found = append(found, e.obj)
		}
	}
	return found, nil
}

// object returns the object of that name, nil when there is none.
func (s *Server) object(ref source.Reference) source.Object {
	if e := s.entries[ref]; e != nil && e.removed == nil {
		return e.obj
	}
	return nil
}

// errNoObject is fs.ErrNotExist in other words.
var errNoObject = noObject{}

type noObject struct{}

func (noObject) Error() string        { return "no such object" }
func (noObject) Is(target error) bool { return target == fs.ErrNotExist }

// A question names a Secret, or the service account whose Secrets are asked for.
type question struct {
	account         bool
	namespace, name string
}

// A lookup is a question for Secrets and a sum of the answer.
type lookup struct {
	question
	sum [sha256.Size]byte
}

// A recorder is the [source.Secrets] of one run: it records what was asked.
type recorder struct {
	source.Secrets

	mu      sync.Mutex
	lookups []lookup
}

// Secret implements [source.Secrets].
func (r *recorder) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	secret, err := r.Secrets.Secret(ctx, namespace, name)
	r.note(question{false, namespace, name}, err, secret)
	return secret, err
}

// PullSecrets implements [source.Secrets].
func (r *recorder) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	secrets, err := r.Secrets.PullSecrets(ctx, namespace, account)
	r.note(question{true, namespace, account}, err, secrets...)
	return secrets, err
}

// note records the first answer to each question.
func (r *recorder) note(q question, err error, secrets ...source.Secret) {
	var answer any = secrets
	switch {
	case errors.Is(err, fs.ErrNotExist):
		answer = "missing"
	case err != nil:
		answer = "unreadable"
	}
	text, _ := json.Marshal(answer)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.ContainsFunc(r.lookups, func(l lookup) bool { return l.question == q }) {
		r.lookups = append(r.lookups, lookup{q, sha256.Sum256(text)})
	}
}

// noted returns what was asked so far.
func (r *recorder) noted() []lookup {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clip(r.lookups)
}

// review asks again for the Secrets that the last runs of entries asked for, and has
// the objects run for which an answer is another.
func (s *Server) review(from source.Secrets, entries []*entry) {
	asked := make(map[question][sha256.Size]byte)
	s.mu.Lock()
	for _, e := range entries {
		for _, l := range e.lookups {
			asked[l.question] = l.sum
		}
	}
	s.mu.Unlock()
	for q := range asked {
		r := recorder{Secrets: from}
		if q.account {
			_, _ = r.PullSecrets(s.ctx, q.namespace, q.name)
		} else {
			_, _ = r.Secret(s.ctx, q.namespace, q.name)
		}
		asked[q] = r.lookups[0].sum
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		another := func(l lookup) bool { sum, known := asked[l.question]; return known && sum != l.sum }
		if e.state != running && slices.ContainsFunc(e.lookups, another) { // those of a run are reviewed when it ends
			s.kick(e, Secret, 0)
		}
	}
	s.dispatch()
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
