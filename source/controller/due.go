package controller

import "time"

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
	if t == Hook {
		e.echo = 0 // it gets one of its own
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
		now := c.clock()
		if e.at >= 0 && e.due <= now && rank[e.trigger] > rank[t] {
			return
		}
		c.plan(e, t, now)
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
	e.echo = 0
	if e.state == queued || e.state == blocked {
		e.state = resting
	}
	c.inform(e) // it may have been due, and so have kept others back
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
		if removed := e.removed; removed != nil {
			c.goes.Go(func() { c.bury(e, removed) })
			continue
		}
		c.enter(e)
	}
	c.runs.lend(now)
	c.fetches.lend(now)
	c.letIn(now)
	for {
		e, s := c.runs.next(now, func(e *entry, host string) bool {
			if e.line != host { // it is in another line now
				return false
			}
			e.inLine = false
			return e.state == queued
		})
		if s == nil {
			break
		}
		c.start(e, s)
	}
	c.wake(min(c.runs.lends(), c.fetches.lends()))
}

// wake sets the timer for what is due next, at the latest for next.
func (c *Controller) wake(next time.Duration) {
	if len(c.agenda) > 0 {
		next = min(next, c.agenda[0].due)
	}
	if next < never && (c.alarm == 0 || next < c.alarm) {
		c.alarm = next
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
	c.lineUp(e)
}

// lineUp has e wait in the line of its host.
func (c *Controller) lineUp(e *entry) {
	if !e.inLine || e.line != e.host {
		e.inLine, e.line = true, e.host
		c.runs.add(e.host, e)
	}
}
