package notify

import (
	"fmt"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/rollout"
)

// A DeliveryError says why an event did not reach a receiver.
type DeliveryError struct {
	Receiver string // as in: webhook "events", alert provider default/slack
	Event    rollout.Event
	Lost     bool // it is given up; otherwise it is tried again
	Err      error
}

func (e *DeliveryError) Error() string {
	then := "it is tried again"
	if e.Lost {
		then = "it is lost"
	}
	return fmt.Sprintf("tell %s of event %d (%s), %s: %v", e.Receiver, e.Event.Sequence, e.Event.Code, then, e.Err)
}

func (e *DeliveryError) Unwrap() error { return e.Err }

// A LostError says how many events did not reach a receiver.
type LostError struct {
	Receiver string
	Events   int   // at least 1
	Err      error // why the last of them did not
}

func (e *LostError) Error() string {
	what := fmt.Sprintf("%d events are", e.Events)
	if e.Events == 1 {
		what = "1 event is"
	}
	return fmt.Sprintf("tell %s: %s lost, the last because: %v", e.Receiver, what, e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

func lostError(l deliver.Loss) *LostError {
	return &LostError{Receiver: l.Receiver, Events: l.Items, Err: l.Err}
}
