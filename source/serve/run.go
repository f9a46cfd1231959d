package serve

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A job is one run of an entry.
type job struct {
	*entry
	number  int64
	trigger Trigger
	host    string
	doc     source.Object // at the start
	was     source.Object // the object at the start, not to be changed
	obj     source.Object // a copy of it, of its own
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
func (c *Controller) start(e *entry) {
	now := c.clock()
	e.state = running
	e.begun++
	e.inputs = c.sumInputs(e)
	j := &job{
		entry: e, number: e.begun, trigger: e.trigger, host: e.host, doc: e.doc, was: e.obj, obj: clone(e.obj),
		late: now - e.due, began: now, started: c.wall(), serial: c.serial, secrets: recorder{Secrets: c.secrets}, env: c.env,
	}
	j.env.Sources, j.env.Secrets = c.stock, &j.secrets
	if !c.Apart {
		j.env.Share = &c.share
	}
	if j.env.Reuse == nil {
		j.env.Reuse = &c.reuse
	}
	j.env.Since = c.began.Add(c.freshness(e, now))
	if j.second = e.look != 0 && e.look <= now; j.second {
		e.look = 0
	}
	e.asked = 0
	c.changed(e)
	c.goes.Go(func() { c.run(j) })
}

// freshness returns how old answers of the upstream may be: not older than the
// request, nor than the last run, nor than a 20th of the interval.
func (c *Controller) freshness(e *entry, now time.Duration) time.Duration {
	if e.asked != 0 {
		return e.asked
	}
	return max(min(e.due, now)-e.obj.Interval()/20, e.since)
}

// run does one job and tells of it.
func (c *Controller) run(j *job) {
	result, err := c.reconcile(j)
	run := &Run{
		Number: j.number, Object: j.ref, Kind: source.Involved(j.obj).Kind, Trigger: j.trigger, Due: j.started.Add(-j.late), Started: j.started,
		Took: c.clock() - j.began, Result: result, Err: err, Artifact: j.obj.Artifact(),
	}
	if result.Outcome == "" { // the end of the controller interrupted it
		c.mu.Lock()
		defer c.mu.Unlock()
		c.runs.done(j.host)
		j.state = resting
		c.changed(j.entry)
		return
	}
	c.observe(*run) // first, so that the runs of an object, and of what is made of it, are told in their order
	suspended, secrets := c.finish(j, run)
	if suspended {
		c.saveDocument(c.ctx, j.entry)
	}
	if secrets != nil {
		c.review(c.ctx, secrets, []*entry{j.entry})
	}
}

// observe tells of a run. A panic of Observe is dropped.
func (c *Controller) observe(r Run) {
	if c.Observe == nil {
		return
	}
	defer func() { _ = recover() }()
	c.Observe(r)
}

// reconcile brings the object of j up to date. A panic is a failure of this run.
func (c *Controller) reconcile(j *job) (result source.Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			result, err = source.Result{Outcome: source.Failed}, panicked(v)
			j.obj = j.was // it may be half changed
		}
	}()
	r := &source.Reconciler{
		Store: c.Store,
		Now:   c.wall,
		Emit:  c.emit,
		Admit: func(ctx context.Context) (func(), error) { return c.admit(ctx, j) },
	}
	if c.Ledger != nil {
		r.Load, r.Save = c.Ledger.Load, func(ctx context.Context, obj source.Object, state source.State) error {
			err := c.Ledger.Save(ctx, obj, state)
			if err == nil {
				c.show(j, obj)
			}
			return err
		}
	} else {
		last := clone(j.obj)
		r.Load = func(_ context.Context, obj source.Object) (source.State, error) {
			source.AssignGeneration(obj, last)
			return nil, nil
		}
	}
	return r.Reconcile(c.ctx, j.obj, c.origin(j))
}

// show has the view of j's object say what was saved, before the artifact that
// it replaces may be removed.
func (c *Controller) show(j *job, obj source.Object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := j.entry.obj.Artifact()
	if after := obj.Artifact(); before == nil || after == nil || before.Path == after.Path {
		return
	}
	j.entry.obj = clone(obj)
	if j.entry.doc != j.doc {
		j.entry.obj = adopt(j.entry.doc, j.entry.obj)
	}
	c.changed(j.entry)
}

// panicked returns a panic as an error that is fit to be shown.
func panicked(v any) error {
	return &source.PanicError{Value: fmt.Sprintf("%.500q", fmt.Sprint(v)), Stack: debug.Stack()}
}

