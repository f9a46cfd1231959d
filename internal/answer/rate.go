package answer

import (
	"sync"
	"time"
)

const (
	burst  = 20 // lines at once
	period = 2 * time.Second
)

// A Rate bounds how often something is said that callers can cause: 20 times
// at once and every 2 seconds after that. Its zero value is ready.
type Rate struct {
	mu         sync.Mutex
	full       time.Time // when all of the burst may be said again
	suppressed int
}

// Allow reports whether it may be said now, and how often it was not since it
// was the last time.
func (l *Rate) Allow(now time.Time) (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := now
	if l.full.After(now) {
		next = l.full
	}
	if next = next.Add(period); next.Sub(now) > burst*period {
		l.suppressed++
		return 0, false
	}
	l.full = next
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}
