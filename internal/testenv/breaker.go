package testenv

import (
	"net/http"
	"sync"
)

// A breaker holds the defect of a server.
type breaker struct {
	done chan struct{} // closed when the server ends

	mu      sync.Mutex
	defect  *Defect
	hits    int
	stalls  int // since Break
	stalled <-chan struct{}
	stall   func()
}

func newBreaker(d *Defect) *breaker {
	b := &breaker{done: make(chan struct{})}
	b.Break(d)
	return b
}

// Break makes the server misbehave from now on, nil makes it serve well again.
// The channel is closed when a [Stall] has begun.
func (b *breaker) Break(d *Defect) (stalled <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.defect, b.hits, b.stalls = d, 0, 0
	began := make(chan struct{})
	once := sync.OnceFunc(func() { close(began) })
	b.stalled, b.stall = began, func() {
		b.mu.Lock()
		b.stalls++
		b.mu.Unlock()
		once()
	}
	return began
}

// Stalls returns how many answers stalled since [breaker.Break], and whether
// the server has a defect that makes them: [Stall], or [Slow].
func (b *breaker) Stalls() (begun int, expected bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalls, b.defect != nil && (b.defect.Do == Stall || b.defect.Do == Slow)
}

// Stalled returns a channel that is closed when a [Stall] has begun.
func (b *breaker) Stalled() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled
}

// met returns the defect that applies to a request of a phase, nil for none.
func (b *breaker) met(phase Phase) *Defect {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := b.defect
	if d == nil || d.Phase != "" && d.Phase != phase {
		return nil
	}
	if b.hits++; d.Times > 0 && b.hits > d.Times {
		return nil
	}
	return d
}

// spoil returns a writer of the answer that has the defect.
func (b *breaker) spoil(w http.ResponseWriter, r *http.Request, d Defect) http.ResponseWriter {
	b.mu.Lock()
	stall := b.stall
	b.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-b.done:
		case <-r.Context().Done():
		}
	}()
	f := &faultyWriter{
		write:  w.Write,
		flush:  func() { http.NewResponseController(w).Flush() },
		abort:  func() { panic(http.ErrAbortHandler) },
		done:   done,
		stall:  stall,
		defect: d,
	}
	if d.After < 0 && d.Do != Flip && d.Do != Slow {
		f.over, f.flush = true, func() {}
		f.misbehave()
	}
	return &faultyResponse{w, f}
}

type faultyResponse struct {
	http.ResponseWriter
	body *faultyWriter
}

func (r *faultyResponse) Write(b []byte) (int, error) { return r.body.Write(b) }
