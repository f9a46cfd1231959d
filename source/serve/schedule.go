package serve

import (
	"container/heap"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"time"
)

// rank orders triggers: a run that is due for several reasons tells the highest.
var rank = map[Trigger]int{Tick: 1, Retry: 2, Input: 3, Repair: 4, Secret: 5, Start: 6, Spec: 7, Hook: 8, Request: 9}

// kick has e run now, or once more after the run that is under way. Answers of
// its upstream that are older than asked do not count, unless asked is 0.
func (c *Controller) kick(e *entry, t Trigger, asked time.Duration) {
	if e.removed != nil || e.suspended() || external(e.obj) {
		return
	}
	if asked != 0 {
		e.asked = asked // the run under way has a copy of its own
	}
	if t == Hook {
		e.look = 0 // this call gets a second look of its own
	}
	switch e.state {
	case running:
		if rank[t] > rank[e.again] {
			e.again = t
		}
	case queued, blocked:
		if rank[t] > rank[e.trigger] {
			e.trigger = t
		}
	default:
		now := c.clock()
		if e.at < 0 || e.due > now || rank[t] >= rank[e.trigger] {
			c.plan(e, t, now)
		}
	}
}

// plan has e run at due.
func (c *Controller) plan(e *entry, t Trigger, due time.Duration) {
	e.trigger, e.due = t, due
	if e.at < 0 {
		heap.Push(&c.agenda, e)
	} else {
		heap.Fix(&c.agenda, e.at)
	}
}

// unplan takes e out of the agenda.
func (c *Controller) unplan(e *entry) {
	if e.at >= 0 {
		heap.Remove(&c.agenda, e.at)
	}
}

// rest ends all plans for e. A run that is under way goes on.
func (c *Controller) rest(e *entry) {
	c.unplan(e)
	e.again, e.asked, e.look = "", 0, 0
	c.leaveLine(e)
	if e.state == queued || e.state == blocked {
		e.state = resting
	}
	c.inform(e) // objects that are made of it may have waited for it
}

// pump begins everything that is due and has a slot, and sets the timer for the rest.
func (c *Controller) pump() {
	if c.closing || c.ctx.Err() != nil {
		return
	}
	now := c.clock()
	for len(c.agenda) > 0 && c.agenda[0].due <= now {
		e := c.agenda[0]
		c.unplan(e)
		if removed := e.removed; removed != nil {
			c.goes.Go(func() { c.retire(e, removed) })
		} else {
			c.enter(e)
		}
	}
	for e, ok := c.runs.next(); ok; e, ok = c.runs.next() {
		e.inLine = false
		c.start(e)
	}
	if len(c.agenda) > 0 && c.agenda[0].due < never {
		c.timer.Reset(c.agenda[0].due - c.clock())
	}
}

// enter has e, which is due, wait for a slot or for what it is made of.
func (c *Controller) enter(e *entry) {
	state := queued
	if len(c.blockers(e)) > 0 {
		state = blocked
	}
	if e.state != state {
		e.state = state
		c.changed(e)
	}
	if e.state == queued {
		c.lineUp(e)
	}
}

// lineUp has e wait in the line of its host, and of no other.
func (c *Controller) lineUp(e *entry) {
	if e.inLine && e.line == e.host {
		return
	}
	c.leaveLine(e)
	e.inLine, e.line = true, e.host
	c.runs.add(e.host, e)
}

func (c *Controller) leaveLine(e *entry) {
	if e.inLine {
		e.inLine = false
		c.runs.remove(e.line, e)
	}
}

// An agenda is a heap of the entries that are due some time, the next one first.
type agenda []*entry

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due < a[j].due }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].at, a[j].at = i, j
}

func (a *agenda) Push(x any) {
	e := x.(*entry)
	e.at = len(*a)
	*a = append(*a, e)
}

func (a *agenda) Pop() any {
	last := len(*a) - 1
	e := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	e.at = -1
	return e
}

// never is later than any due time: a quarter of what a clock can count, so that
// sums of due times do not overflow.
const never = time.Duration(math.MaxInt64) / 4

// later returns the time d after t, never at most.
func later(t, d time.Duration) time.Duration { return min(t, never) + min(d, never) }

// A tickKey is what objects have in common that have the same ticks.
type tickKey struct {
	upstream string
	interval time.Duration
}

func (c *Controller) tickKey(e *entry) tickKey {
	if c.Apart {
		return tickKey{e.ref.String(), e.obj.Interval()}
	}
	return tickKey{e.upstream, e.obj.Interval()}
}

// tick returns the first tick of e after now. Ticks are counted from the first run
// of an object with these ticks, or from a random time before now when it is not
// known, or when there are so many objects that they would be due together.
func (c *Controller) tick(e *entry, now time.Duration) time.Duration {
	key := c.tickKey(e)
	interval := min(key.interval, never)
	first, known := c.ticks[key]
	if !known {
		first = now
		if e.ended == 0 || len(c.entries) > c.runs.all {
			first -= time.Duration(rand.Float64() * float64(interval))
		}
		c.ticks[key] = first
	}
	for n := max((now-first)/interval, 1); ; n++ {
		late := float64(maphash.Comparable(c.seed, struct {
			tickKey
			n time.Duration
		}{key, n})>>11)/(1<<53) - 0.5
		if at := first + n*interval + time.Duration(late*c.jitter*float64(interval)); at > now {
			return at
		}
	}
}

// keepTicks forgets the ticks that no object has any more.
func (c *Controller) keepTicks() {
	used := make(map[tickKey]time.Duration)
	for _, e := range c.sorted {
		if first, known := c.ticks[c.tickKey(e)]; known {
			used[c.tickKey(e)] = first
		}
	}
	c.ticks = used
}

// backOff returns how long to wait after failures in a row, 1 or more: twice as
// long after each, and limit at most.
func backOff(failures int, least, limit time.Duration, jitter float64) time.Duration {
	d := limit
	if shift := failures - 1; shift < 62 && least < limit>>shift {
		d = least << shift
		d += time.Duration(jitter * (2*rand.Float64() - 1) * float64(d))
	}
	if d >= limit { // below the limit, so that objects which reached it do not stay together
		d = limit - time.Duration(jitter*rand.Float64()*float64(limit))
	}
	return d
}
