package serve

import (
	"container/heap"
	"context"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// rank orders triggers: a run that is due for several reasons tells the highest.
var rank = map[Trigger]int{Tick: 1, Retry: 2, Input: 3, Repair: 4, Secret: 5, Start: 6, Spec: 7, Hook: 8, Request: 9}

// kick has e run now, or once more after the run that is under way. Answers of
// its upstream that are older than asked do not count, unless asked is 0.
func (s *Server) kick(e *entry, t Trigger, asked time.Duration) {
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
		now := s.clock()
		if e.at < 0 || e.due > now || rank[t] >= rank[e.trigger] {
			s.plan(e, t, now)
		}
	}
}

// plan has e run at due.
func (s *Server) plan(e *entry, t Trigger, due time.Duration) {
	e.trigger, e.due = t, due
	if e.at < 0 {
		heap.Push(&s.queue, e)
	} else {
		heap.Fix(&s.queue, e.at)
	}
}

// unplan takes e out of the queue.
func (s *Server) unplan(e *entry) {
	if e.at >= 0 {
		heap.Remove(&s.queue, e.at)
	}
}

// rest ends all plans for e. A run that is under way goes on.
func (s *Server) rest(e *entry) {
	s.unplan(e)
	e.again, e.asked, e.look = "", 0, 0
	s.leaveLine(e)
	if e.state == queued || e.state == blocked {
		e.state = resting
	}
	s.inform(e) // objects that need it may have waited for it
}

// dispatch begins everything that is due and has a slot, and sets the timer for the rest.
func (s *Server) dispatch() {
	if s.closed || s.ctx == nil || s.ctx.Err() != nil {
		return
	}
	now := s.clock()
	for len(s.queue) > 0 && s.queue[0].due <= now {
		e := s.queue[0]
		s.unplan(e)
		if removed := e.removed; removed != nil {
			s.work.Go(func() { s.retire(e, removed) })
		} else {
			s.enter(e)
		}
	}
	for e, ok := s.runs.next(); ok; e, ok = s.runs.next() {
		e.inLine = false
		s.start(e)
	}
	if len(s.queue) > 0 && s.queue[0].due < never {
		s.timer.Reset(s.queue[0].due - s.clock())
	}
}

// enter has e, which is due, wait for a slot or for what it needs.
func (s *Server) enter(e *entry) {
	state := queued
	if len(s.blockers(e)) > 0 {
		state = blocked
	}
	if e.state != state {
		e.state = state
		s.changed(e)
	}
	if e.state == queued {
		s.lineUp(e)
	}
}

// lineUp has e wait in the line of its host, and of no other.
func (s *Server) lineUp(e *entry) {
	if !e.inLine || e.line != e.host {
		s.leaveLine(e)
		e.inLine, e.line = true, e.host
		s.runs.add(e.host, e)
	}
}

func (s *Server) leaveLine(e *entry) {
	if e.inLine {
		e.inLine = false
		s.runs.remove(e.line, e)
	}
}

// A queue is a heap of the entries that are due some time, the next one first.
type queue []*entry

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due < q[j].due }
func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].at, q[j].at = i, j
}

func (q *queue) Push(x any) {
	x.(*entry).at = len(*q)
	*q = append(*q, x.(*entry))
}

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = slices.Delete(*q, last, last+1)
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

func (s *Server) tickKey(e *entry) tickKey {
	if s.config.Apart {
		return tickKey{e.ref.String(), e.obj.Interval()}
	}
	return tickKey{e.upstream, e.obj.Interval()}
}

