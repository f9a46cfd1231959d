package gate

import (
	"sync"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	sweepEvery = time.Minute
	tryAgain   = 5 * time.Second // after a write that failed and that nobody waits for
)

// A queue is what the committer has to do.
type queue struct {
	wake   chan struct{}
	mu     sync.Mutex
	ops    []op
	closed bool
}

// An op is a change that somebody waits for.
type op struct {
	apply func(*change) error // an error means that it did nothing to the change
	done  chan<- error
}

func (q *queue) do(apply func(*change) error) error {
	done := make(chan error, 1)
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return ErrClosed
	}
	q.ops = append(q.ops, op{apply, done})
	q.mu.Unlock()
	q.poke()
	return <-done
}

// poke wakes the committer.
func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// close reports whether the queue was open.
func (q *queue) close() bool {
	q.mu.Lock()
	was := !q.closed
	q.closed = true
	q.mu.Unlock()
	q.poke()
	return was
}

func (q *queue) take() ([]op, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	ops := q.ops
	q.ops = nil
	return ops, q.closed
}

// A timetable is when the committer does what nobody asks for, besides closing
// openings. Zero is never.
type timetable struct {
	flush, sweep time.Time
	stale        time.Time // to look for stale visits
	retry        time.Time // to close openings, not before
	repair       time.Time // of what a write that failed may have left, not before
}

// serve is the committer: the only one who changes states and the file.
func (b *Book) serve() {
	defer close(b.ended)
	every := max(min(sweepEvery, b.config.Idle), time.Second)
	due := timetable{sweep: time.Now().Add(every)}
	b.plan()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ops, closed := b.queue.take()
		if len(ops) > 0 {
			b.commit(ops)
		}
		if closed {
			b.unsure = b.repair()
			b.flush(true)
			return
		}
		now := time.Now()
		b.routine(&due, now, every)
		timer.Reset(max(0, b.first(due, now).Sub(now)))
		select {
		case <-b.queue.wake:
		case <-timer.C:
		}
	}
}

// routine does what is due.
func (b *Book) routine(due *timetable, now time.Time, every time.Duration) {
	if b.doubt != nil && !now.Before(due.repair) {
		b.repair()
		due.repair = now.Add(tryAgain)
	}
	if !b.next.IsZero() && !b.now().Before(b.next) && !now.Before(due.retry) {
		if b.commit([]op{{b.expire, make(chan error, 1)}}) != nil {
			due.retry = now.Add(tryAgain)
		} else {
			b.plan()
		}
	}
	if !now.Before(due.sweep) {
		b.leftIdle(b.now())
		b.commit([]op{{b.fade, make(chan error, 1)}})
		due.sweep = now.Add(every)
	}
	if !due.stale.IsZero() && !now.Before(due.stale) {
		due.stale = time.Time{}
		b.visits.observed.Store(false)
		if b.tellStale(b.now()) {
			b.visits.observed.Store(true)
		}
	}
	if due.stale.IsZero() && b.visits.observed.Load() {
		due.stale = now.Add(staleEvery)
	}
	switch {
	case !due.flush.IsZero() && !now.Before(due.flush):
		due.flush = time.Time{}
		if b.flush(false) != nil {
			due.flush = now.Add(tryAgain)
		}
	case due.flush.IsZero() && b.visits.any():
		due.flush = now.Add(flushAfter)
	}
}

// first returns when the first of it is due.
func (b *Book) first(due timetable, now time.Time) time.Time {
	first := due.sweep
	if !due.flush.IsZero() && due.flush.Before(first) {
		first = due.flush
	}
	if !due.stale.IsZero() && due.stale.Before(first) {
		first = due.stale
	}
	if b.doubt != nil && due.repair.Before(first) {
		first = due.repair
	}
	if b.next.IsZero() {
		return first
	}
	next := now.Add(b.next.Sub(b.now()))
	if next.Before(due.retry) {
		next = due.retry
	}
	if next.Before(first) {
		first = next
	}
	return first
}

// plan finds out when the next opening ends.
func (b *Book) plan() {
	b.next = time.Time{}
	b.mu.RLock()
	defer b.mu.RUnlock()
	for _, s := range b.slots {
		b.schedule(s.state.Load())
	}
}

// schedule has a state closed in time.
func (b *Book) schedule(s *state) {
	if s != nil && s.Open && !s.Expires.IsZero() && (b.next.IsZero() || s.Expires.Before(b.next)) {
		b.next = s.Expires
	}
}

// fade forgets the gates that were closed long ago.
func (b *Book) fade(c *change) error {
	c.forget(b.config.MaxKeys, func(s *state) bool { return c.now.Sub(s.Changed) > keepClosed })
	return nil
}

// commit writes what the ops change, all at once, makes it visible, and tells
// those who wait.
func (b *Book) commit(ops []op) error {
	if err := b.repair(); err != nil { // before anything else may fail
		b.trouble.Store(&trouble{err, b.now()})
		for _, op := range ops {
			op.done <- err
		}
		return err
	}
	c := &change{book: b, now: b.now(), states: map[api.Key]*state{}, gone: map[api.Key]string{}, next: b.trail.next, floor: b.floor}
	results := make([]error, len(ops))
	for i, op := range ops {
		results[i] = op.apply(c)
	}
	var err error
	if len(c.states)+len(c.entries) > 0 {
		if err = b.write(c); err == nil {
			b.publish(c)
			b.trouble.Store(nil)
		} else {
			b.trouble.Store(&trouble{err, c.now})
		}
	}
	for i, op := range ops {
		if results[i] == nil {
			results[i] = err
		}
		op.done <- results[i]
	}
	return err
}

// publish makes a change visible.
func (b *Book) publish(c *change) {
	b.trail.add(c.entries, c.next)
	b.floor = c.floor
	b.mu.Lock()
	for k, s := range c.states {
		at := b.slots[k]
		if at == nil && s != nil {
			at = new(slot)
			b.slots[k] = at
		}
		if at != nil {
			at.state.Store(s)
		}
		if at != nil && s == nil && at.visit.Load() == nil {
			delete(b.slots, k)
		}
		b.schedule(s)
	}
	b.decided += c.added
	for k := range c.gone {
		at := b.slots[k]
		if at == nil {
			continue // there was no room to keep who rejected
		}
		if v := at.visit.Load(); v != nil && c.rejected(k, v) && at.visit.CompareAndSwap(v, nil) {
			b.touch(k, at)
		}
	}
	b.mu.Unlock()
	for k := range c.states {
		b.watched.notify(k)
	}
}
