package serve

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/source"
)

// RepeatedKey is the key of event metadata that says how many events that equal
// the last one of the object were not told before this one.
const RepeatedKey = "event.headgate.dev/repeated"

// lastEvents remembers the last event of each object, so that it is not repeated.
type lastEvents struct {
	mu    sync.Mutex
	of    map[source.ObjectReference]lastEvent
	sweep int // number of objects at which those are forgotten that said nothing for long
}

type lastEvent struct {
	sum [sha256.Size]byte
	at  time.Time
	n   int // how often it was repeated
}

const firstSweep = 1024

// repeats reports whether e equals the last event of its object and comes within
// a time of it. If it does not, e is the last now, and tells how many did. Events
// of severity trace are neither.
func (l *lastEvents) repeats(e *source.Event, within time.Duration) bool {
	if e.Severity == "trace" {
		return false
	}
	sum, now := identity(e), time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.of[e.InvolvedObject]
	if known && last.sum == sum && now.Sub(last.at) < within {
		last.n++
		l.of[e.InvolvedObject] = last
		return true
	}
	if last.n > 0 {
		e.Metadata = maps.Clone(e.Metadata)
		if e.Metadata == nil {
			e.Metadata = make(map[string]string)
		}
		e.Metadata[RepeatedKey] = strconv.Itoa(last.n)
	}
	if l.of == nil {
		l.of, l.sweep = make(map[source.ObjectReference]lastEvent), firstSweep
	}
	l.of[e.InvolvedObject] = lastEvent{sum, now, 0}
	if len(l.of) >= l.sweep {
		maps.DeleteFunc(l.of, func(_ source.ObjectReference, last lastEvent) bool { return now.Sub(last.at) >= within })
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
