// Package api defines the HTTP API that a test runner has besides the contract of
// webhooks: the types of its JSON, and a client. It depends on neither the server
// nor a store.
//
//	GET  /api/v1/gates                                       {"gates": [Gate…]}; ?kind= ?namespace= ?name= ?waiting=true
//	GET  /api/v1/gates/KIND/NAMESPACE/NAME/GATE              Gate; a gate never seen is closed
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/open         Change → Gate
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/close        Change → Gate
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/reject       Change → Gate: closed, and the canary's rollback switch open for the checksum that waits
//	POST /api/v1/gates/KIND/NAMESPACE/NAME/GATE/link         LinkRequest → Link
//	GET  /api/v1/audit                                       {"entries": [Entry…]}, newest first; ?kind= ?namespace= ?name= ?gate= ?limit= ?before=ID
//	GET  /api/v1/runs                                        {"runs": [Run…]} without output, newest first; ?namespace= ?name= ?type= ?state= ?limit= ?before=ID
//	GET  /api/v1/runs/ID                                     Run
//	GET  /api/v1/runs/ID/output                              text/plain; ?follow=true goes on until the run has ended
//	POST /api/v1/runs/ID/cancel                              Run
//	GET  /api/v1/watch                                       text/event-stream of Notice
//	GET  /api/v1/session                                     Session
//	POST /api/v1/session                                     {"token": …}: sets the cookie of the web page
//	DELETE /api/v1/session                                   ends the session
//
// KIND is gate or rollback. A path segment is escaped as in URLs. Any other path
// below /api/ is 404; a wrong method is 405. An error is a [Problem] with the
// status of the answer.
package api

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// A Problem is the JSON of every answer of the API with a status of 400 or more.
type Problem struct {
	Status int    `json:"status"`
	Reason string `json:"reason"` // what is wrong, and what to do
}

// A Session says who the caller is, and what its credential allows.
type Session struct {
	Actor    string `json:"actor"`              // "" when anonymous callers may do everything
	Required bool   `json:"required"`           // callers must authenticate
	ReadOnly bool   `json:"readOnly,omitempty"` // the caller may look and check gates, but change nothing
}

// A Notice is one change in the watch stream. Exactly one field is set.
type Notice struct {
	Gate *Gate `json:"gate,omitempty"`
	Run  *Run  `json:"run,omitempty"` // without output
}

// A LinkRequest asks for links that approve or reject the revision that waits at a gate.
type LinkRequest struct {
	TTL string `json:"ttl,omitempty"` // seconds or a duration; default 24h, at most 7 days
}

// A Link holds the URLs of two pages with a button each. Pressing either button
// ends both links; neither works for another checksum.
type Link struct {
	Approve string    `json:"approve"`
	Reject  string    `json:"reject"`
	Expires time.Time `json:"expires"`
}

// A Kind is what a switch is for.
type Kind string

// The two kinds of switches.
const (
	KindGate     Kind = "gate"     // open: the rollout may go on
	KindRollback Kind = "rollback" // open: the canary is to be rolled back
)

// DefaultGate is the gate of the paths without a name, such as /gate/check.
const DefaultGate = "default"

// A Mode says what ends the opening of a gate.
type Mode string

// The modes.
const (
	Sticky  Mode = "sticky"   // a close only, as in the reference implementation
	OneShot Mode = "one-shot" // it holds for the checksum of the first check that passes; a check with another closes it
	Bound   Mode = "checksum" // it holds for the checksum given when it was opened, and no other
)

// A Key names a gate or a rollback switch.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of the canary
	Gate      string `json:"gate"` // DefaultGate, or a name of its own
}

// String returns KIND NAMESPACE/NAME/GATE.
func (k Key) String() string {
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name + "/" + k.Gate
}

// A Gate is the state of a gate or a rollback switch.
type Gate struct {
	Key
	Open     bool      `json:"open"`
	Mode     Mode      `json:"mode,omitempty"`     // of the opening
	Checksum string    `json:"checksum,omitempty"` // that it is open for; "" for any
	Expires  time.Time `json:"expires,omitzero"`   // when it closes by itself
	Changed  time.Time `json:"changed,omitzero"`   // when it was opened or closed
	Actor    string    `json:"actor,omitempty"`    // who opened or closed it
	Reason   string    `json:"reason,omitempty"`   // why it was opened or closed
	Waiting  *Waiting  `json:"waiting,omitempty"`  // nil if no canary waits at it
}

// A Waiting is the wait of a canary at a closed gate. It ends when a check passes,
// when the rollout is over, or when no check has come for a while.
type Waiting struct {
	Since    time.Time `json:"since"`              // the first check that was refused
	Last     time.Time `json:"last"`               // the latest check
	Stale    bool      `json:"stale,omitempty"`    // no check came within twice the longest interval between two, or 2 s
	Phase    string    `json:"phase,omitempty"`    // of the canary
	Checksum string    `json:"checksum,omitempty"` // the revision that waits
	CanaryInfo
}

