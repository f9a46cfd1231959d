package controller

import (
	"container/heap"
	"time"
)

// turns hands out slots to those who wait: in the order in which they came
// within a host; of several hosts that has its turn which has the fewest slots,
// and of those with as many the one that waits longest.
//
// Hosts that stall starve nobody: no host has more than each slots, nor than
// twice as many as are free then, so that the last ones are for those who have
// few; and doubtful hosts, whose last one failed, have half of all slots together.
// A slot that was taken for longer than patience is lent: it counts for its host,
// but not for the others, until beyond times as many as all are taken.
type turns[T any] struct {
	all, each int
	taken     int
	lent      int             // of taken
	doubtful  int             // of taken, those of doubtful hosts
	recent    queue[*slot[T]] // those that are not lent, and some that were given back, in the order in which they were taken
	hosts     map[string]*line[T]
	rings     [2]ring[T] // hosts that somebody waits for; the doubtful ones apart
	turn      int        // the ring whose turn it is
	serial    uint64     // of those that came into a ring
}

const (
	patience = 10 * time.Second
	beyond   = 4
)

// A slot is what one who waited got.
type slot[T any] struct {
	line *line[T]
	at   time.Duration // when it was taken
	lent bool
	over bool // it was given back
}

// A line is those of one host who wait.
type line[T any] struct {
	host     string
	waiting  queue[T]
	taken    int
	doubtful bool
	at       int    // in its ring, -1 when it is not there
	serial   uint64 // when it came there
}

// add has x wait.
func (t *turns[T]) add(host string, x T) {
	l := t.line(host)
	l.waiting.push(x)
	t.enter(l)
}

// line returns the line of a host.
func (t *turns[T]) line(host string) *line[T] {
	l := t.hosts[host]
	if l == nil {
		if t.hosts == nil {
			t.hosts = make(map[string]*line[T])
		}
		l = &line[T]{host: host, at: -1}
		t.hosts[host] = l
	}
	return l
}

// ring returns the ring of a line.
func (t *turns[T]) ring(l *line[T]) *ring[T] {
	if l.doubtful {
		return &t.rings[1]
	}
	return &t.rings[0]
}

// enter has l take part, if somebody waits in it.
func (t *turns[T]) enter(l *line[T]) {
	if l.at < 0 && l.waiting.len() > 0 {
		t.serial++
		l.serial = t.serial
		heap.Push(t.ring(l), l)
	}
}

// next gives a slot, now, to one who waits and for whom still is true, in the line
// of that host; it is nil when nobody may have one. For whom it is not true is forgotten.
func (t *turns[T]) next(now time.Duration, still func(x T, host string) bool) (x T, s *slot[T]) {
	for tried := 0; tried < 2; {
		l := t.first()
		if l == nil {
			t.turn, tried = 1-t.turn, tried+1
			continue
		}
		x := l.waiting.pop()
		came := still(x, l.host)
		if came || l.waiting.len() == 0 {
			heap.Remove(t.ring(l), l.at)
		}
		if !came {
			t.forget(l)
			continue
		}
		t.take(l, 1)
		t.enter(l)
		t.turn = 1 - t.turn
		s = &slot[T]{line: l, at: now}
		t.recent.push(s)
		return x, s
	}
	return x, nil
}

// lend lends the slots that are taken for too long.
func (t *turns[T]) lend(now time.Duration) {
	for t.recent.len() > 0 {
		s := t.recent.first()
		if !s.over && s.at+patience > now {
			return
		}
		t.recent.pop()
		if !s.over {
			s.lent = true
			t.lent++
		}
	}
}

// lends returns when the next slot is to be lent, never when nobody waits for one.
func (t *turns[T]) lends() time.Duration {
	if t.recent.len() == 0 || len(t.rings[0])+len(t.rings[1]) == 0 {
		return never
	}
	return t.recent.first().at + patience
}

// first returns the line of the ring whose turn it is that may have a slot, nil
// when none may.
func (t *turns[T]) first() *line[T] {
	free, of := min(t.all-(t.taken-t.lent), beyond*t.all-t.taken), t.rings[t.turn]
	if free <= 0 || len(of) == 0 || t.turn == 1 && t.doubtful >= max(t.all/2, 1) {
		return nil
	}
	if l := of[0]; l.taken < min(t.each, 2*free) {
		return l
	}
	return nil
}

// take changes how many slots a host has.
func (t *turns[T]) take(l *line[T], n int) {
	l.taken += n
	t.taken += n
	if l.doubtful {
		t.doubtful += n
	}
	if l.at >= 0 {
		heap.Fix(t.ring(l), l.at)
	}
}

// done gives a slot back.
func (t *turns[T]) done(s *slot[T]) {
	s.over = true
	if s.lent {
		t.lent--
	}
	t.take(s.line, -1)
	t.forget(s.line)
}

// judge says whether what a host was asked last failed.
func (t *turns[T]) judge(host string, failed bool) {
	if t.hosts[host] == nil && !failed {
		return
	}
	l := t.line(host)
	if l.doubtful == failed {
		return
	}
	if l.at >= 0 {
		heap.Remove(t.ring(l), l.at)
	}
	l.doubtful = failed
	if failed {
		t.doubtful += l.taken
	} else {
		t.doubtful -= l.taken
	}
	t.enter(l)
	t.forget(l)
}

// forget forgets a host of which there is nothing to know.
func (t *turns[T]) forget(l *line[T]) {
	if l.taken == 0 && l.waiting.len() == 0 && !l.doubtful {
		delete(t.hosts, l.host)
	}
}

// keep forgets the doubts about hosts that are not used any more.
func (t *turns[T]) keep(used map[string]bool) {
	for host, l := range t.hosts {
		if !used[host] && l.taken == 0 && l.waiting.len() == 0 {
			delete(t.hosts, host)
		}
	}
}

// A ring is hosts that somebody waits for, the one with the fewest slots first.
type ring[T any] []*line[T]

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (r ring[T]) Len() int { return len(r) }

func (r ring[T]) Less(i, j int) bool {
	if r[i].taken != r[j].taken {
		return r[i].taken < r[j].taken
	}
	return r[i].serial < r[j].serial
}

func (r ring[T]) Swap(i, j int) {
	r[i], r[j] = r[j], r[i]
	r[i].at, r[j].at = i, j
}

func (r *ring[T]) Push(x any) {
	l := x.(*line[T])
	l.at = len(*r)
	*r = append(*r, l)
}

func (r *ring[T]) Pop() any {
	last := len(*r) - 1
	l := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	l.at = -1
	return l
}
