package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// rank orders triggers: a run that is due for several reasons tells the highest.
var rank = map[Trigger]int{Tick: 1, Retry: 2, Input: 3, Repair: 4, Secret: 5, Start: 6, Spec: 7, Hook: 8, Request: 9}

// kick has e run now, or once more after the run that is under way. Answers of
// its upstream that are older than asked do not count, unless that is 0.
func (c *Controller) kick(e *entry, t Trigger, asked time.Duration) {
	if e.removed != nil || e.suspended() || external(e.obj) {
		return
	}
	if asked != 0 {
		e.asked = asked // the run under way has its own copy
	}
	switch e.state {
	case running:
		if e.again == "" || rank[t] > rank[e.again] {
			e.again = t
		}
	case queued, blocked:
		if rank[t] > rank[e.trigger] {
			e.trigger = t
		}
	default:
		c.plan(e, t, c.clock())
	}
}

// plan has e run at due.
func (c *Controller) plan(e *entry, t Trigger, due time.Duration) {
	e.trigger, e.due = t, due
	c.agenda.put(e)
}

// rest takes e off everything that it is on, except a run that is under way.
func (c *Controller) rest(e *entry) {
	c.agenda.drop(e)
	e.again, e.asked = "", 0
	if e.state == queued || e.state == blocked {
		e.state = resting
		c.inform(e)
	}
}

// pump has everything begin that is due and has a slot, and sets the timer for the rest.
func (c *Controller) pump() {
	if c.closing || c.ctx.Err() != nil {
		return
	}
	now := c.clock()
	for len(c.agenda) > 0 && c.agenda[0].due <= now {
		e := c.agenda[0]
		c.agenda.drop(e)
		if e.removed != nil {
			c.goes.Go(func() { c.bury(e) })
			continue
		}
		c.enter(e)
	}
	for {
		e, ok := c.runs.next(func(e *entry) bool {
			e.inLine = false
			return e.state == queued
		})
		if !ok {
			break
		}
		c.start(e)
	}
	if len(c.agenda) > 0 && (c.alarm == 0 || c.agenda[0].due < c.alarm) {
		c.alarm = c.agenda[0].due
		c.timer.Reset(c.alarm - c.clock())
	}
}

// enter has e wait for a slot, or for what it is made of.
func (c *Controller) enter(e *entry) {
	if !c.free(e) {
		if e.state != blocked {
			e.state = blocked
			c.changed(e)
		}
		return
	}
	e.state = queued
	c.changed(e)
	if !e.inLine {
		e.inLine = true
		c.runs.add(e.host, e)
	}
}

// A job is one run of an entry.
type job struct {
	*entry
	number  int64
	trigger Trigger
	host    string
	doc     source.Object // at the start, as obj is
	obj     source.Object // its own copy
	late    time.Duration
	started time.Time // wall-clock time
	secrets recorder
	serial  uint64 // of the Desired whose Secrets it uses
	env     source.Env
	opened  bool // it had a slot for its content
	echo    bool // it looks again after a webhook
}

// start begins the run of e, which has a slot.
func (c *Controller) start(e *entry) {
	now := c.clock()
	e.state = running
	e.begun++
	e.inputs = c.sumInputs(e)
	j := &job{entry: e, number: e.begun, trigger: e.trigger, host: e.host, doc: e.doc, late: now - e.due, started: c.wall(), serial: c.serial}
	j.obj = clone(e.obj)
	j.secrets = recorder{Secrets: c.secrets, key: c.key}
	j.env = c.Env
	j.env.Sources, j.env.Secrets, j.env.Share = c.stock, &j.secrets, &c.share
	if j.env.Reuse == nil {
		j.env.Reuse = &c.reuse
	}
	if c.Apart {
		j.env.Share = nil
	}
	j.env.Since = c.began.Add(c.freshness(e, now))
	e.asked, j.echo, e.echo = 0, e.echo, false
	c.changed(e)
	c.goes.Go(func() { c.run(j) })
}

// freshness returns how old answers of the upstream may be: not older than the
// request, nor than the last run, nor than a small part of the interval.
func (c *Controller) freshness(e *entry, now time.Duration) time.Duration {
	if e.asked != 0 {
		return e.asked
	}
	oldest := min(e.due, now) - e.obj.Interval()/freshPart
	return max(oldest, e.since)
}

// freshPart is which part of its interval an answer may be old.
const freshPart = 20

