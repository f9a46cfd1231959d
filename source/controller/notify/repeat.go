package notify

import (
	"crypto/sha256"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

// lastEvents remembers the last event of each object, so that it is not repeated.
type lastEvents struct {
	repeat time.Duration

	mu    sync.Mutex
	of    map[source.ObjectReference]lastEvent
	sweep int // number of objects at which those are forgotten that said nothing for long
}

type lastEvent struct {
	sum [sha256.Size]byte
	at  time.Time
}

const firstSweep = 1024

// repeats reports whether e equals the last event of its object and comes soon after it. If it
// does not, e is the last now.
func (l *lastEvents) repeats(e *source.Event) bool {
	sum, now := identity(e), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.of[e.InvolvedObject]
	if known && last.sum == sum && now.Sub(last.at) < l.repeat {
		return true
	}
	if l.of == nil {
		l.of, l.sweep = make(map[source.ObjectReference]lastEvent), firstSweep
	}
	l.of[e.InvolvedObject] = lastEvent{sum, now}
	if len(l.of) >= l.sweep {
		for object, last := range l.of {
			if now.Sub(last.at) >= l.repeat {
				delete(l.of, object)
			}
		}
		l.sweep = max(firstSweep, 2*len(l.of))
	}
	return false
}

// identity returns what makes two events of an object equal.
func identity(e *source.Event) [sha256.Size]byte {
	parts := []string{e.Severity, e.Reason, e.Message}
	for _, key := range []string{"/revision", "/digest"} {
		for name, value := range e.Metadata {
			if strings.HasPrefix(name, source.ReferenceGroup) && strings.HasSuffix(name, key) {
				parts = append(parts, key, value)
			}
		}
	}
	text, _ := json.Marshal(parts) // so that no part runs into the next
	return sha256.Sum256(text)
}
