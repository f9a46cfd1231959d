package controller

import (
	"slices"
	"time"

	"github.com/headgate-io/headgate/source"
)

// interrupted is the end of a job that the end of the controller interrupted.
func (c *Controller) interrupted(j *job) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs.done(j.slot)
	j.state = resting
	c.changed(j.entry)
}

// finish records what became of j, and sees to what is next. It does nothing and
// returns false when there is a newer [Desired] than that of the number, since
// which the Secrets of j may have changed.
func (c *Controller) finish(j *job, run *Run, rotated bool, serial uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serial != serial {
		return false
	}
	e, failed := j.entry, run.Result.Outcome == source.Failed
	c.runs.judge(j.host, failed)
	c.runs.done(j.slot)
	if j.opened {
		c.fetches.judge(j.host, failed)
	}
	e.state, e.ended, e.began, e.since = resting, j.number, j.began, c.clock()
	if noted := j.secrets.noted(); !slices.Equal(e.lookups, noted) {
		e.lookups = slices.Clip(noted)
		c.remember()
	}
	if e.obj = j.obj; e.doc != j.doc {
		e.obj = adopt(e.doc, j.obj)
	}
	e.last = short(run)
	due := c.judge(e, run.Result)
	if early(j, run.Result.Outcome) {
		e.echo = e.since + secondLook
	}
	switch again := e.again; {
	case e.removed != nil:
		c.dig(e)
	case e.suspended():
		c.shelve(e)
	case again != "":
		c.plan(e, again, e.since)
	case rotated:
		c.plan(e, Secret, e.since)
	case e.echo != 0 && (due == 0 || due > e.echo):
		e.asked = e.echo
		c.plan(e, Hook, e.echo)
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
	return true
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
		return later(now, r.After)
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
		return later(now, wait)
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
