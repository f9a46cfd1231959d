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
	Revision(ctx context.Context) (string, error) // what is to be rolled out, as text that changes with it, never empty
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

// ErrTooEarly is wrapped when there can be no values yet: what measures has only
// just begun. The check decides nothing, and the weight is kept.
var ErrTooEarly = errors.New("measured for less than an interval")

// ErrNoValues is wrapped when a query has no result, or one that is no number.
var ErrNoValues = errors.New("no values found")

// A Sink is told events, in order. It does not block.
type Sink interface {
	Emit(ctx context.Context, event Event)
}

// An Analysis drives the rollout of one canary through its ports. Only Canary,
// Traffic and Target are required, and Hooks when the canary lists webhooks
// other than those of type event, which are the Sink's. Without Metrics none
// are checked.
//
// What it decides is the table "Decisions" of docs/rollout.md.
type Analysis struct {
	Canary  *Canary
	Traffic Traffic
	Target  Target
	Metrics Metrics
	Hooks   Hooks
	Sink    Sink
}

// Step does what one tick of the interval is for and returns the status after
// it, and how long to wait before the next: zero for not at all. That is when
// it decided a rollback, a promotion or the end, which is to be stored before
// the next step acts upon it.
//
// Errors of ports are events, and what failed is done again in the next tick.
// The error is that of ctx, and then the status has what was decided before:
// nothing is counted that ctx cut short. Any other error names what is missing
// in the analysis or wrong in the status, which is returned as it was.
func (a *Analysis) Step(ctx context.Context, now time.Time, s Status) (Status, time.Duration, error) {
	if err := errors.Join(a.check(), s.Check()); err != nil {
		return s, 0, err
	}
	if err := ctx.Err(); err != nil {
		return s, 0, err
	}
	t := &tick{Analysis: a, ctx: ctx, now: now.UTC().Round(0), s: s} // as it is stored, without the monotonic clock
	t.run()
	if t.err != nil || t.decided {
		return t.s, 0, t.err
	}
	t.s.LastStep = t.now
	return t.s, a.Canary.Interval(), nil
}

// check returns what the analysis cannot do without.
func (a *Analysis) check() error {
	switch {
	case a.Canary == nil:
		return errors.New("analysis: no canary")
	case a.Traffic == nil:
		return errors.New("analysis: no traffic")
	case a.Target == nil:
		return errors.New("analysis: no target")
	case a.Hooks == nil && a.Canary.calls():
		return errors.New("analysis: the canary has webhooks, and nothing calls them")
	case !a.Canary.Spec.SkipAnalysis && a.Canary.Strategy() == Weighted && a.Canary.NextWeight(0) == 0:
		return errors.New("spec.analysis: none of stepWeight, stepWeights and iterations is set: no rollout would end")
	}
	return nil
}

// calls reports whether the canary has webhooks that an analysis calls.
func (c *Canary) calls() bool {
	for _, h := range c.Spec.Analysis.Webhooks {
		if h.Type != HookEvent {
			return true
		}
	}
	return false
}
