package serve

import (
	"context"
	"fmt"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// rank orders triggers: a run that is due for several reasons tells the highest.
var rank = map[Trigger]int{Tick: 1, Retry: 2, Input: 3, Repair: 4, Secret: 5, Start: 6, Spec: 7, Hook: 8, Request: 9}

// enqueue has e run now, or once more after the run that is under way. Answers of
// its upstream that are older than asked do not count, unless asked is 0.
func (s *Server) enqueue(e *entry, t Trigger, asked time.Duration) {
	if e.removed != nil || e.suspended() || e.external() {
		return
	}
	if asked != 0 {
		e.asked = asked // the run under way has a copy of its own
	}
	if t == Hook {
		e.look = 0 // this call gets a second look of its own
	}
	switch now := s.clock(); {
	case e.state == running:
		if rank[t] > rank[e.again] {
			e.again = t
		}
	case e.state == queued || e.state == blocked || e.state == planned && e.due <= now:
		if rank[t] > rank[e.trigger] {
			e.trigger = t
		}
	default:
		s.plan(e, t, now)
	}
}

// plan has e run at due.
func (s *Server) plan(e *entry, t Trigger, due time.Duration) {
	e.state, e.trigger, e.due = planned, t, due
	left := due - s.clock()
	switch {
	case left <= 0:
		s.pending = append(s.pending, e)
	case e.timer == nil:
		e.timer = time.AfterFunc(left, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.pending = append(s.pending, e)
			s.dispatch()
		})
	default:
		e.timer.Reset(left)
	}
}

// rest ends all plans for e. A run that is under way goes on.
func (s *Server) rest(e *entry) {
	s.leave(e)
	e.again, e.asked, e.look = "", 0, 0
	if e.state != running {
		e.state = resting
	}
	s.inform(e) // objects that need it may have waited for it
}

// leave has e wait for no slot.
func (s *Server) leave(e *entry) {
	if e.ticket != nil {
		s.runs.remove(e.ticket)
		e.ticket = nil
	}
}

// dispatch begins everything that is due and has a slot.
func (s *Server) dispatch() {
	if s.ctx.Err() != nil { // after the end no goroutine begins any more
		return
	}
	for _, e := range s.pending {
		switch {
		case e.state != planned || e.due > s.clock(): // its plan has changed
		case e.removed != nil:
			e.state = resting
			removed := e.removed
			s.work.Go(func() { s.retire(e, removed) })
		default:
			s.enter(e)
		}
	}
	s.pending = nil
	s.runs.grant()
}

// enter has e, which is due, wait for a slot of its host and of no other, or for what it needs.
func (s *Server) enter(e *entry) {
	before := e.state
	if e.state = queued; len(s.blockers(e)) > 0 {
		e.state = blocked
	}
	if e.state != before {
		s.changed(e)
	}
	if e.state == blocked || e.ticket != nil && e.ticket.host != e.host {
		s.leave(e)
	}
	if e.state == queued && e.ticket == nil {
		e.ticket = &ticket{e.host, func() { s.start(e) }}
		s.runs.add(e.ticket)
	}
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

func (e *entry) tickKey() tickKey { return tickKey{e.upstream, min(e.obj.Interval(), never)} }

// tick returns the first tick of e after now. Ticks are counted from the first run
// of an object with these ticks, or from a random time before now when it is not
// known, or when there are so many objects that they would be due together.
func (s *Server) tick(e *entry, now time.Duration) time.Duration {
	key := e.tickKey()
	first, known := s.ticks[key]
	if !known {
		first = now
		if e.last.Number == 0 || len(s.entries) > s.runs.all {
			first -= rand.N(key.interval)
		}
		s.ticks[key] = first
	}
	for n := max((now-first)/key.interval, 1); ; n++ {
		part := float64(maphash.Comparable(s.seed, [2]any{key, n})>>11)/(1<<53) - 0.5
		if at := first + n*key.interval + time.Duration(part*s.config.Jitter*float64(key.interval)); at > now {
			return at
		}
	}
}

// backOff returns how long to wait after failures in a row, 1 or more: twice as
// long after each, and limit at most. Objects which reached the limit do not stay together.
func backOff(failures int, least, limit time.Duration, jitter float64) time.Duration {
	wait := float64(least) * math.Exp2(float64(failures-1)) * (1 + jitter*(2*rand.Float64()-1))
	return time.Duration(min(wait, float64(limit)*(1-jitter*rand.Float64())))
}

// Slots are handed out first come first served within a host. Of several hosts
// the one with the fewest slots is next, and of those the one that waits longest.
//
// Hosts that hang do not hold up others: a host has at most each slots, and at
// most twice as many as are free, so that the last ones go to hosts that have
// few; hosts whose last run failed have half of all slots together.
type slots struct {
	all, each int
	failed    map[string]bool // hosts whose last run did
	taken     int
	serial    uint64
	lines     map[string]*line
}

// A line is the callers that wait for a slot of one host.
type line struct {
	waiting []*ticket
	taken   int
	since   uint64 // serial of when it began to wait, or got its last slot
}

// A ticket waits for a slot.
type ticket struct {
	host string
	use  func() // is called when there is one
}

// add has t wait.
func (s *slots) add(t *ticket) {
	l := s.lines[t.host]
	if l == nil {
		l = new(line)
		s.lines[t.host] = l
	}
	if len(l.waiting) == 0 {
		s.serial++
		l.since = s.serial
	}
	l.waiting = append(l.waiting, t)
}

// remove has t wait no more and reports whether it did.
func (s *slots) remove(t *ticket) bool {
	l := s.lines[t.host]
	if l == nil {
		return false
	}
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(other *ticket) bool { return other == t })
	return len(l.waiting) < before
}

