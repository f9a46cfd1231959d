package serve

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"reflect"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve/api"
)

// A Trigger is the reason why a run began.
type Trigger string

// The triggers.
const (
	Start   Trigger = "start"   // the object is new, or its saved status is not good
	Tick    Trigger = "tick"    // its interval is over
	Retry   Trigger = "retry"   // the last run failed, or an input was not ready
	Spec    Trigger = "spec"    // its document changed
	Request Trigger = "request" // the annotation requestedAt changed, or a command or the page requested it
	Hook    Trigger = "hook"    // a webhook
	Input   Trigger = "input"   // a source that it needs changed
	Secret  Trigger = "secret"  // a Secret that it uses changed
	Repair  Trigger = "repair"  // its artifact is damaged or missing
)

// A Run is a reconciliation that has ended.
type Run struct {
	Number  int64 // 1 for the first run of an object since the server started
	Object  source.Reference
	Kind    string // of the object, as its document spells it
	Trigger Trigger
	Due     time.Time // when the run became due
	Started time.Time
	Took    time.Duration
	Result  source.Result
	Err     error // safe to show to users; nil if the run succeeded

	Artifact *artifact.Artifact // the current artifact, of this run or an earlier one; nil for none
}

// A job is one run of an entry that is under way.
type job struct {
	*entry
	Run
	ctx            context.Context
	defect         error // why the spec cannot be used
	host           string
	doc            source.Object // at the start
	obj            source.Object // a copy of the object, which the run modifies
	began          time.Duration
	secrets        recorder
	secretsVersion uint64    // Server.secretsVersion at the start
	since          time.Time // shared answers of the upstream must not be older
	isSecondLook   bool      // it is the second look after a webhook
}

// start begins the run of e, which has a slot.
func (s *Server) start(e *entry) {
	now, started := s.clock(), s.config.Now()
	e.state, e.waiter, e.inputVersions = running, nil, inputVersions(e)
	e.runNumber++
	// The run may use answers of the upstream that came after the request, if there was one. Else it may use answers
	// since the last run, but none that are older than a 20th of the interval when the run is due.
	since := max(min(e.due, now)-e.obj.Interval()/20, e.ended)
	if e.requested != 0 {
		since = e.requested
	}
	j := &job{
		entry: e, host: e.host, doc: e.doc, obj: source.Clone(e.obj), began: now, secretsVersion: s.secretsVersion,
		secrets: recorder{Secrets: s.secrets}, since: s.clockStart.Add(since), isSecondLook: e.secondLook != 0 && e.secondLook <= now,
		defect: e.invalid,
		Run:    Run{Number: e.runNumber, Object: e.ref, Kind: source.Involved(e.obj).Kind, Trigger: e.trigger, Due: started.Add(e.due - now), Started: started},
	}
	j.ctx, e.cancel = context.WithCancelCause(s.ctx)
	if e.requested = 0; j.isSecondLook {
		e.secondLook = 0
	}
	s.markChanged(e)
	s.work.Go(func() { s.run(j) })
}

// run does one job and reports its result.
func (s *Server) run(j *job) {
	j.Result, j.Err = s.reconcile(j)
	j.entry.cancel(nil)
	if j.Result.Outcome == "" { // the end of the server or of the object interrupted it
		s.mu.Lock()
		defer s.mu.Unlock()
		s.runs.release(j.host)
		j.state = unplanned
		s.markChanged(j.entry)
		if s.ctx.Err() == nil {
			s.planNext(j.entry, "", 0)
		}
		return
	}
	j.Took, j.Artifact = s.clock()-j.began, j.obj.Artifact()
	if s.config.Observe != nil { // before finish, so that runs of an object and of its dependents are reported in order
		s.config.Observe(j.Run)
	}
	if secrets := s.finish(j, s.observeRun(j.last.Result.Outcome, j.Run)); secrets != nil {
		s.recheckSecrets(secrets, []*entry{j.entry}, nil)
	}
}

// reconcile brings the object of j up to date. A panic is a failure of this run.
func (s *Server) reconcile(j *job) (result source.Result, err error) {
	was := source.Clone(j.obj)
	defer func() {
		if v := recover(); v != nil {
			value := fmt.Sprintf("%.500q", fmt.Sprint(v)) // short and quoted, so that it can be shown
			result, err = source.Result{Outcome: source.Failed}, &source.PanicError{Value: value, Stack: debug.Stack()}
			j.obj = was // the run may have modified it halfway
		}
	}()
	r := &source.Reconciler{
		Store: s.config.Store, Now: s.config.Now, Load: s.config.Statuses.Load,
		Save: func(ctx context.Context, obj source.Object, state source.State) error {
			err := s.config.Statuses.Save(ctx, obj, state)
			if err == nil {
				s.updateView(j, obj)
			}
			return err
		},
		Emit:  func(e source.Event) { s.emit(j.entry, e) },
		Admit: func(ctx context.Context) (func(), error) { return s.admit(ctx, j.host) },
	}
	env := s.config.Env
	env.Secrets, env.Since = &j.secrets, j.since
	from, err := source.Origin(nil), j.defect
	if err == nil {
		from, err = s.config.Origin(j.obj, env)
	}
	if err != nil {
		from = noOrigin{err: err}
	}
	return r.Reconcile(j.ctx, j.obj, from)
}

