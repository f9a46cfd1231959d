package api

import "time"

// A RunState is where a run is.
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
	Bytes     int64             `json:"outputBytes"`      // that it wrote
	Truncated bool              `json:"truncated"`
	Delivered bool              `json:"delivered"` // a caller has received how it ended
	URL       string            `json:"url,omitempty"`
}