// grant gives slots to those that wait, as far as they may have one.
func (s *slots) grant() {
	for {
		free, failing := s.all-s.taken, 0
		for host := range s.failed {
			if l := s.lines[host]; l != nil {
				failing += l.taken
			}
		}
		var best *line
		for host, l := range s.lines {
			switch {
			case len(l.waiting) == 0 && l.taken == 0:
				delete(s.lines, host)
			case len(l.waiting) == 0 || l.taken >= min(s.each, 2*free):
			case s.failed[host] && failing >= max(s.all/2, 1):
			case best == nil || l.taken < best.taken || l.taken == best.taken && l.since < best.since:
				best = l
			}
		}
		if best == nil {
			return
		}
		next := best.waiting[0]
		best.waiting = best.waiting[1:]
		s.serial++
		best.since = s.serial
		best.taken++
		s.taken++
		next.use()
	}
}

// done gives a slot of a host back.
func (s *slots) done(host string) {
	s.lines[host].taken--
	s.taken--
}

// admit waits for a slot for the content of a run of a host; end gives it back.
func (s *Server) admit(ctx context.Context, host string) (end func(), err error) {
	mine := make(chan struct{})
	t := &ticket{host, func() { close(mine) }}
	s.mu.Lock()
	s.fetches.add(t)
	s.fetches.grant()
	s.mu.Unlock()
	end = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetches.done(host)
		s.fetches.grant()
	}
	select {
	case <-mine:
		return end, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	waited := s.fetches.remove(t)
	s.mu.Unlock()
	if !waited {
		end()
	}
	return nil, context.Cause(ctx)
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
func (s *Server) blockers(e *entry) (refs []source.Reference) {
	for _, b := range e.before {
		pending := b.state >= queued || b.state == planned && b.due <= s.clock()
		if pending && (b.last.Number == 0 || b.began < e.due) {
			refs = append(refs, b.ref)
		}
	}
	return refs
}

// inputsOf returns what e needs as it is now: it changes when an artifact, a
// generation or the readiness of an input does, and when an input comes or goes.
func inputsOf(e *entry) string {
	var text strings.Builder
	for _, b := range e.before {
		fmt.Fprintln(&text, b.ref, b.obj.Head().Metadata.Generation, b.obj.Common().Condition(source.ReadyCondition).Status)
		if a := b.obj.Artifact(); a != nil {
			fmt.Fprintln(&text, a.Digest, a.Revision)
			if b.foreign { // it may have been missing where it is, and be there again
				fmt.Fprintln(&text, a.URL, a.LastUpdateTime)
			}
		}
	}
	return text.String()
}

// inform tells entries that need e that it is what it is now: one that saw
// something else runs, and one that waited for it goes on.
func (s *Server) inform(e *entry) {
	for _, a := range e.after {
		if inputsOf(a) != a.inputs {
			s.enqueue(a, Input, 0)
		}
		if a.state == blocked {
			s.enter(a)
		}
	}
}

// locate finds out where e comes from. The upstream of a chart is its source's. An object with an address that cannot
// be read has an upstream of its own.
func (s *Server) locate(e *entry) {
	e.upstream, e.host = e.ref.String(), ""
	address := ""
	switch o := e.obj.(type) {
	case *source.GitRepository:
		address = o.Spec.URL
	case *source.OCIRepository:
		address = o.Spec.URL
	case *source.PkgRepository:
		address = o.Spec.URL
	case *source.Bucket:
		if u, err := o.Spec.EndpointURL(); err == nil {
			address = u.JoinPath(o.Spec.BucketName).String()
		}
	case *source.PkgChart:
		if ref, ok := o.Source(); ok {
			if from := s.entries[ref]; from != nil && from.removed == nil {
				s.locate(from)
				e.upstream, e.host = from.upstream, from.host
			}
		}
	}
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		e.upstream, e.host = address, strings.ToLower(u.Host)
	}
	if s.config.Apart {
		e.upstream = e.ref.String()
	}
}
