package traffic

import (
	"math"
	"math/bits"
	"sync"
	"time"
)

// span is how far back measurements reach, in seconds.
const span = 3600

// A window counts the requests to an upstream, second by second. It needs at
// most 6 MB, when there were requests in every second of the hour.
type window struct {
	mu      sync.Mutex
	epoch   int
	seconds [span]*second
	total   Counts
}

// Counts are of the requests to an upstream since the proxy began.
type Counts struct {
	Requests int64 // that have ended
	Failed   int64 // with a status of 500 and above, without an answer, or one that broke off
	Gone     int64 // whose clients left before there was an answer; the requests that did not fail include them
}

// A second has the requests that ended in one second.
type second struct {
	at       int64 // since 1970
	requests uint32
	failed   uint32
	gone     uint32
	took     histogram
}

func (w *window) now() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.epoch
}

// reset forgets the seconds, and what is still to end of before.
func (w *window) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.epoch++
	w.seconds = [span]*second{}
}

func (w *window) record(f *flight) {
	failed := f.broken || f.status >= 500
	w.mu.Lock()
	defer w.mu.Unlock()
	w.total.Requests++
	w.total.Failed += one(failed)
	w.total.Gone += one(f.gone)
	if f.epoch != w.epoch {
		return
	}
	s := w.at(f.ended.Unix())
	s.requests++
	s.failed += uint32(one(failed))
	s.gone += uint32(one(f.gone))
	s.took.add(f.ended.Sub(f.began))
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// at returns the second for counting in.
func (w *window) at(t int64) *second {
	i := int(uint64(t) % span)
	s := w.seconds[i]
	if s == nil {
		s = new(second)
		w.seconds[i] = s
	}
	if s.at != t {
		*s = second{at: t}
	}
	return s
}

// sum returns what ended in the last seconds before now, the one that runs included.
func (w *window) sum(now int64, seconds int) second {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all second
	for _, s := range w.seconds {
		if s == nil || s.at > now || s.at <= now-int64(seconds) {
			continue
		}
		all.requests += s.requests
		all.failed += s.failed
		all.gone += s.gone
		for i, n := range s.took {
			all.took[i] += n
		}
	}
	return all
}

// unit is what the histogram counts time in: a sixteenth of a millisecond.
const unit = time.Millisecond / 16

// A histogram counts durations up to 70 minutes in classes that are at most a
// sixteenth of their value wide.
type histogram [23 * 16]uint32

func (h *histogram) add(d time.Duration) {
	v := uint64(max(0, d)) / uint64(unit)
	i := int(v)
	if v >= 16 {
		shift := bits.Len64(v) - 5
		i = shift*16 + int(v>>shift)
	}
	h[min(i, len(h)-1)]++
}

// bounds returns the lower bound of a class and its width, in units.
func bounds(i int) (lower, width float64) {
	if i < 32 {
		return float64(i), 1
	}
	shift := i/16 - 1
	return math.Ldexp(float64(i%16+16), shift), math.Ldexp(1, shift)
}

// quantile returns the duration that the part q of all does not exceed,
// interpolated within its class. There is at least one.
func (h *histogram) quantile(q float64) time.Duration {
	var n uint64
	for _, c := range h {
		n += uint64(c)
	}
	rank := q * float64(n)
	before := 0.0
	for i, c := range h {
		if c > 0 && before+float64(c) >= rank {
			lower, width := bounds(i)
			return time.Duration((lower + width*(rank-before)/float64(c)) * float64(unit))
		}
		before += float64(c)
	}
	return 0
}
