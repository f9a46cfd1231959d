package controller

// turns hands out slots to those who wait: in the order in which they came
// within a host, while hosts take turns. No host has more than each slots, and
// doubtful hosts, whose last one failed, have half of all slots together: hosts
// that stall starve nobody.
type turns[T any] struct {
	all, each int
	taken     int
	doubtful  int // of taken, those of doubtful hosts
	hosts     map[string]*line[T]
	rings     [2]queue[*line[T]] // hosts that may have their turn; the doubtful ones apart
	turn      int                // the ring whose turn it is
}

// A line is those of one host who wait.
type line[T any] struct {
	host     string
	waiting  queue[T]
	taken    int
	doubtful bool
	ringed   bool
}

// add has x wait.
func (t *turns[T]) add(host string, x T) {
	l := t.line(host)
	l.waiting.push(x)
	t.ring(l)
}

// line returns the line of a host.
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

// ring gives l a turn, if it can use one.
func (t *turns[T]) ring(l *line[T]) {
	if l.ringed || l.taken >= t.each || l.waiting.len() == 0 {
		return
	}
	l.ringed = true
	t.rings[index(l.doubtful)].push(l)
}

func index(doubtful bool) int {
	if doubtful {
		return 1
	}
	return 0
}

// next gives a slot to one who waits and for whom still is true; ok is false
// when nobody may have one. Who is no longer waiting is forgotten.
func (t *turns[T]) next(still func(T) bool) (x T, ok bool) {
	for tried := 0; tried < 2 && t.taken < t.all; {
		ring := &t.rings[t.turn]
		if ring.len() == 0 || t.turn == 1 && t.doubtful >= max(t.all/2, 1) {
			t.turn, tried = 1-t.turn, tried+1
			continue
		}
		l := ring.pop()
		l.ringed = false
		if index(l.doubtful) != t.turn {
			t.ring(l) // it changed its ring
			tried = 0
			continue
		}
		for l.waiting.len() > 0 {
			x := l.waiting.pop()
			if !still(x) {
				continue
			}
			t.take(l, 1)
			t.ring(l)
			t.turn = 1 - t.turn
			return x, true
		}
	}
	return x, false
}

// take changes how many slots a host has.
func (t *turns[T]) take(l *line[T], n int) {
	l.taken += n
	t.taken += n
	if l.doubtful {
		t.doubtful += n
	}
}

// done gives a slot of host back.
func (t *turns[T]) done(host string) {
	l := t.hosts[host]
	t.take(l, -1)
	t.ring(l)
	t.forget(l)
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
	l.doubtful = failed
	if failed {
		t.doubtful += l.taken
	} else {
		t.doubtful -= l.taken
	}
	t.forget(l)
}

// forget forgets a host of which there is nothing to know.
func (t *turns[T]) forget(l *line[T]) {
	if l.taken == 0 && l.waiting.len() == 0 && !l.doubtful && !l.ringed {
		delete(t.hosts, l.host)
	}
}

// keep forgets the doubts about hosts that are not used any more.
func (t *turns[T]) keep(used map[string]bool) {
	for host, l := range t.hosts {
		if !used[host] && l.taken == 0 && l.waiting.len() == 0 && !l.ringed {
			delete(t.hosts, host)
		}
	}
}

// A queue is first in, first out.
type queue[T any] struct {
	items []T
	head  int
}

func (q *queue[T]) len() int { return len(q.items) - q.head }

func (q *queue[T]) push(x T) {
	if q.head > 32 && q.head > len(q.items)/2 {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, x)
}

func (q *queue[T]) pop() T {
	var none T
	x := q.items[q.head]
	q.items[q.head] = none
	if q.head++; q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
	}
	return x
}
