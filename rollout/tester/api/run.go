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
	Summary   *Summary          `json:"summary,omitempty"`
	Output    string            `json:"output,omitempty"` // beginning and end
	Bytes     int64             `json:"outputBytes"`      // that it wrote
	Truncated bool              `json:"truncated"`
	Delivered bool              `json:"delivered"` // a caller has received how it ended
	URL       string            `json:"url,omitempty"`
}

// A Summary is what the output of a known test tool says.
type Summary struct {
	Format   string        `json:"format"` // tap, junit, k6, hey, wrk
	Total    int           `json:"total,omitempty"`
	Passed   int           `json:"passed,omitempty"`
	Failed   int           `json:"failed,omitempty"`
	Skipped  int           `json:"skipped,omitempty"`
	Failures []string      `json:"failures,omitempty"` // names of tests, checks or thresholds that failed, at most 20
	Requests int64         `json:"requests,omitempty"` // of a load
	Errors   int64         `json:"errors,omitempty"`   // that got no answer, or one that the tool counts as failed
	Rate     float64       `json:"rate,omitempty"`     // requests per second
	P50      time.Duration `json:"p50,omitempty"`      // nanoseconds
	P95      time.Duration `json:"p95,omitempty"`
	P99      time.Duration `json:"p99,omitempty"`
}
