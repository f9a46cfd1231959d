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

// triggerRank orders triggers: a run with several causes reports the one with the highest rank.
var triggerRank = map[Trigger]int{Tick: 1, Retry: 2, Input: 3, Repair: 4, Secret: 5, Start: 6, Spec: 7, Hook: 8, Request: 9}

// enqueue makes e due now, or makes it run once more if a run is under way. The run uses no answers of the upstream
// that are older than requested, unless requested is 0.
func (s *Server) enqueue(e *entry, t Trigger, requested time.Duration) {
	if e.removed != nil || e.suspended() || e.external() {
		return
	}
	if requested != 0 {
		e.requested = requested // the run under way has a copy of its own
	}
	if t == Hook {
		e.secondLook = 0 // this call gets a second look of its own
	}
	switch now := s.clock(); {
	case e.state == running:
		if triggerRank[t] > triggerRank[e.rerun] {
			e.rerun = t
		}
	case e.state == queued || e.state == blocked || e.state == planned && e.due <= now:
		if triggerRank[t] > triggerRank[e.trigger] {
			e.trigger = t
		}
	default:
		s.plan(e, t, now)
	}
}

// plan makes e due at a time, and replaces its earlier plan.
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

// cancelPlan cancels what is planned for e, but not a run that is under way.
func (s *Server) cancelPlan(e *entry) {
	s.dequeue(e)
	e.rerun, e.requested, e.secondLook = "", 0, 0
	if e.state != running {
		e.state = unplanned
	}
	s.notifyDependents(e) // objects that need it may have waited for it
}

// dequeue removes e from the queue for slots, if it is there.
func (s *Server) dequeue(e *entry) {
	if e.waiter != nil {
		s.runs.remove(e.waiter)
		e.waiter = nil
	}
}

// dispatch starts the entries that are due and get a slot. It is called after each change of plans or slots.
func (s *Server) dispatch() {
	if s.ctx.Err() != nil { // after the end no goroutine begins any more
		return
	}
	for _, e := range s.pending {
		switch {
		case e.state != planned || e.due > s.clock(): // its plan has changed
		case e.removed != nil:
			e.state = unplanned
			removed := e.removed
			s.work.Go(func() { s.deleteRemoved(e, removed) })
		default:
			s.queueOrBlock(e)
		}
	}
	s.pending = nil
	s.runs.grant()
}

// queueOrBlock queues e, which is due, for a slot of its host, or blocks it while an input is due or under way.
func (s *Server) queueOrBlock(e *entry) {
	before := e.state
	if e.state = queued; len(s.blockers(e)) > 0 {
		e.state = blocked
	}
	if e.state != before {
		s.markChanged(e)
	}
	if e.state == blocked || e.waiter != nil && e.waiter.host != e.host {
		s.dequeue(e)
	}
	if e.state == queued && e.waiter == nil {
		e.waiter = &waiter{e.host, func() { s.start(e) }}
		s.runs.add(e.waiter)
	}
}

// maxDue is later than any due time: a quarter of what a clock can count, so that
// sums of due times do not overflow.
const maxDue = time.Duration(math.MaxInt64) / 4

// dueAfter returns the time d after t, maxDue at most.
func dueAfter(t, d time.Duration) time.Duration { return min(t, maxDue) + min(d, maxDue) }

// Objects with the same tickKey have the same ticks.
type tickKey struct {
	upstream string
	interval time.Duration
}

func (e *entry) tickKey() tickKey { return tickKey{e.upstream, min(e.obj.Interval(), maxDue)} }

