package serve

import (
	"context"
	"slices"
)

// turns hands out slots, first come first served within a host. Of several hosts
// the one with the fewest slots is next, and of those the one that waits longest.
//
// Hosts that stall do not starve others: a host has at most each slots, and at
// most twice as many as are free, so that the last ones go to hosts that have
// few; hosts whose last run failed have half of all slots together.
type turns[T comparable] struct {
	all, each int
	taken     int
	failing   int // slots of hosts whose last run failed
	hosts     map[string]*line[T]
	serial    uint64
}

// A line is the callers that wait for a slot of one host.
type line[T comparable] struct {
	host    string
	waiting []T
	taken   int
	failed  bool   // its last run
	since   uint64 // serial of when it began to wait, or got its last slot
}

// add has x wait for a slot of a host.
func (t *turns[T]) add(host string, x T) {
	l := t.line(host)
	if len(l.waiting) == 0 {
		l.since = t.tick()
	}
	l.waiting = append(l.waiting, x)
}

// remove takes x out of the line of a host and reports whether it was there.
func (t *turns[T]) remove(host string, x T) bool {
	l := t.line(host)
	i := slices.Index(l.waiting, x)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	t.forget(l)
	return i >= 0
}

// next gives a slot to one that waits; ok is false if none may have one.
func (t *turns[T]) next() (x T, ok bool) {
	free := t.all - t.taken
	if free <= 0 {
		return x, false
	}
	var best *line[T]
	for _, l := range t.hosts {
		switch {
		case len(l.waiting) == 0 || l.taken >= min(t.each, 2*free):
		case l.failed && t.failing >= max(t.all/2, 1):
		case best == nil || l.taken < best.taken || l.taken == best.taken && l.since < best.since:
			best = l
		}
	}
	if best == nil {
		return x, false
	}
	x = best.waiting[0]
	best.waiting = slices.Delete(best.waiting, 0, 1)
	best.since = t.tick()
	t.take(best, 1)
	return x, true
}

// done gives a slot of a host back.
func (t *turns[T]) done(host string) {
	l := t.line(host)
	t.take(l, -1)
	t.forget(l)
}

// judge notes whether the last run of a host failed.
func (t *turns[T]) judge(host string, failed bool) {
	l := t.line(host)
	if l.failed != failed {
		n := l.taken
		t.take(l, -n)
		l.failed = failed
		t.take(l, n)
	}
	t.forget(l)
}

// keep forgets the failures of hosts that are not used any more.
func (t *turns[T]) keep(used map[string]bool) {
	for host, l := range t.hosts {
		if !used[host] {
			l.failed = l.failed && l.taken > 0
			t.forget(l)
		}
	}
}

func (t *turns[T]) line(host string) *line[T] {
	l := t.hosts[host]
	if l == nil {
		if t.hosts == nil {
			t.hosts = make(map[string]*line[T])
		}
		l = &line[T]{host: host}
		t.hosts[host] = l
	}
	return l
}

func (t *turns[T]) take(l *line[T], n int) {
	l.taken += n
	t.taken += n
	if l.failed {
		t.failing += n
	}
}

func (t *turns[T]) forget(l *line[T]) {
	if l.taken == 0 && len(l.waiting) == 0 && !l.failed {
		delete(t.hosts, l.host)
	}
}

func (t *turns[T]) tick() uint64 {
	t.serial++
	return t.serial
}

// admit waits for a slot for the content of j; end gives it back.
func (c *Controller) admit(ctx context.Context, j *job) (end func(), err error) {
	mine := make(chan struct{}) // closed when j has a slot
	c.mu.Lock()
	c.fetches.add(j.host, mine)
	c.admitNext()
	c.mu.Unlock()
	end = func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.fetches.done(j.host)
		c.admitNext()
	}
	select {
	case <-mine:
		j.opened = true
		return end, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	waited := c.fetches.remove(j.host, mine)
	c.mu.Unlock()
	if !waited {
		end()
	}
	return nil, context.Cause(ctx)
}

// admitNext gives the free slots for contents to those that wait.
func (c *Controller) admitNext() {
	for next, ok := c.fetches.next(); ok; next, ok = c.fetches.next() {
		close(next)
	}
}
