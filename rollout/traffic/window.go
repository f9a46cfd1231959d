package traffic

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// windowSeconds is how far back the measurements reach, in seconds.
const windowSeconds = 3600

// A window counts the requests to the canary per second. It needs at most 6 MB, if
// there were requests in every second of the hour.
type window [windowSeconds]*secondCounts

// secondCounts counts the requests that ended in one second.
type secondCounts struct {
	at       int64 // since 1970
	requests int64
	failed   int64 // status 500 and above, no answer, or an incomplete answer
	gone     int64 // the client disconnected before the answer; not among the failed requests
	took     histogram
}

func (w *window) count(x *exchange) {
	at := x.ended.Unix()
	s := &w[uint64(at)%windowSeconds]
	if *s == nil || (*s).at != at {
		*s = &secondCounts{at: at}
	}
	c := *s
	c.requests++
	if x.broken || x.status >= 500 {
		c.failed++
	}
	if x.gone {
		c.gone++
	}
	c.took.add(x.ended.Sub(x.began))
}

// sum returns the counts of the last seconds up to now, including the current second.
func (w *window) sum(now int64, seconds int) (all secondCounts) {
	for _, s := range w {
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

// unit is the unit of the histogram: a sixteenth of a millisecond.
const unit = time.Millisecond / 16

// A histogram counts durations up to 75 minutes in classes. The bounds of the
// classes grow by a factor of 2^(1/16).
type histogram [420]uint32

func (h *histogram) add(d time.Duration) {
	i := int(16 * math.Log2(1+float64(max(0, d))/float64(unit)))
	h[min(i, len(h)-1)]++
}

// lowerBound returns the lower bound of a class, in units.
func lowerBound(class int) float64 { return math.Exp2(float64(class)/16) - 1 }

// quantile returns the duration that the fraction q of n durations does not exceed,
// interpolated within its class.
func (h *histogram) quantile(q float64, n int64) time.Duration {
	rank, before := q*float64(n), 0.0
	for i, c := range h {
		if c > 0 && before+float64(c) >= rank {
			return time.Duration((lowerBound(i) + (lowerBound(i+1)-lowerBound(i))*(rank-before)/float64(c)) * float64(unit))
		}
		before += float64(c)
	}
	return 0
}

// Query returns [rollout.SuccessRate] or [rollout.RequestDuration] of the canary
// in the last interval of the metric, by default a minute and at most an hour. The
// rate excludes requests whose clients disconnected before the answer. The duration
// ends with the answer, for event streams and upgrades with its header.
//
// The error wraps [rollout.ErrTooEarly] if the proxy started with traffic at the
// canary less than [Proxy.Interval] ago, by default the interval of c, since earlier
// measurements are not known. It wraps [rollout.ErrNoValues] if no request to the
// canary ended in the interval. Other metrics are passed to [Proxy.Next].
func (p *Proxy) Query(ctx context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	if err := p.setUp(); err != nil {
		return 0, err
	}
	if p.Next != nil && !m.Builtin() {
		return p.Next.Query(ctx, c, m)
	}
	interval, minUptime := cmp.Or(time.Duration(m.Interval), time.Minute), p.Interval
	if minUptime == 0 && c != nil {
		minUptime = c.Interval()
	}
	switch {
	case !m.Builtin():
		return 0, fmt.Errorf("metric %q: the proxy measures only %s and %s", m.Name, rollout.SuccessRate, rollout.RequestDuration)
	case interval > windowSeconds*time.Second:
		return 0, fmt.Errorf("metric %s: interval: the proxy remembers an hour", m.Name)
	case !p.resumed.IsZero() && p.Now().Sub(p.resumed) < minUptime:
		return 0, fmt.Errorf("%w: the proxy began less than %s ago", rollout.ErrTooEarly, minUptime)
	}
	now, seconds := p.Now().Unix(), int((interval+time.Second-1)/time.Second)
	p.mu.Lock()
	s := p.window.sum(now, seconds)
	p.mu.Unlock()
	answered := s.requests - s.gone
	switch {
	case m.Name == rollout.SuccessRate && answered > 0:
		return 100 * float64(answered-s.failed) / float64(answered), nil
	case m.Name == rollout.RequestDuration && s.requests > 0:
		return float64(s.took.quantile(0.99, s.requests) / time.Millisecond), nil
	}
	return 0, fmt.Errorf("%w for metric %s: no request to the canary ended in the last %s", rollout.ErrNoValues, m.Name, interval)
}