// A CanaryInfo describes a canary for people. It comes from the keys of a payload's metadata
// that begin with "headgate."; its texts are as the caller sent them.
type CanaryInfo struct {
	Revision  string `json:"revision,omitempty"`
	Weight    string `json:"weight,omitempty"`    // percent of the traffic that the canary has
	Step      string `json:"step,omitempty"`      // weights or iterations reached, and how many there are: "2/5"
	Threshold string `json:"threshold,omitempty"` // failed checks at which it is rolled back
	Failures  string `json:"failures,omitempty"`  // failed checks so far
}

// A Change opens or closes a gate.
type Change struct {
	Mode     Mode   `json:"mode,omitempty"`     // default Sticky, with Checksum Bound
	Checksum string `json:"checksum,omitempty"` // for Bound
	TTL      string `json:"ttl,omitempty"`      // seconds or a duration after which it closes; default never
	Actor    string `json:"actor,omitempty"`    // ignored if callers must authenticate
	Reason   string `json:"reason,omitempty"`
}

// An Entry is one line of the audit trail.
type Entry struct {
	ID   uint64    `json:"id"` // ascending
	Time time.Time `json:"time"`
	Key
	Action   string `json:"action"` // open, close, reject, expire, consume, link
	Mode     Mode   `json:"mode,omitempty"`
	Checksum string `json:"checksum,omitempty"`
	Actor    string `json:"actor,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

// A RunState is the state of a run.
type RunState string

// The states of a run. Those from Succeeded on are final.
const (
	Queued    RunState = "queued"
	Running   RunState = "running"
	Succeeded RunState = "succeeded"
	Failed    RunState = "failed"
	TimedOut  RunState = "timed-out"
	Cancelled RunState = "cancelled" // by a caller of the API
	Stopped   RunState = "stopped"   // by a shutdown of the test runner
	Lost      RunState = "lost"      // the test runner died before it ended
)

// A Run is one execution of a task.
type Run struct {
	ID        string            `json:"id"`
	State     RunState          `json:"state"`
	Type      string            `json:"type"` // the product's name: cmd, bash, helm, helmv3, kubectl, ngrinder, concord, k6
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"` // of the canary
	Phase     string            `json:"phase,omitempty"`
	Checksum  string            `json:"checksum,omitempty"`
	Metadata  map[string]string `json:"metadata,omitempty"` // secrets masked
	Waits     bool              `json:"waits"`              // callers wait for its end
	Actor     string            `json:"actor,omitempty"`    // whose request started it
	Created   time.Time         `json:"created"`
	Started   time.Time         `json:"started,omitzero"`
	Ended     time.Time         `json:"ended,omitzero"`
	Duration  int64             `json:"durationMs"`
	ExitCode  *int              `json:"exitCode,omitempty"`
	Reason    string            `json:"reason,omitempty"` // why it did not succeed
	Output    string            `json:"output,omitempty"` // beginning and end
	Bytes     int64             `json:"outputBytes"`      // bytes that it wrote
	Truncated bool              `json:"truncated"`
	Delivered bool              `json:"delivered"` // a caller has received how it ended
	URL       string            `json:"url,omitempty"`
}

// Types returns the types of tasks, by the product's names.
func Types() []string {
	return []string{"cmd", "bash", "helm", "helmv3", "kubectl", "ngrinder", "concord", "k6"}
}

// neutral maps the neutral names of types to the product's names.
var neutral = map[string]string{"pkgtest": "helm", "pkgtest3": "helmv3", "delegated-load": "ngrinder", "workflow": "concord"}

// TypeName returns the product's name of a type of tasks, given that name or the
// neutral one; "" if there is no such type.
func TypeName(name string) string {
	if slices.Contains(Types(), name) {
		return name
	}
	return neutral[name]
}

const maxInterval = 365 * 24 * time.Hour

// ParseInterval parses a time span of a request: seconds as a bare number, or a
// duration such as 1m30s; positive, at most 365 days. An empty text means fallback.
func ParseInterval(text string, fallback time.Duration) (time.Duration, error) {
	if text == "" {
		return fallback, nil
	}
	seconds := text
	if strings.Trim(text, "0123456789.") == "" {
		seconds += "s"
	}
	d, err := time.ParseDuration(seconds)
	switch {
	case err != nil:
		return 0, fmt.Errorf("%+.40q is no time span: want seconds such as 90, or a duration such as 1m30s", text)
	case d <= 0 || d > maxInterval:
		return 0, fmt.Errorf("%+.40q is out of range: want more than 0 and at most 365 days", text)
	}
	return d, nil
}
