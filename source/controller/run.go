package controller

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
	slot    *slot[*entry]
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
	echo    bool // it looks again after a webhook
}

// start begins the run of e, which has the slot s.
func (c *Controller) start(e *entry, s *slot[*entry]) {
	now := c.clock()
	e.state = running
	e.begun++
	e.inputs = c.sumInputs(e)
	j := &job{entry: e, number: e.begun, trigger: e.trigger, host: e.host, slot: s, doc: e.doc, late: now - e.due, began: now, started: c.wall(), serial: c.serial}
	j.was, j.obj = e.obj, clone(e.obj)
	j.secrets = recorder{Secrets: c.secrets, key: c.key}
	j.env = c.env
	j.env.Sources, j.env.Secrets, j.env.Share = c.stock, &j.secrets, &c.share
	if j.env.Reuse == nil {
		j.env.Reuse = &c.reuse
	}
	if c.Apart {
		j.env.Share = nil
	}
	j.env.Since = c.began.Add(c.freshness(e, now))
	j.echo = e.echo != 0 && e.echo <= now
	if e.asked = 0; j.echo {
		e.echo = 0
	}
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
	result, err := c.reconcile(j)
	run := &Run{
		Number: j.number, Object: j.ref, Kind: source.Involved(j.obj).Kind, Trigger: j.trigger, Due: j.started.Add(-j.late), Started: j.started,
		Took: c.clock() - j.began, Result: result, Err: err, Artifact: j.obj.Artifact(),
	}
	if result.Outcome == "" {
		c.interrupted(j)
		return
	}
	c.observe(*run) // first, so that the runs of an object, and of what is made of it, are told in their order
	for done := false; !done; {
		rotated, serial := c.rotated(j)
		done = c.finish(j, run, rotated, serial)
	}
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

// emit tells of an event, unless it is a repetition. A panic of who is told harms nobody.
func (c *Controller) emit(e source.Event) {
	if c.Emit == nil || c.events.repeats(&e, cmp.Or(c.Repeat, 5*time.Minute)) {
		return
	}
	defer func() { _ = recover() }()
	c.Emit(e)
}

// show has the view of j's object say what was saved: before the artifact that
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

// rotated reports whether a Secret that j used is another in what the feed has
// had since j began, up to the [Desired] of that number.
func (c *Controller) rotated(j *job) (is bool, serial uint64) {
	c.mu.Lock()
	serial, from := c.serial, c.secrets
	c.mu.Unlock()
	if serial == j.serial {
		return false, serial
	}
	now := c.once(c.ctx, from)
	return slices.ContainsFunc(j.secrets.noted(), func(l lookup) bool { return !l.is(now(l.question)) }), serial
}
