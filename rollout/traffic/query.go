package traffic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// values are the metrics that the proxy knows, of requests to the canary.
var values = map[string]func(second) (value float64, ok bool){
	// Percent of the requests that did not fail. Those whose clients left
	// before there was an answer say nothing about it.
	"request-success-rate": func(s second) (float64, bool) {
		n := s.requests - s.gone
		return 100 * float64(n-s.failed) / float64(max(n, 1)), n > 0
	},
	// The duration in whole milliseconds that 99 % of the requests stay below,
	// to the end of the answer; to its header for event streams and upgrades. A
	// client that left is counted with the time that it waited.
	"request-duration": func(s second) (float64, bool) {
		return float64(s.took.quantile(0.99) / time.Millisecond), s.requests > 0
	},
}

// Query returns request-success-rate or request-duration of the canary in the
// interval of the metric before now, by default a minute and at most an hour.
// The error wraps [rollout.ErrTooEarly] when the proxy began with traffic at the
// canary less than [Proxy.Interval], or else the interval of c, ago, as what was measured before that is not
// known, and else [rollout.ErrNoValues] when no request to the canary ended in it.
func (p *Proxy) Query(_ context.Context, c *rollout.Canary, m rollout.Metric) (float64, error) {
	if err := p.setUp(); err != nil {
		return 0, err
	}
	value, ok := values[m.Name]
	if !ok || m.Query != "" || m.TemplateRef != nil {
		return 0, fmt.Errorf("metric %q: the proxy knows request-success-rate and request-duration alone", m.Name)
	}
	interval := or(time.Duration(m.Interval), time.Minute)
	if interval > span*time.Second {
		return 0, fmt.Errorf("metric %s: interval: the proxy remembers an hour", m.Name)
	}
	seconds := int((interval + time.Second - 1) / time.Second)
	least := p.Interval
	if least == 0 && c != nil {
		least = c.Interval()
	}
	if !p.resumed.IsZero() && p.now().Sub(p.resumed) < least {
		return 0, fmt.Errorf("%w: the proxy began less than %s ago", rollout.ErrTooEarly, least)
	}
	v, ok := value(p.ends[canary].window.sum(p.now().Unix(), seconds))
	if !ok {
		return 0, fmt.Errorf("%w for metric %s: no request to the canary ended in the last %s", rollout.ErrNoValues, m.Name, interval)
	}
	return v, nil
}

// Metrics returns metrics that the proxy answers as far as it knows them: see
// [Proxy.Query]. Others are for next, which may be nil.
func (p *Proxy) Metrics(next rollout.Metrics) rollout.Metrics { return measured{p, next} }

type measured struct {
	proxy *Proxy
	next  rollout.Metrics
}

func (m measured) Query(ctx context.Context, c *rollout.Canary, metric rollout.Metric) (float64, error) {
	_, known := values[metric.Name]
	if known && metric.Query == "" && metric.TemplateRef == nil {
		return m.proxy.Query(ctx, c, metric)
	}
	if m.next == nil {
		return 0, fmt.Errorf("metric %q: %w", metric.Name, errNoProvider)
	}
	return m.next.Query(ctx, c, metric)
}

var errNoProvider = errors.New("there is no provider for it: the proxy knows request-success-rate and request-duration alone")

// Stats are what a proxy did.
type Stats struct {
	Primary, Canary Counts
	Running         [2]int // requests of the primary and the canary that run
	MirrorsLeftOut  int64  // copies that were not made: too many, too large, or the body did not arrive
}

// Stats returns what the proxy did so far.
func (p *Proxy) Stats() Stats {
	if p.setUp() != nil {
		return Stats{}
	}
	b := &p.balance
	b.mu.Lock()
	running := b.running
	b.mu.Unlock()
	return Stats{p.ends[primary].window.counts(), p.ends[canary].window.counts(), running, p.copies.left.Load()}
}

func (w *window) counts() Counts {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.total
}