// tick returns the first tick of e after now. Ticks are counted from the first run
// of an object with these ticks, or from a random time before now when it is not
// known, or when there are so many objects that they would be due together.
func (s *Server) tick(e *entry, now time.Duration) time.Duration {
	key := s.tickKey(e)
	interval := min(key.interval, never)
	first, known := s.ticks[key]
	if !known {
		first = now
		if e.ended == 0 || len(s.entries) > s.runs.all {
			first -= time.Duration(rand.Float64() * float64(interval))
		}
		s.ticks[key] = first
	}
	for n := max((now-first)/interval, 1); ; n++ {
		part := float64(maphash.Comparable(s.seed, struct {
			tickKey
			n time.Duration
		}{key, n})>>11)/(1<<53) - 0.5
		if at := first + n*interval + time.Duration(part*s.config.Jitter*float64(interval)); at > now {
			return at
		}
	}
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

// Slots are handed out first come first served within a host. Of several hosts
// the one with the fewest slots is next, and of those the one that waits longest.
//
// Hosts that hang do not hold up others: a host has at most each slots, and at
// most twice as many as are free, so that the last ones go to hosts that have
// few; hosts whose last run failed have half of all slots together.
type slots[T comparable] struct {
	all, each int
	taken     int
	serial    uint64
	lines     map[string]*line[T]
}

// A line is the callers that wait for a slot of one host.
type line[T comparable] struct {
	waiting []T
	taken   int
	failed  bool   // its last run
	since   uint64 // serial of when it began to wait, or got its last slot
}

func (t *slots[T]) line(host string) *line[T] {
	if t.lines == nil {
		t.lines = make(map[string]*line[T])
	}
	if t.lines[host] == nil {
		t.lines[host] = new(line[T])
	}
	return t.lines[host]
}

// add has x wait for a slot of a host.
func (t *slots[T]) add(host string, x T) {
	l := t.line(host)
	if len(l.waiting) == 0 {
		t.serial++
		l.since = t.serial
	}
	l.waiting = append(l.waiting, x)
}

// remove takes x out of the line of a host and reports whether it was there.
func (t *slots[T]) remove(host string, x T) bool {
	l := t.line(host)
	i := slices.Index(l.waiting, x)
	if i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
	}
	t.forget(host)
	return i >= 0
}

// next gives a slot to one that waits; ok is false if none may have one.
func (t *slots[T]) next() (x T, ok bool) {
	free, failing := t.all-t.taken, 0
	if free <= 0 {
		return x, false
	}
	for _, l := range t.lines {
		if l.failed {
			failing += l.taken
		}
	}
	var best *line[T]
	for _, l := range t.lines {
		switch {
		case len(l.waiting) == 0 || l.taken >= min(t.each, 2*free):
		case l.failed && failing >= max(t.all/2, 1):
		case best == nil || l.taken < best.taken || l.taken == best.taken && l.since < best.since:
			best = l
		}
	}
	if best == nil {
		return x, false
	}
	x = best.waiting[0]
	best.waiting = slices.Delete(best.waiting, 0, 1)
	t.serial++
	best.since = t.serial
	best.taken++
	t.taken++
	return x, true
}

// done gives a slot of a host back.
func (t *slots[T]) done(host string) {
	t.line(host).taken--
	t.taken--
	t.forget(host)
}

// judge notes whether the last run of a host failed.
func (t *slots[T]) judge(host string, failed bool) {
	t.line(host).failed = failed
	t.forget(host)
}

// forget drops a line that says nothing.
func (t *slots[T]) forget(host string) {
	if l := t.line(host); l.taken == 0 && len(l.waiting) == 0 && !l.failed {
		delete(t.lines, host)
	}
}

// keep forgets the failures of hosts that no object has any more.
func (t *slots[T]) keep(used map[string]bool) {
	for host, l := range t.lines {
		if !used[host] && l.taken == 0 {
			t.judge(host, false)
		}
	}
}

// admit waits for a slot for the content of a run; end gives it back.
func (s *Server) admit(ctx context.Context, j *job) (end func(), err error) {
	mine := make(chan struct{}) // closed when the run has a slot
	s.mu.Lock()
	s.fetches.add(j.host, mine)
	s.admitNext()
	s.mu.Unlock()
	end = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetches.done(j.host)
		s.admitNext()
	}
	select {
	case <-mine:
		j.opened = true
		return end, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	waited := s.fetches.remove(j.host, mine)
	s.mu.Unlock()
	if !waited {
		end()
	}
	return nil, context.Cause(ctx)
}