// updateView puts the saved object into the view if its artifact changed: the old artifact may be
// deleted before the run ends.
func (s *Server) updateView(j *job, obj source.Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := j.entry.obj.Artifact(), obj.Artifact()
	if before != nil && after != nil && before.Path != after.Path {
		s.setObject(j, source.Clone(obj))
	}
}

// setObject makes obj the object of the entry of j, with the current spec of the feed.
func (s *Server) setObject(j *job, obj source.Object) {
	if j.entry.obj = obj; j.entry.doc != j.doc {
		j.entry.setDocument(j.entry.doc, obj)
	}
	s.markChanged(j.entry)
}

// noOrigin is the origin of an object whose spec cannot be used.
type noOrigin struct {
	source.Origin
	err error
}

// Resolve implements [source.Origin]. Its error names the field and the rule of each defect of the document.
func (r noOrigin) Resolve(context.Context, source.State) (source.Revision, source.State, error) {
	var texts []string
	for _, err := range document.Split(r.err) {
		text := err.Error()
		if d, ok := errors.AsType[*source.DocumentError](err); ok {
			text = strings.TrimPrefix(d.Field+": "+d.Err.Error(), ": ")
		}
		texts = append(texts, text)
	}
	err := fmt.Errorf("%w: %s", source.ErrInvalid, strings.Join(texts, "; "))
	return source.Revision{}, nil, &source.StepError{Step: source.StepResolve, Reason: "InvalidSpec", Err: err}
}

// secondLookDelay is the delay of a second check after a webhook whose first check found nothing new.
// Registries of the distribution project send the notification of a push before its tag exists.
const secondLookDelay = 2 * time.Second

// defaultRetryAfter is [source.Result].After of a failure whose upstream did not ask for a delay.
const defaultRetryAfter = 750 * time.Millisecond

// finish records the result of j and plans the next run. It adds notable, unless nil, to the runs that are shown. It
// returns the current Secrets if they may have changed since j began, and nil otherwise.
func (s *Server) finish(j *job, notable *api.Run) (secrets source.Secrets) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := j.entry
	s.runs.release(j.host)
	if delete(s.failedHosts, j.host); j.Result.Outcome == source.Failed {
		s.failedHosts[j.host] = true
	}
	e.state, e.began, e.ended, e.lookups = unplanned, j.began, s.clock(), j.secrets.sums()
	s.setObject(j, j.obj)
	if notable != nil {
		e.runs = append(e.runs[max(0, len(e.runs)-maxRuns+1):], *notable)
	}
	e.last, e.last.Result.Report = j.Run, source.Report{} // without the report, to save memory
	due, trigger := s.judge(e, j.Result)
	if j.Trigger == Hook && j.Result.Outcome == source.Unchanged && !j.isSecondLook {
		e.secondLook = e.ended + secondLookDelay
	}
	if j.secretsVersion != s.secretsVersion {
		secrets = s.secrets
	}
	s.planNext(e, trigger, due)
	return secrets
}

// planNext plans the next run of e after one has ended: at due, unless that is 0, or sooner.
func (s *Server) planNext(e *entry, by Trigger, due time.Duration) {
	switch {
	case e.removed != nil:
		s.plan(e, "", e.removed.due)
	case e.suspended() || e.external():
	case e.rerun != "":
		s.plan(e, e.rerun, s.clock())
	case e.secondLook != 0 && (due == 0 || due > e.secondLook):
		e.requested = e.secondLook
		s.plan(e, Hook, e.secondLook)
	case due != 0:
		s.plan(e, by, due)
	}
	e.rerun = ""
	s.notifyDependents(e)
	s.dispatch()
}

// judge records the outcome of a run in e. It returns when the next run is due and its trigger; due is 0 if
// e does not run before something changes.
func (s *Server) judge(e *entry, r source.Result) (due time.Duration, by Trigger) {
	now, interval := s.clock(), e.obj.Interval()
	switch r.Outcome {
	case source.Stored, source.Unchanged:
		e.failures, e.checked = 0, s.config.Now()
		if interval > 0 {
			return s.nextTick(e, now), Tick
		}
	case source.Waiting:
		return dueAfter(now, r.After), Retry
	case source.Failed:
		e.failures++
		limit := s.config.MaxRetry
		if interval > 0 {
			limit = min(limit, interval)
		}
		wait := backOff(e.failures, s.config.MinRetry, limit, s.config.Jitter)
		if r.After > defaultRetryAfter {
			wait = max(wait, r.After)
		}
		return dueAfter(now, wait), Retry
	}
	return 0, ""
}

// RepeatedKey is the key of event metadata with the number of repetitions of the object's previous event
// that were not emitted.
const RepeatedKey = "event.headgate.dev/repeated"

// repeatInterval is the time during which an event that equals the previous event of its object is not emitted.
const repeatInterval = 5 * time.Minute

