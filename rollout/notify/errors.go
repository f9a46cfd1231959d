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

// A LostError says how many events did not reach a receiver, and why the last of them did not.
// It has the fields
//
//	Receiver string
//	Events   int   // at least 1
//	Err      error // why the last of them did not, which Unwrap returns
type LostError = deliver.LostError