// admitNext gives the free slots for contents to those that wait.
func (s *Server) admitNext() {
	for next, ok := s.fetches.next(); ok; next, ok = s.fetches.next() {
		close(next)
	}
}

// link finds out what entries need. Where they need each other in a circle one demand is left
// out, so that none waits for ever; the run of each then finds the circle and names it (see [source.Needed]).
func (s *Server) link() {
	var live []*entry
	var objects []source.Object
	for _, e := range s.sorted {
		if e.before, e.after = nil, nil; e.removed == nil {
			live, objects = append(live, e), append(objects, e.obj)
		}
	}
	for i, before := range source.Order(objects) {
		for _, j := range before {
			live[i].before = append(live[i].before, live[j])
			live[j].after = append(live[j].after, live[i])
		}
	}
}

// blockers returns what e, which is due, is to wait for: what it needs that is due or under way. One
// run that begins when e is due is enough: else what is asked for without pause would keep e back for ever.
func (s *Server) blockers(e *entry) []source.Reference {
	var refs []source.Reference
	for _, b := range e.before {
		pending := b.state != resting || b.at >= 0 && b.removed == nil && b.due <= s.clock()
		if pending && (b.ended == 0 || b.began < e.due) {
			refs = append(refs, b.ref)
		}
	}
	return refs
}

// sumInputs returns a sum of what e needs: it changes when an artifact, a
// generation or the readiness of an input does, and when an input comes or goes.
func (s *Server) sumInputs(e *entry) uint64 {
	if len(e.before) == 0 {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(s.seed)
	for _, b := range e.before {
		h.WriteString(b.ref.String())
		h.WriteByte(0)
		if a := b.obj.Artifact(); a != nil {
			h.WriteString(a.Digest + "\x00" + a.Revision)
		}
		h.WriteByte(0)
		h.WriteString(strconv.FormatInt(b.obj.Head().Metadata.Generation, 10))
		h.WriteString(b.obj.Common().Condition(source.ReadyCondition).Status)
	}
	return h.Sum64()
}

// inform tells entries that need e that it is what it is now: one that saw
// something else runs, and one that waited for it goes on.
func (s *Server) inform(e *entry) {
	for _, a := range e.after {
		if s.sumInputs(a) != a.inputs {
			s.kick(a, Input, 0)
		}
		if a.state == blocked {
			s.enter(a)
		}
	}
}

// upstreamOf says where obj comes from: objects with equal keys ask the same
// server the same questions with the same credentials. The upstream of a chart is
// its source's, which at returns, nil when there is none. An object of an unknown
// kind, or with an address that cannot be read, has a key of its own.
func upstreamOf(obj source.Object, at func(source.Reference) source.Object) (key, host string) {
	var text, provider, account string
	var secret *source.LocalReference
	own := source.ReferenceTo(obj)
	switch o := obj.(type) {
	case *source.GitRepository:
		text, secret, provider, account = o.Spec.URL, o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName
	case *source.OCIRepository:
		text, secret, provider, account = o.Spec.URL, o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName
	case *source.PkgRepository:
		text, secret, provider = o.Spec.URL, o.Spec.SecretRef, o.Spec.Provider
	case *source.Bucket:
		if u, err := o.Spec.EndpointURL(); err == nil {
			text, secret, provider, account = u.JoinPath(o.Spec.BucketName).String(), o.Spec.SecretRef, o.Spec.Provider, o.Spec.ServiceAccountName
		}
	case *source.PkgChart:
		if ref, ok := o.Source(); ok {
			if from := at(ref); from != nil && !external(from) {
				return upstreamOf(from, at)
			}
		}
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" {
		return own.String(), ""
	}
	parts := []string{text, provider, account}
	if secret != nil {
		parts = append(parts, secret.Name)
	}
	if secret != nil || account != "" {
		parts = append(parts, own.Namespace)
	}
	return strings.Join(parts, "\n"), strings.ToLower(u.Host)
}