// emit sends an event to the log, the journal, the receivers and Config.Emit, unless it repeats the previous event of
// e. e may be nil.
func (s *Server) emit(e *entry, event source.Event) {
	if e != nil && event.Severity != source.SeverityTrace && s.repeats(e, &event) {
		return
	}
	s.observeEvent(event)
	if s.config.Journal != nil {
		s.config.Journal.Append(event)
	}
	if s.notifier != nil {
		s.notifier.Emit(event)
	}
	if s.config.Emit != nil {
		s.config.Emit(event)
	}
}

// repeats reports whether an event repeats the previous event of e. If it does not, repeats adds the number of
// repetitions of the previous event to its metadata.
func (s *Server) repeats(e *entry, event *source.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	undated, n, now := *event, e.repeated, s.clock()
	undated.Timestamp = time.Time{}
	if reflect.DeepEqual(undated, e.event) && now-e.emitted < repeatInterval {
		e.repeated++
		return true
	}
	e.event, e.emitted, e.repeated = undated, now, 0
	if n > 0 {
		metadata := map[string]string{RepeatedKey: strconv.Itoa(n)}
		maps.Copy(metadata, event.Metadata)
		event.Metadata = metadata
	}
	return false
}

// emitError emits an error event that does not belong to a run, unless err is nil.
func (s *Server) emitError(ref source.Reference, reason string, err error) {
	if err == nil {
		return
	}
	involved := source.ObjectReference{APIVersion: source.Group + "/" + source.V1, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	s.mu.Lock()
	e := s.entries[ref]
	if e != nil {
		involved = source.Involved(e.doc)
	}
	s.mu.Unlock()
	s.emit(e, s.newEvent(involved, source.SeverityError, reason, err.Error()))
}

// newEvent returns an event that does not belong to a run.
func (s *Server) newEvent(of source.ObjectReference, severity, reason, message string) source.Event {
	return source.Event{InvolvedObject: of, Severity: severity, Timestamp: s.config.Now().UTC().Truncate(time.Second), Message: message, Reason: reason, Controller: "headgate"}
}

// A secretQuery names a Secret, or a service account whose pull Secrets are looked up.
type secretQuery struct {
	account         bool
	namespace, name string
}

// secretSums are the hashes of the results of Secret lookups, by query.
type secretSums map[secretQuery][sha256.Size]byte

// A recorder is the [source.Secrets] of one run. It records the lookups and hashes of their results.
type recorder struct {
	source.Secrets

	mu      sync.Mutex
	answers secretSums
}

// Secret implements [source.Secrets].
func (r *recorder) Secret(ctx context.Context, namespace, name string) (source.Secret, error) {
	secret, err := r.Secrets.Secret(ctx, namespace, name)
	r.record(secretQuery{false, namespace, name}, err, secret)
	return secret, err
}

// PullSecrets implements [source.Secrets].
func (r *recorder) PullSecrets(ctx context.Context, namespace, account string) ([]source.Secret, error) {
	secrets, err := r.Secrets.PullSecrets(ctx, namespace, account)
	r.record(secretQuery{true, namespace, account}, err, secrets...)
	return secrets, err
}

// record records the first result of each query.
func (r *recorder) record(q secretQuery, err error, secrets ...source.Secret) {
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
	if _, known := r.answers[q]; !known {
		if r.answers == nil {
			r.answers = make(secretSums)
		}
		r.answers[q] = sha256.Sum256(text)
	}
}

// sums returns a copy of the results recorded so far.
func (r *recorder) sums() secretSums {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.answers)
}

// SecretChanged reports that a Secret or service account may have changed. The server looks up again the Secret and
// all service accounts of the namespace that the last runs of objects looked up, and runs the objects for which a
// result differs. It looks up nothing that no run looked up.
func (s *Server) SecretChanged(namespace, name string) {
	s.mu.Lock()
	s.secretsVersion++
	from, entries := s.secrets, s.sorted
	s.mu.Unlock()
	s.recheckSecrets(from, entries, func(q secretQuery) bool { return q.namespace == namespace && (q.name == name || q.account) })
}

// recheckSecrets repeats the Secret lookups of the last runs of entries, and enqueues the entries for which a result
// differs. match selects the lookups to repeat; nil selects all.
func (s *Server) recheckSecrets(from source.Secrets, entries []*entry, match func(secretQuery) bool) {
	now := &recorder{Secrets: from}
	queries := make(map[secretQuery]bool)
	s.mu.Lock()
	for _, e := range entries {
		for q := range e.lookups {
			if match == nil || match(q) {
				queries[q] = true
			}
		}
	}
	s.mu.Unlock()
	for q := range queries {
		if q.account {
			now.PullSecrets(s.ctx, q.namespace, q.name)
		} else {
			now.Secret(s.ctx, q.namespace, q.name)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range entries {
		for q, before := range e.lookups {
			if sum, known := now.answers[q]; known && sum != before && e.state != running { // finish rechecks the lookups of a run under way
				s.enqueue(e, Secret, 0)
			}
		}
	}
	s.dispatch()
}
