package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
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
	Input   Trigger = "input"   // a source that it needs changed
	Secret  Trigger = "secret"  // a Secret that it uses changed
	Repair  Trigger = "repair"  // its artifact was found damaged
)

// A Run is one reconciliation that ended.
type Run struct {
	Number  int64 // 1 for the first run of an object since the server began
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

// A job is one run of an entry that is under way.
type job struct {
	*entry
	number  int64
	trigger Trigger
	host    string
	doc     source.Object // at the start
	obj     source.Object // a copy of the object at the start
	late    time.Duration
	began   time.Duration
	started time.Time // wall-clock time
	secrets recorder
	serial  uint64 // of the Desired whose Secrets it uses
	env     source.Env
	opened  bool // it had a slot for its content
	second  bool // it looks again after a webhook
}

// start begins the run of e, which has a slot.
func (s *Server) start(e *entry) {
	now := s.clock()
	e.state = running
	e.begun++
	e.inputs = s.sumInputs(e)
	j := &job{
		entry: e, number: e.begun, trigger: e.trigger, host: e.host, doc: e.doc, obj: clone(e.obj),
		late: now - e.due, began: now, started: s.config.Now(), serial: s.serial, secrets: recorder{Secrets: s.secrets}, env: s.config.Env,
	}
	j.env.Secrets = &j.secrets
	// Answers of the upstream may be as old as the request, as the last run, or as a 20th of the interval.
	since := max(min(e.due, now)-e.obj.Interval()/20, e.since)
	if e.asked != 0 {
		since = e.asked
	}
	j.env.Since = s.began.Add(since)
	if j.second = e.look != 0 && e.look <= now; j.second {
		e.look = 0
	}
	e.asked = 0
	s.changed(e)
	s.work.Go(func() { s.run(j) })
}

// run does one job and tells of it.
func (s *Server) run(j *job) {
	result, err := s.reconcile(j)
	if result.Outcome == "" { // the end of the server interrupted it
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs.done(j.host)
		j.state = resting
		s.changed(j.entry)
		return
	}
	run := Run{
		Number: j.number, Object: j.ref, Kind: source.Involved(j.obj).Kind, Trigger: j.trigger, Due: j.started.Add(-j.late), Started: j.started,
		Took: s.clock() - j.began, Result: result, Err: err, Artifact: j.obj.Artifact(),
	}
	if s.config.Observe != nil { // first, so that the runs of an object, and of what needs it, are told in their order
		s.config.Observe(run)
	}
	if secrets := s.finish(j, run, s.observeRun(j.entry, run)); secrets != nil {
		s.review(secrets, []*entry{j.entry})
	}
}

// reconcile brings the object of j up to date. A panic is a failure of this run.
func (s *Server) reconcile(j *job) (result source.Result, err error) {
	was := clone(j.obj)
	defer func() {
		if v := recover(); v != nil {
			value := fmt.Sprintf("%.500q", fmt.Sprint(v)) // fit to be shown
			result, err = source.Result{Outcome: source.Failed}, &source.PanicError{Value: value, Stack: debug.Stack()}
			j.obj = was // it may be half changed
		}
	}()
	r := &source.Reconciler{
		Store: s.config.Store, Now: s.config.Now, Load: s.config.Statuses.Load,
		Save: func(ctx context.Context, obj source.Object, state source.State) error {
			err := s.config.Statuses.Save(ctx, obj, state)
			if err == nil {
				s.show(j, obj)
			}
			return err
		},
		Emit:  func(e source.Event) { s.emit(j.entry, e) },
		Admit: func(ctx context.Context) (func(), error) { return s.admit(ctx, j) },
	}
	from, err := s.config.Origin(j.obj, j.env)
	if err != nil {
		from = noOrigin{fmt.Errorf("%w: %w", source.ErrInvalid, err)}
	}
	return r.Reconcile(s.ctx, j.obj, from)
}

// show has the view of j's object say what was saved, before the artifact that
// it replaces may be removed.
func (s *Server) show(j *job, obj source.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := j.entry.obj.Artifact(), obj.Artifact()
	if before != nil && after != nil && before.Path != after.Path {
		s.replace(j, clone(obj))
	}
}

// replace makes obj, on which j works, the object of its entry, with the spec that the feed has now.
func (s *Server) replace(j *job, obj source.Object) {
	if j.entry.obj = obj; j.entry.doc != j.doc {
		j.entry.obj = adopt(j.entry.doc, obj)
	}
	s.changed(j.entry)
}

// noOrigin is the origin of an object that has none.
type noOrigin struct{ err error }

// Resolve implements [source.Origin].
func (r noOrigin) Resolve(context.Context, source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, r.err
}

// Open implements [source.Origin].
func (r noOrigin) Open(context.Context, source.Revision) (source.Content, error) { return nil, r.err }

// secondLook is when an upstream is looked at again that had nothing new when it
// called. Registries of the distribution project tell of a push before its tag is there.
const secondLook = 2 * time.Second

// shortestRetry is what [source.Result] says of a failure whose upstream did not
// ask for more.
const shortestRetry = 750 * time.Millisecond

// finish records what became of j, and plans what is next; a notable run is shown to people. It returns the
// Secrets that there are now, if they may be others than those that j used.
func (s *Server) finish(j *job, run Run, notable *api.Run) (secrets source.Secrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, failed := j.entry, run.Result.Outcome == source.Failed
	s.runs.done(j.host)
	s.runs.judge(j.host, failed)
	if j.opened {
		s.fetches.judge(j.host, failed)
	}
	e.state, e.ended, e.began, e.since = resting, j.number, j.began, s.clock()
	e.lookups = j.secrets.noted()
	s.replace(j, j.obj)
	if notable != nil {
		e.runs = append(e.runs[max(0, len(e.runs)-maxRuns+1):], *notable)
	}
	e.last, e.last.Result.Report = run, source.Report{} // there are many runs
	due, trigger := s.judge(e, run.Result)
	if j.trigger == Hook && run.Result.Outcome == source.Unchanged && !j.second {
		e.look = e.since + secondLook
	}
	switch {
	case e.removed != nil:
		s.plan(e, "", e.removed.due)
	case e.suspended():
	case e.again != "":
		s.plan(e, e.again, e.since)
	case e.look != 0 && (due == 0 || due > e.look):
		e.asked = e.look
		s.plan(e, Hook, e.look)
	case due != 0:
		s.plan(e, trigger, due)
	}
	e.again = ""
	if j.serial != s.serial {
		secrets = s.secrets
	}
	s.inform(e)
	s.dispatch()
	return secrets
}

// judge takes over how a run ended, and returns when the next is due, 0 for not
// before something changes, and what triggers it.
func (s *Server) judge(e *entry, r source.Result) (due time.Duration, by Trigger) {
	now, interval := s.clock(), e.obj.Interval()
	e.stalled = r.Outcome == source.Stalled
	switch r.Outcome {
	case source.Stored, source.Unchanged:
		e.failures, e.checked = 0, s.config.Now()
		if interval > 0 {
			return s.tick(e, now), Tick
		}
	case source.Waiting:
		return later(now, r.After), Retry
	case source.Failed:
		e.failures++
		limit := s.config.MaxRetry
		if interval > 0 {
			limit = min(limit, interval)
		}
		wait := backOff(e.failures, s.config.MinRetry, limit, s.config.Jitter)
		if r.After > shortestRetry {
			wait = max(wait, r.After)
		}
		return later(now, wait), Retry
	}
	return 0, ""
}

// RepeatedKey is the key of event metadata that says how many events that equal
// the last one of the object were not emitted before this one.
const RepeatedKey = "event.headgate.dev/repeated"

// repeat is the time within which an event that equals the last of its object is not emitted.
const repeat = 5 * time.Minute

// A lastEvent is the last event of an object, so that it is not repeated.
type lastEvent struct {
	sum [sha256.Size]byte
	at  time.Duration
	n   int // how often it was repeated
}

// emit gives an event to all that want events, unless it is a repetition of the last one of e, which may be nil.
func (s *Server) emit(e *entry, event source.Event) {
	if e != nil && event.Severity != "trace" {
		parts := []string{event.Severity, event.Reason, event.Message}
		for _, key := range slices.Sorted(maps.Keys(event.Metadata)) {
			if strings.HasPrefix(key, source.ReferenceGroup) {
				parts = append(parts, key, event.Metadata[key])
			}
		}
		text, _ := json.Marshal(parts) // so that no part runs into the next
		sum := sha256.Sum256(text)
		s.mu.Lock()
		last, now := e.event, s.clock()
		again := last.sum == sum && now-last.at < repeat
		if again {
			e.event.n++
		} else {
			e.event = lastEvent{sum: sum, at: now}
		}
		s.mu.Unlock()
		if again {
			return
		}
		if last.n > 0 {
			metadata := map[string]string{RepeatedKey: strconv.Itoa(last.n)}
			maps.Copy(metadata, event.Metadata)
			event.Metadata = metadata
		}
	}
	s.observeEvent(event)
	if s.config.Journal != nil {
		s.config.Journal.Append(event)
	}
	if s.told != nil {
		s.told.Emit(event)
	}
	if s.config.Emit != nil {
		s.config.Emit(event)
	}
}

// tell emits an event about something that is no part of a run, unless err is nil.
func (s *Server) tell(ref source.Reference, reason string, err error) {
	if err == nil {
		return
	}
	involved := source.ObjectReference{APIVersion: source.Group + "/" + source.V1, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	event := source.Event{InvolvedObject: involved, Severity: "error", Timestamp: s.config.Now().UTC().Truncate(time.Second), Message: err.Error(), Reason: reason, Controller: "headgate"}
	s.mu.Lock()
	e := s.entries[ref]
	if e != nil {
		event.InvolvedObject = source.Involved(e.doc)
	}
	s.mu.Unlock()
	s.emit(e, event)
}
