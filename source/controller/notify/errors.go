package notify

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/headgate-io/headgate/internal/deliver"
	"github.com/headgate-io/headgate/internal/retry"
	"github.com/headgate-io/headgate/source"
)

// A StatusError is an answer that is no success.
type StatusError struct {
	Code       int
	Text       string        // the beginning of the answer, fit to be shown
	Location   string        // the origin that a redirect names, "" for none
	RetryAfter time.Duration // that the receiver asked for, 0 when it did not
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("status %d %s", e.Code, http.StatusText(e.Code))
	if e.Location != "" {
		text += ", which leads to " + e.Location + ": give the receiver that URL"
	}
	if e.Text != "" {
		text += ": " + e.Text
	}
	return text
}

// judge says whether what err says may be gone at the next attempt, and how
// long the receiver asked to wait.
func judge(err error) (mends bool, after time.Duration) {
	var status *StatusError
	if !errors.As(err, &status) {
		return true, 0
	}
	return retry.Status(status.Code), status.RetryAfter
}

// A DeliveryError says why an event did not reach a receiver.
type DeliveryError struct {
	Receiver string // as in: event receiver https://events.example.org
	Event    source.Event
	Lost     bool // it is given up; otherwise it is tried again
	Err      error
}

func (e *DeliveryError) Error() string {
	then := "it is tried again"
	if e.Lost {
		then = "it is lost"
	}
	o := e.Event.InvolvedObject
	return fmt.Sprintf("tell %s of %s of %s/%s/%s, %s: %v", e.Receiver, e.Event.Reason, o.Kind, o.Namespace, o.Name, then, e.Err)
}

func (e *DeliveryError) Unwrap() error { return e.Err }

// A LostError says how many events did not reach a receiver, and why the last of them did not.
// It has the fields
//
//	Receiver string
//	Events   int   // at least 1
//	Err      error // why the last of them did not, which Unwrap returns
type LostError = deliver.LostError
