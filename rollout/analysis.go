package rollout

import (
	"context"
	"errors"
	"time"
)

// Routes are how traffic is divided, in percent. They sum to 100.
type Routes struct {
	Primary  int  `json:"primary"`
	Canary   int  `json:"canary"`
	Mirrored bool `json:"mirrored"` // the canary gets copies of requests to the primary, whose answers are dropped
}

// Traffic divides requests between primary and canary. With spec.analysis.match
// the division is of requests that match; others go to the primary.
type Traffic interface {
	Routes(ctx context.Context) (Routes, error) // as they are now
	SetRoutes(ctx context.Context, r Routes) error
}

// A Target is the workload. Each method may be called again when an analysis
// is resumed.
type Target interface {
	Revision(ctx context.Context) (string, error) // what is to be rolled out, as text that changes with it
	PrimaryReady(ctx context.Context) error       // nil; an error that wraps ErrStuck when it never will be
	CanaryReady(ctx context.Context) error
	ScaleUp(ctx context.Context) error   // the canary
	ScaleDown(ctx context.Context) error // the canary, to zero
	Promote(ctx context.Context) error   // the revision becomes the primary's
}

// ErrStuck is wrapped by errors of a Target that time does not mend.
var ErrStuck = errors.New("never becomes ready")

// Metrics answers queries.
type Metrics interface {
	// Query returns the value of a metric now, an error that wraps ErrNoValues when it has none.
	Query(ctx context.Context, canary *Canary, metric Metric) (float64, error)
}

// ErrNoValues is wrapped when a query has no result, or one that is no number.
var ErrNoValues = errors.New("no values found")

// A Sink is told events, in order. It does not block.
type Sink interface {
	Emit(ctx context.Context, event Event)
}

// An Analysis drives the rollout of one canary through its ports. Only Canary,
// Traffic and Target are required.
type Analysis struct {
	Canary  *Canary
	Traffic Traffic
	Target  Target
	Metrics Metrics
	Hooks   Hooks
	Sink    Sink
}

// Step does what one tick of the interval is for and returns the status after
// it, and how long to wait before the next: zero for not at all. The error is
// that of ctx, and then nothing is counted.
func (a *Analysis) Step(ctx context.Context, now time.Time, s Status) (Status, time.Duration, error) {
	return s, 0, errTODO
}

// Ended reports whether the rollout of the status is over and nothing is left to do for it.
func (s Status) Ended() bool { return (s.Phase == Succeeded || s.Phase == Failed) && !s.PostRollout }

// A Loop is the world around the steps of an analysis. Nil fields mean the
// clock, and that nothing is saved.
type Loop struct {
	Now  func() time.Time
	Wait func(context.Context, time.Duration) error
	Save func(Status) error // after each step, before the next
}

// Run steps until the rollout has ended or ctx does, and returns the last status.
func (a *Analysis) Run(ctx context.Context, s Status, loop Loop) (Status, error) {
	return s, errTODO
}