// origin returns the origin of j, or one that says why there is none.
func (c *Controller) origin(j *job) (from source.Origin) {
	defer func() {
		if v := recover(); v != nil {
			from = refused{panicked(v)}
		}
	}()
	from, err := c.Origin(j.obj, j.env)
	if err != nil {
		return refused{fmt.Errorf("%w: %w", source.ErrInvalid, err)}
	}
	return from
}

// refused is the origin of an object that has none.
type refused struct{ err error }

// Resolve implements [source.Origin].
func (r refused) Resolve(context.Context, source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, r.err
}

// Open implements [source.Origin].
func (r refused) Open(context.Context, source.Revision) (source.Content, error) { return nil, r.err }

// finish records what became of j, and plans what is next. It reports whether
// the object is suspended now, and returns the Secrets that there are now, if
// they may be others than those that j used.
func (c *Controller) finish(j *job, run *Run) (suspended bool, secrets source.Secrets) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, failed := j.entry, run.Result.Outcome == source.Failed
	c.runs.judge(j.host, failed)
	c.runs.done(j.host)
	if j.opened {
		c.fetches.judge(j.host, failed)
	}
	e.state, e.ended, e.began, e.since = resting, j.number, j.began, c.clock()
	e.lookups = slices.Clip(j.secrets.noted())
	if e.obj = j.obj; e.doc != j.doc {
		e.obj = adopt(e.doc, j.obj)
	}
	e.last = short(run)
	due, trigger := c.judge(e, run.Result)
	if j.trigger == Hook && run.Result.Outcome == source.Unchanged && !j.second {
		e.look = e.since + secondLook
	}
	switch {
	case e.removed != nil:
		c.plan(e, "", e.removed.due)
	case e.suspended():
		suspended = true
	case e.again != "":
		c.plan(e, e.again, e.since)
	case e.look != 0 && (due == 0 || due > e.look):
		e.asked = e.look
		c.plan(e, Hook, e.look)
	case due != 0:
		c.plan(e, trigger, due)
	}
	e.again = ""
	if j.serial != c.serial {
		secrets = c.secrets
	}
	c.changed(e)
	c.answer(e)
	c.inform(e)
	c.pump()
	return suspended, secrets
}

// judge takes over how a run ended, and returns when the next is due, 0 for not
// before something changes, and what triggers it.
func (c *Controller) judge(e *entry, r source.Result) (due time.Duration, by Trigger) {
	now, interval := c.clock(), e.obj.Interval()
	e.stalled = r.Outcome == source.Stalled
	switch r.Outcome {
	case source.Stored, source.Unchanged:
		e.failures, e.checked = 0, c.wall()
		if interval > 0 {
			return c.tick(e, now), Tick
		}
	case source.Waiting:
		return later(now, r.After), Retry
	case source.Failed:
		e.failures++
		limit := c.maxRetry
		if interval > 0 {
			limit = min(limit, interval)
		}
		wait := backOff(e.failures, c.minRetry, limit, c.jitter)
		if r.After > shortestRetry {
			wait = max(wait, r.After)
		}
		return later(now, wait), Retry
	}
	return 0, ""
}

// secondLook is when an upstream is looked at again that had nothing new when it
// called. Registries of the distribution project tell of a push before its tag is there.
const secondLook = 2 * time.Second

// shortestRetry is what [source.Result] says of a failure whose upstream did not
// ask for more.
const shortestRetry = 750 * time.Millisecond

// short returns a run without the lists of its report, for there are many runs.
func short(r *Run) *Run {
	s := *r
	report := &s.Result.Report
	report.LeftOut, report.Replaced, report.Respelled, report.Notes, report.Found = nil, nil, nil, nil, nil
	return &s
}

// emit tells of an event, unless it is a repetition. A panic of Emit is dropped.
func (c *Controller) emit(e source.Event) {
	if c.Emit == nil || c.events.repeats(&e, cmp.Or(c.Repeat, 5*time.Minute)) {
		return
	}
	defer func() { _ = recover() }()
	c.Emit(e)
}

// tell emits an event about something that is no part of a run, unless err is nil.
func (c *Controller) tell(ref source.Reference, reason string, err error) {
	if err == nil {
		return
	}
	involved := source.ObjectReference{APIVersion: source.Group + "/" + source.V1, Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
	if v, err := c.View(ref); err == nil {
		involved = source.Involved(v.Object)
	}
	c.emit(source.Event{
		InvolvedObject: involved,
		Severity:       "error",
		Timestamp:      c.wall().UTC().Truncate(time.Second),
		Message:        err.Error(),
		Reason:         reason,
		Controller:     "headgate",
	})
}
