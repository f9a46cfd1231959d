package gate

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

const (
	flushAfter  = 2 * time.Second  // that a visit began or ended is on disk
	renewWithin = 10 * time.Second // what is on disk of the last check is not older
	staleEvery  = time.Second      // how often stale visits are looked for
	minInterval = time.Second      // several callers may ask at nearly the same time
)

// A visit is a canary that waits, or one that asked a rollback switch. But for
// the times of checks, and what follows from them, it is never changed.
type visit struct {
	since           time.Time
	phase, checksum string
	about           api.About
	last            atomic.Int64 // nanoseconds since 1970
	saved           atomic.Int64 // the last that is on disk
	interval        atomic.Int64 // the longest time between two checks, nanoseconds; 0 after the first
	told            atomic.Bool  // watchers were told that it is stale
}

func (v *visit) latest() time.Time { return time.Unix(0, v.last.Load()).UTC() }

// idle reports whether nothing was heard of it for too long.
func (v *visit) idle(now time.Time, limit time.Duration) bool { return now.Sub(v.latest()) > limit }

// stale reports whether it was not asked for again within two intervals: its
// caller does not ask any more.
func (v *visit) stale(now time.Time) bool {
	interval := time.Duration(v.interval.Load())
	return interval > 0 && now.Sub(v.latest()) > 2*max(interval, minInterval)
}

// renew notes another check, and reports whether watchers were told that the
// visit is stale.
func (v *visit) renew(now time.Time) (wasStale bool) {
	v.observe(now.UnixNano() - v.last.Swap(now.UnixNano()))
	return v.told.Load() && v.told.CompareAndSwap(true, false)
}

// observe notes a time between two checks.
func (v *visit) observe(gap int64) {
	for {
		old := v.interval.Load()
		if gap <= old || v.interval.CompareAndSwap(old, gap) {
			return
		}
	}
}

// visits is what of them is to be written.
type visits struct {
	mu      sync.Mutex
	touched map[api.Key]*slot
	saved   map[api.Key]bool // that stand in the file; of the committer and of who evicts
	failed  error            // of the last write; of the committer

	observed atomic.Bool // some have an interval and may become stale
}

// arrive notes that a check of v was refused.
func (b *Book) arrive(k api.Key, s *slot, v Visitor, now time.Time) error {
	if v.Trial {
		return v.check()
	}
	var old *visit
	if s != nil {
		old = s.visit.Load()
	}
	if old != nil && old.phase == v.Phase && old.checksum == v.Checksum && old.about == v.About && !old.idle(now, b.config.Idle) {
		if old.renew(now) {
			b.watched.notify(k)
		}
		b.observed()
		if now.UnixNano()-old.saved.Load() > int64(renewWithin) {
			old.saved.Store(now.UnixNano())
			b.touch(k, s)
		}
		return nil
	}
	if err := v.check(); err != nil {
		return err
	}
	next := &visit{since: now, phase: strings.Clone(v.Phase), checksum: strings.Clone(v.Checksum), about: v.About}
	next.last.Store(now.UnixNano())
	next.saved.Store(now.UnixNano())
	if s == nil {
		k = clone(k)
		fresh := false
		if s, fresh = b.insert(k, next); fresh {
			b.touch(k, s)
			b.watched.notify(k)
			return nil
		}
		old = s.visit.Load()
	}
	if old != nil && !old.idle(now, b.config.Idle) {
		next.interval.Store(old.interval.Load())
		if old.checksum == v.Checksum {
			next.since = old.since
			next.observe(now.UnixNano() - old.last.Load())
		}
		b.observed()
	}
	if s.visit.CompareAndSwap(old, next) { // else another check was faster
		b.touch(k, s)
		b.watched.notify(k)
	}
	return nil
}

// leave notes that a check of v passed: it waits no more, and nobody does at a
// gate that is open for all.
func (b *Book) leave(k api.Key, s *slot, v Visitor, all bool) {
	if s == nil {
		return
	}
	old := s.visit.Load()
	if old == nil || !all && old.checksum != v.Checksum || !s.visit.CompareAndSwap(old, nil) {
		return
	}
	b.touch(k, s)
	b.watched.notify(k)
}

