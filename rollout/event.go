package rollout

import "time"

// An EventCode says what happened, for programs.
type EventCode string

// A Severity is that of an alert.
type Severity string

// The severities, in rising order.
const (
	Info  Severity = "info"
	Warn  Severity = "warn"
	Error Severity = "error"
)

// An Event is one action of an analysis.
type Event struct {
	Code    EventCode `json:"code"`
	Warning bool      `json:"warning,omitempty"`
	Message string    `json:"message"` // for people; it names the canary
	Time    time.Time `json:"time"`

	Name      string `json:"name"` // of the canary
	Namespace string `json:"namespace"`
	Phase     Phase  `json:"phase"` // after the event
	Checksum  string `json:"checksum"`
	Sequence  int64  `json:"sequence"` // of the canary, rising; an event that is told again has the same

	Weight       int    `json:"weight"`
	MaxWeight    int    `json:"maxWeight"`
	Iteration    int    `json:"iteration"`
	FailedChecks int    `json:"failedChecks"`
	Hook         string `json:"hook,omitempty"`   // name of the webhook or the metric it is about
	Reason       string `json:"reason,omitempty"` // what the webhook or the metric said, bounded

	// Alert is what people are notified with, "" for events that are not for
	// them: gates with muteAlert among those.
	Alert Severity `json:"alert,omitempty"`
}