// run does one job and tells of it.
func (c *Controller) run(j *job) {
	began := c.clock()
	result, err := c.reconcile(j)
	run := &Run{
		Number: j.number, Object: j.ref, Trigger: j.trigger, Due: j.started.Add(-j.late), Started: j.started,
		Took: c.clock() - began, Result: result, Err: err, Artifact: j.obj.Artifact(),
	}
	if result.Outcome == "" {
		c.interrupted(j)
		return
	}
	c.observe(*run) // first, so that the runs of an object, and of what is made of it, are told in their order
	c.finish(j, run, c.rotated(j))
}

// observe tells of a run. A panic of who is told harms nobody.
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
		}
	}()
	r := &source.Reconciler{
		Store: c.Store,
		Now:   c.wall,
		Emit:  c.emit,
		Admit: func(ctx context.Context) (func(), error) { return c.admit(ctx, j) },
	}
	if c.Ledger != nil {
		r.Load, r.Save = c.Ledger.Load, c.Ledger.Save
	} else {
		last := clone(j.obj)
		r.Load = func(_ context.Context, obj source.Object) (source.State, error) {
			source.AssignGeneration(obj, last)
			return nil, nil
		}
	}
	return r.Reconcile(c.ctx, j.obj, c.origin(j))
}

// emit tells of an event. A panic of who is told harms nobody.
func (c *Controller) emit(e source.Event) {
	if c.Emit == nil {
		return
	}
	defer func() { _ = recover() }()
	c.Emit(e)
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

// rotated reports whether a Secret that j used is another in what the feed has
// had since j began.
func (c *Controller) rotated(j *job) bool {
	c.mu.Lock()
	serial, from := c.serial, c.secrets
	c.mu.Unlock()
	if serial == j.serial {
		return false
	}
	now := c.once(c.ctx, from)
	return slices.ContainsFunc(j.secrets.noted(), func(l lookup) bool { return now(l.question) != l.sum })
}

// interrupted is the end of a job that the end of the controller interrupted.
func (c *Controller) interrupted(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.done(j.host)
	j.state = resting
	c.changed(j.entry)
}

// finish records what became of j, and sees to what is next.
func (c *Controller) finish(j *job, run *Run, rotated bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, failed := j.entry, run.Result.Outcome == source.Failed
	c.runs.judge(j.host, failed)
	c.runs.done(j.host)
	if j.opened {
		c.fetches.judge(j.host, failed)
	}
	e.state, e.ended, e.since = resting, j.number, c.clock()
	if noted := j.secrets.noted(); !slices.Equal(e.lookups, noted) {
		e.lookups = slices.Clip(noted)
	}
	if e.obj = j.obj; e.doc != j.doc {
		e.obj = adopt(e.doc, j.obj)
	}
	e.last = short(run)
	due := c.judge(e, run.Result)
	switch again := e.again; {
	case e.removed != nil:
		c.dig(e)
	case e.suspended():
	case again != "":
		c.plan(e, again, e.since)
	case rotated:
		c.plan(e, Secret, e.since)
	case early(j, run.Result.Outcome) && (due == 0 || due > e.since+secondLook):
		e.echo, e.asked = true, e.since+secondLook
		c.plan(e, Hook, e.asked)
	case due != 0:
		t := Tick
		if run.Result.Outcome == source.Failed || run.Result.Outcome == source.Waiting {
			t = Retry
		}
		c.plan(e, t, due)
	}
	e.again = ""
	c.changed(e)
	c.answer(e)
	c.inform(e)
	c.pump()
}

// judge takes over how a run ended, and returns when the next is due, 0 for not
// before something changes.
func (c *Controller) judge(e *entry, r source.Result) time.Duration {
	now, interval := c.clock(), e.obj.Interval()
	e.stalled = r.Outcome == source.Stalled
	switch r.Outcome {
	case source.Stored, source.Unchanged:
		e.failures, e.checked = 0, c.wall()
		if e.pace == nil {
			return 0
		}
		return e.pace.after(now, c.jitter)
	case source.Waiting:
		return now + r.After
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
		return now + wait
	}
	return 0
}

// secondLook is when an upstream is looked at again that had nothing new when it
// called. Registries of the distribution project tell of a push before its tag is there.
const secondLook = 2 * time.Second

// early reports whether a webhook may have come before what it tells of.
func early(j *job, o source.Outcome) bool {
	return j.trigger == Hook && o == source.Unchanged && !j.echo
}

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