// EndWaits ends the waits of a canary whose rollout is over, except that at the
// gate of a key: its caller asks about the next rollout.
func (b *Book) EndWaits(namespace, name string, except api.Key) {
	except = named(except)
	b.mu.RLock()
	defer b.mu.RUnlock()
	for k, s := range b.slots {
		if k.Kind != api.KindGate || k.Namespace != namespace || k.Name != name || k == except {
			continue
		}
		if v := s.visit.Load(); v != nil && s.visit.CompareAndSwap(v, nil) {
			b.touch(k, s)
			b.watched.notify(k)
		}
	}
}

// observed has the committer look for stale visits.
func (b *Book) observed() {
	if !b.visits.observed.Load() && b.visits.observed.CompareAndSwap(false, true) {
		b.queue.poke()
	}
}

// tellStale tells watchers of visits that have become stale, and reports whether
// others may.
func (b *Book) tellStale(now time.Time) (more bool) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	for k, s := range b.slots {
		v := s.visit.Load()
		if v == nil || v.interval.Load() == 0 || v.told.Load() {
			continue
		}
		if v.stale(now) {
			v.told.Store(true)
			if !v.stale(now) { // it was asked for meanwhile
				v.told.Store(false)
			}
			b.watched.notify(k)
		}
		more = more || !v.told.Load()
	}
	return more
}

// touch has the visit of a slot written, or removed, soon.
func (b *Book) touch(k api.Key, s *slot) {
	b.visits.mu.Lock()
	first := len(b.visits.touched) == 0
	b.visits.touched[k] = s
	b.visits.mu.Unlock()
	if first {
		b.queue.poke()
	}
}

// insert returns the slot of a key, a new one with the visit unless somebody was
// faster. When there are too many that nobody decided about, the longest idle go.
func (b *Book) insert(k api.Key, v *visit) (s *slot, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := b.slots[k]; s != nil {
		return s, false
	}
	if len(b.slots)-b.decided >= b.config.MaxKeys {
		b.evict()
	}
	s = new(slot)
	s.visit.Store(v)
	b.slots[k] = s
	return s, true
}

// evict forgets a tenth of the gates that nobody decided about.
func (b *Book) evict() {
	type idle struct {
		key  api.Key
		last int64
	}
	var all []idle
	for k, s := range b.slots {
		if s.state.Load() != nil {
			continue
		}
		at := int64(0)
		if v := s.visit.Load(); v != nil {
			at = v.last.Load()
		}
		all = append(all, idle{k, at})
	}
	slices.SortFunc(all, func(x, y idle) int { return cmp.Compare(x.last, y.last) })
	b.visits.mu.Lock()
	defer b.visits.mu.Unlock()
	for _, x := range all[:min(len(all), b.config.MaxKeys/10+1)] {
		delete(b.slots, x.key)
		delete(b.visits.touched, x.key)
		if b.visits.saved[x.key] {
			b.visits.touched[x.key] = new(slot)
		}
		b.watched.notify(x.key)
	}
}

// A savedVisit is a visit as it stands in the file.
type savedVisit struct {
	Since    time.Time     `json:"since"`
	Last     time.Time     `json:"last"`
	Interval time.Duration `json:"interval,omitempty"`
	Phase    string        `json:"phase,omitempty"`
	Checksum string        `json:"checksum,omitempty"`
	api.About
}

func parseVisit(text []byte) (*visit, error) {
	var saved savedVisit
	if err := json.Unmarshal(text, &saved); err != nil {
		return nil, err
	}
	v := &visit{since: saved.Since, phase: saved.Phase, checksum: saved.Checksum, about: saved.About}
	v.last.Store(saved.Last.UnixNano())
	v.saved.Store(saved.Last.UnixNano())
	v.interval.Store(int64(saved.Interval))
	return v, nil
}

// leftIdle ends the visits that nothing was heard of for too long, and forgets
// the gates about which nothing else is known.
func (b *Book) leftIdle(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, s := range b.slots {
		v := s.visit.Load()
		if v != nil && v.idle(now, b.config.Idle) && s.visit.CompareAndSwap(v, nil) {
			b.touch(k, s)
			b.watched.notify(k)
			v = nil
		}
		if v == nil && s.state.Load() == nil {
			delete(b.slots, k)
		}
	}
}
