package server

import (
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/answer"
	"github.com/headgate-io/headgate/internal/listen"
)

const (
	rateBurst    = 4       // seconds of requests that may come at once
	maxAddresses = 100_000 // that are counted apart
)

// rates bound how often the clients of one address come: each address has a
// bucket of tokens, that of IPv6 is the /64 it is in. There is no more than one
// address to a client: what it says in headers counts for nothing, so behind a
// proxy all clients are one. The nil rates bound nothing.
//
// When too many addresses come at a time, those beyond share one bucket.
type rates struct {
	period time.Duration // of a token

	mu     sync.Mutex
	full   map[netip.Prefix]time.Time // when a bucket will be full again
	others time.Time                  // likewise, of those that share
	swept  time.Time
}

// newRates returns the rates of so many requests a second, nil for no limit.
func newRates(perSecond float64) *rates {
	if perSecond <= 0 {
		return nil
	}
	period := time.Duration(max(1, min(float64(time.Second)/perSecond, float64(time.Hour))))
	return &rates{period: period, full: make(map[netip.Prefix]time.Time)}
}

// check returns the refusal of a request that came too early, with the header
// Retry-After. Those of the socket may come as often as they like.
func (l *rates) check(w http.ResponseWriter, r *http.Request) error {
	if l == nil || listen.Trusted(r) {
		return nil
	}
	wait := l.take(listen.Network(r.RemoteAddr), time.Now())
	if wait <= 0 {
		return nil
	}
	w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
	return answer.Refuse(http.StatusTooManyRequests, "too many requests of this address: come again in %d s", int(math.Ceil(wait.Seconds())))
}

// take takes a token, or returns how long there will be none.
func (l *rates) take(from netip.Prefix, now time.Time) time.Duration {
	depth := max(l.period, rateBurst*time.Second)
	l.mu.Lock()
	defer l.mu.Unlock()
	full, known := l.full[from]
	if !known && len(l.full) >= maxAddresses {
		l.sweep(now, depth)
	}
	apart := known || len(l.full) < maxAddresses
	if !apart {
		full = l.others
	}
	if full.Before(now) {
		full = now
	}
	full = full.Add(l.period)
	if wait := full.Sub(now) - depth; wait > 0 {
		return wait
	}
	if apart {
		l.full[from] = full
	} else {
		l.others = full
	}
	return 0
}

// sweep forgets the addresses whose buckets are full, not more often than
// buckets take to fill.
func (l *rates) sweep(now time.Time, depth time.Duration) {
	if now.Sub(l.swept) < depth {
		return
	}
	l.swept = now
	for from, full := range l.full {
		if !full.After(now) {
			delete(l.full, from)
		}
	}
}