// nextTick returns the first tick of e after now. Ticks are counted from the first run of an object with the same key. They
// are counted from a random time before now if e has not run since the server began, or if there are more objects than
// can run at a time: otherwise all would be due together.
func (s *Server) nextTick(e *entry, now time.Duration) time.Duration {
	key := e.tickKey()
	first, known := s.ticks[key]
	if !known {
		first = now
		if e.last.Number == 0 || len(s.entries) > s.runs.total {
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

// backOff returns the delay after a number of failures in a row, 1 or more: it doubles with each, up to limit. The delay
// varies at the limit too, so that objects that failed together do not retry together for ever.
func backOff(failures int, base, limit time.Duration, jitter float64) time.Duration {
	wait := float64(base) * math.Exp2(float64(failures-1)) * (1 + jitter*(2*rand.Float64()-1))
	return time.Duration(min(wait, float64(limit)*(1-jitter*rand.Float64())))
}

// slots limit the work that is done at the same time. The waiters of one host get slots in the order in which they came.
// Of several hosts the one with the fewest slots is next, and of those the one that has waited longest.
//
// Hosts that hang do not hold up others: a host has at most each slots, and at most twice as many as are free, so that
// the last slots go to hosts that have few. Hosts whose last run failed have at most half of all slots together.
type slots struct {
	total, perHost int
	failedHosts    map[string]bool // hosts whose last run failed
	taken          int
	serial         uint64 // orders queues by when they began to wait
	queues         map[string]*queue
}

// A queue is the waiters of one host.
type queue struct {
	waiting []*waiter
	taken   int
	since   uint64 // serial of when it began to wait, or got its last slot
}

// A waiter waits for a slot of a host.
type waiter struct {
	host  string
	start func() // is called when the waiter gets the slot
}

// add appends a waiter to the queue of its host.
func (s *slots) add(t *waiter) {
	l := s.queues[t.host]
	if l == nil {
		l = new(queue)
		s.queues[t.host] = l
	}
	if len(l.waiting) == 0 {
		s.serial++
		l.since = s.serial
	}
	l.waiting = append(l.waiting, t)
}

// remove removes a waiter from the queue of its host, and reports whether it was there.
func (s *slots) remove(t *waiter) bool {
	l := s.queues[t.host]
	if l == nil {
		return false
	}
	before := len(l.waiting)
	l.waiting = slices.DeleteFunc(l.waiting, func(other *waiter) bool { return other == t })
	return len(l.waiting) < before
}

// grant gives slots to waiters until no slot is free or no host with a waiter may have another.
func (s *slots) grant() {
	for {
		free, failing := s.total-s.taken, 0
		for host := range s.failedHosts {
			if l := s.queues[host]; l != nil {
				failing += l.taken
			}
		}
		var best *queue
		for host, l := range s.queues {
			switch {
			case len(l.waiting) == 0 && l.taken == 0:
				delete(s.queues, host)
			case len(l.waiting) == 0 || l.taken >= min(s.perHost, 2*free):
			case s.failedHosts[host] && failing >= max(s.total/2, 1):
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
		next.start()
	}
}

// release returns a slot of a host.
func (s *slots) release(host string) {
	s.queues[host].taken--
	s.taken--
}

// admit waits for a slot to fetch content from a host. The caller calls end to return the slot.
func (s *Server) admit(ctx context.Context, host string) (end func(), err error) {
	granted := make(chan struct{})
	t := &waiter{host, func() { close(granted) }}
	s.mu.Lock()
	s.fetches.add(t)
	s.fetches.grant()
	s.mu.Unlock()
	end = func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.fetches.release(host)
		s.fetches.grant()
	}
	select {
	case <-granted:
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

// link sets inputs and dependents of all entries. Where entries need each other in a circle [source.Order] leaves one
// dependency out, so that none waits for ever; the run of each then finds the circle and names it (see [source.Needed]).
func (s *Server) link() {
	var live []*entry
	var objects []source.Object
	for _, e := range s.sorted {
		if e.inputs, e.dependents = nil, nil; e.removed == nil {
			live, objects = append(live, e), append(objects, e.obj)
		}
	}
	for i, before := range source.Order(objects) {
		for _, j := range before {
			live[i].inputs = append(live[i].inputs, live[j])
			live[j].dependents = append(live[j].dependents, live[i])
		}
	}
}

// blockers returns the inputs that e, which is due, waits for: those that are due or under way. An input that has run
// since e became due does not block it again: an input that is requested without pause would block e for ever.
func (s *Server) blockers(e *entry) (refs []source.Reference) {
	for _, b := range e.inputs {
		pending := b.state >= queued || b.state == planned && b.due <= s.clock()
		if pending && (b.last.Number == 0 || b.began < e.due) {
			refs = append(refs, b.ref)
		}
	}
	return refs
}

// inputVersions returns a text that differs when an artifact, the generation or the readiness of an input of e has changed, or
// when an input was added or removed.
func inputVersions(e *entry) string {
	var text strings.Builder
	for _, b := range e.inputs {
		fmt.Fprintln(&text, b.ref, b.obj.Head().Metadata.Generation, b.obj.Common().Condition(source.ReadyCondition).Status)
		if a := b.obj.Artifact(); a != nil {
			fmt.Fprintln(&text, a.Digest, a.Revision)
			if b.foreign { // its file may have been missing at its URL, and be available again
				fmt.Fprintln(&text, a.URL, a.LastUpdateTime)
			}
		}
	}
	return text.String()
}

// notifyDependents is called when e has changed. An entry that needs e runs if its last run saw e otherwise; one that is blocked may
// be queued now.
func (s *Server) notifyDependents(e *entry) {
	for _, a := range e.dependents {
		if inputVersions(a) != a.inputVersions {
			s.enqueue(a, Input, 0)
		}
		if a.state == blocked {
			s.queueOrBlock(a)
		}
	}
}

// setUpstream sets upstream and host of e. A chart has the upstream and host of its source. An object whose address is not a
// URL has its own upstream, and no host.
func (s *Server) setUpstream(e *entry) {
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
				s.setUpstream(from)
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
