package controller

import (
	"math"
	"math/rand/v2"
	"time"
)

// A pace is the ticks of all objects with the same upstream and interval. They
// stay together, so that one answer of the upstream does for all of them.
type pace struct {
	key      paceKey
	interval time.Duration
	next     time.Duration // the tick to come, since the controller began; 0 when there was none
	members  int
}

type paceKey struct {
	upstream string
	interval time.Duration
}

// after returns the first tick after now.
func (p *pace) after(now time.Duration, jitter float64) time.Duration {
	if p.next == 0 {
		p.next = now
	}
	if late := now - p.next; late > p.interval {
		p.next += late / p.interval * p.interval // those that nobody waited for
	}
	for p.next <= now {
		p.next = later(p.next, spread(p.interval, jitter))
	}
	return p.next
}

// never is when nothing is due any more: the end of what a clock can count, less
// what is added to due times.
const never = time.Duration(math.MaxInt64) / 4

// later returns the time d after t; neither is more than never.
func later(t, d time.Duration) time.Duration { return min(t, never) + min(d, never) }

// spread returns d, changed by a part of it that is jitter at most.
func spread(d time.Duration, jitter float64) time.Duration {
	d = min(d, never)
	return max(d+time.Duration(jitter*(2*rand.Float64()-1)*float64(d)), 1)
}

// within returns a random part of d.
func within(d time.Duration) time.Duration {
	return max(time.Duration(rand.Float64()*float64(min(d, never))), 1)
}

// backOff returns how long to wait after failures in a row, 1 or more: twice as
// long after each, and limit at most.
func backOff(failures int, least, limit time.Duration, jitter float64) time.Duration {
	d := limit
	if shift := failures - 1; shift < 62 && least < limit>>shift {
		d = spread(least<<shift, jitter)
	}
	if d >= limit { // below the limit, or else those that reached it would stay together
		d = limit - time.Duration(jitter*rand.Float64()*float64(limit))
	}
	return d
}

// follow has e keep the pace of its upstream.
func (c *Controller) follow(e *entry) {
	interval := e.obj.Interval()
	if external(e.obj) {
		c.leave(e)
		return
	}
	up := upstreamOf(e.obj, c.object)
	key := paceKey{up.key, interval}
	if c.Apart {
		key.upstream = e.ref.String()
	}
	if e.host = up.host; e.state == queued {
		c.lineUp(e)
	}
	if interval <= 0 {
		c.leave(e)
		return
	}
	if e.pace != nil && e.pace.key == key {
		return
	}
	c.leave(e)
	if e.pace = c.paces[key]; e.pace == nil {
		e.pace = &pace{key: key, interval: interval}
		c.paces[key] = e.pace
	}
	e.pace.members++
}

// leave ends following.
func (c *Controller) leave(e *entry) {
	if e.pace == nil {
		return
	}
	if e.pace.members--; e.pace.members == 0 {
		delete(c.paces, e.pace.key)
	}
	e.pace = nil
}
