package notify

import "github.com/headgate-io/headgate/rollout"

const (
	maxQueued     = 256     // events that wait for one receiver
	maxQueuedSize = 4 << 20 // bytes of their text
)

// A queue holds what a receiver is to be told, in order.
type queue struct {
	events []rollout.Event
	size   int // bytes
}

// push appends event, and returns how many events it had to drop for it,
// which may be the new one: the oldest of the least severe, until one is left or
// the bounds are kept.
func (q *queue) push(event rollout.Event) (dropped int) {
	q.events = append(q.events, event)
	q.size += size(&event)
	for len(q.events) > 1 && (len(q.events) > maxQueued || q.size > maxQueuedSize) {
		least := 0
		for i := range q.events {
			if rank[q.events[i].Alert] < rank[q.events[least].Alert] {
				least = i
			}
		}
		q.remove(least)
		dropped++
	}
	return dropped
}

// pop takes the oldest event.
func (q *queue) pop() (rollout.Event, bool) {
	if len(q.events) == 0 {
		return rollout.Event{}, false
	}
	event := q.events[0]
	q.remove(0)
	return event, true
}

func (q *queue) remove(i int) {
	q.size -= size(&q.events[i])
	copy(q.events[i:], q.events[i+1:])
	last := len(q.events) - 1
	q.events[last] = rollout.Event{}
	q.events = q.events[:last]
}

// size returns the bytes that event takes, more or less.
func size(e *rollout.Event) int {
	return 256 + len(e.Message) + len(e.Reason) + len(e.Hook) + len(e.Name) + len(e.Namespace) + len(e.Checksum)
}

// rank orders severities; events that are no alerts are below them.
var rank = map[rollout.Severity]int{rollout.Info: 1, rollout.Warn: 2, rollout.Error: 3}
