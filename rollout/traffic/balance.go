package traffic

import (
	"context"
	"fmt"
	"sync"

	"github.com/headgate-io/headgate/rollout"
)

// An end is one of the two upstreams.
type end int

const (
	primary end = iota
	canary
)

// stride turns a count into a sequence that visits each of 0 … 99 once in any
// 100 steps, evenly in shorter runs as well: it is the golden section of 100
// and has no divisor in common with it. Requests that come in a fixed pattern
// do not all fall on one side, as they would when every second were taken.
const stride = 61

// chosen reports whether turn is among the weight percent.
func chosen(turn uint64, weight int) bool { return int(turn%100*stride%100) < weight }

// A balance divides requests, and knows which of them run.
type balance struct {
	mu      sync.Mutex
	routes  rollout.Routes
	turn    uint64 // of requests that the weights are for
	copies  uint64 // of requests that are mirrored
	running [2]int
	flights map[*flight]struct{} // to the canary
	idle    chan struct{}        // closed when the canary has no request; nil when nobody waits
	drains  int                  // how often it was waited for in vain
}

// set changes the routes and reports whether the canary gets requests now that
// got none before.
func (b *balance) set(r rollout.Routes) (begins bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	begins = !serves(b.routes) && serves(r)
	b.routes = r
	return begins
}

func serves(r rollout.Routes) bool { return r.Canary > 0 || r.Mirrored }

func (b *balance) now() rollout.Routes {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.routes
}

// begin decides where f goes, and whether a copy of it is wanted. Counted is
// whether the weights are for it.
func (b *balance) begin(f *flight, counted bool, mirror int) (wanted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if counted {
		if chosen(b.turn, b.routes.Canary) {
			f.to = canary
		}
		b.turn++
		if b.routes.Mirrored && f.to == primary {
			wanted = chosen(b.copies, mirror)
			b.copies++
		}
	}
	b.add(f)
	return wanted
}

// beginCopy is begin of a copy. It reports false when routes do not mirror any more.
func (b *balance) beginCopy(f *flight) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.routes.Mirrored {
		return false
	}
	f.to = canary
	b.add(f)
	return true
}

func (b *balance) add(f *flight) {
	b.running[f.to]++
	if f.to == canary {
		b.flights[f] = struct{}{}
	}
}

func (b *balance) done(f *flight) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.running[f.to]--
	delete(b.flights, f)
	if f.to == canary && b.running[canary] == 0 && b.idle != nil {
		close(b.idle)
		b.idle = nil
	}
}

// drain waits until the canary has no request.
func (b *balance) drain(ctx context.Context) error {
	for {
		n, idle := b.wait()
		if n == 0 {
			return nil
		}
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("drain the canary: %d of its requests still run: %w", n, context.Cause(ctx))
		}
	}
}

func (b *balance) wait() (running int, idle <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.running[canary] > 0 && b.idle == nil {
		b.idle = make(chan struct{})
	}
	return b.running[canary], b.idle
}

// look notes how far the requests to the canary have come.
func (b *balance) look() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for f := range b.flights {
		f.seen = f.moves.Load()
	}
}

// patience is how often requests that go on are waited for.
const patience = 10

// endStalled ends what would never end by itself and, the last time, what still
// runs. It reports whether the canary has no other requests.
func (b *balance) endStalled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains++
	all := true
	for f := range b.flights {
		if b.drains >= patience || f.stalled() {
			f.end()
		} else {
			all = false
		}
	}
	return all
}

// stalled reports whether nothing bounds how long f still runs: there is no end
// to its answer, or none of its bodies went on since the balance looked.
func (f *flight) stalled() bool {
	return f.endless.Load() || !f.asked.Load() && f.moves.Load() == f.seen
}

// drained says that the canary has no request.
func (b *balance) drained() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains = 0
}
