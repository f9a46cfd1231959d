// Package rollout does what a rollout controller does with webhooks: it calls
// them, judges their answers, and drives a canary analysis by them, by metrics
// and by thresholds. It needs no cluster.
//
// The specification is in its words: a canary is in one of seven phases, a
// webhook is of one of eight types.
//
//	Caller     calls one webhook, with timeout, retries and credentials
//	HookType   judges what came of it: see [HookType.Judge]
//	Analysis   one step of an analysis: status in, status out
//	Decode     reads Canary manifests
//
// # Manifests
//
// A [Canary] holds what its manifest says; methods return the defaults of what
// is left out, so that one made in Go has them too. [Decode] reads spec.analysis
// as strictly as an API server: names of fields are case-sensitive, unknown and
// duplicate fields are defects, nothing is converted from one type to another.
// Manifests of the reference implementation are read unchanged.
//
// An analysis starts with a canary for which [Canary.Check] returns nil. Decode
// warns of what Check refuses, as manifests in the field have it, and of what has
// no effect. Each error and warning is a [*DocumentError].
//
// Limits: a stream has at most 64 MiB, a document 3 MiB.
//
// # Analyses
//
// An analysis goes in steps, one each interval, through the ports [Traffic],
// [Target], [Metrics], [Hooks] and [Sink]. [Analysis.Step] has no clock and no
// goroutine; all that it knows is the [Status], which is stored after each step:
// an analysis may be cut short anywhere and goes on from there. What a step
// decides is the table testdata/decisions.txt.
package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
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
// What it decides is the table testdata/decisions.txt.
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
	return slices.ContainsFunc(c.Spec.Analysis.Webhooks, func(h Hook) bool { return h.Type != HookEvent })
}

// A Loop is the world around the steps of an analysis. Nil fields mean the
// clock, and that nothing is saved.
type Loop struct {
	Now      func() time.Time
	Wait     func(context.Context, time.Duration) error
	Save     func(Status) error // after each step, before the next
	Interval time.Duration      // between two steps; 0 for that of the canary
	Next     bool               // a rollout that has ended is followed by that of another revision, if there is one

	// Request returns what a person asks of the rollout of the status, nil for
	// nothing. It is asked before each step, until the status has that request.
	Request func(Status) *Request
}

// Run steps until the rollout has ended or ctx does, and returns the last
// status. It may be cut short anywhere and go on from the status that was saved
// last; that of a rollout that has ended is returned as it is, but for [Loop.Next].
//
// A run that goes on waits for the rest of the interval first (see
// [Status.Rest]), unless there is a request or another revision to roll out.
//
// The error is that of ctx, of Step, or of saving.
func (a *Analysis) Run(ctx context.Context, s Status, loop Loop) (Status, error) {
	loop = loop.defaults()
	if err := a.rest(ctx, s, loop); err != nil {
		return s, err
	}
	for {
		if s.Ended() {
			if follows, err := a.follows(ctx, s, loop); !follows {
				return s, err
			}
		} else {
			loop.Next = false
		}
		if r := loop.Request(s); r != nil {
			s.Request = r
		}
		next, wait, err := a.Step(ctx, loop.Now(), s)
		if err == nil || ctx.Err() != nil {
			s = next
			if saving := loop.Save(s); saving != nil {
				err = errors.Join(err, fmt.Errorf("save the status: %w", saving))
			}
		}
		if err == nil && wait > 0 && (loop.Next || !s.Ended()) {
			err = loop.Wait(ctx, cmp.Or(loop.Interval, wait))
		}
		if err != nil {
			return s, err
		}
	}
}

// follows reports whether another revision is to be rolled out after a rollout that has ended.
func (a *Analysis) follows(ctx context.Context, s Status, loop Loop) (bool, error) {
	if !loop.Next {
		return false, nil
	}
	if err := a.check(); err != nil {
		return false, err
	}
	revision, err := a.Target.Revision(ctx)
	if err != nil {
		return false, fmt.Errorf("revision: %w", err)
	}
	return revision != s.AppliedSpec && revision != s.PromotedSpec, nil
}

// rest waits until the next step of a status that was saved is due.
func (a *Analysis) rest(ctx context.Context, s Status, loop Loop) error {
	if s.Ended() || a.check() != nil { // which Step tells
		return nil
	}
	left := s.Rest(cmp.Or(loop.Interval, a.Canary.Interval()), loop.Now())
	if left <= 0 || loop.Request(s) != nil {
		return nil
	}
	if revision, err := a.Target.Revision(ctx); err == nil && revision != s.AppliedSpec {
		return nil
	}
	return loop.Wait(ctx, left)
}

func (l Loop) defaults() Loop {
	if l.Now == nil {
		l.Now = time.Now
	}
	if l.Wait == nil {
		l.Wait = sleep
	}
	if l.Request == nil {
		l.Request = func(Status) *Request { return nil }
	}
	if l.Save == nil {
		l.Save = func(Status) error { return nil }
	}
	return l
}

// sleep waits for d, or returns the error of ctx when that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if retry.Sleep(ctx, d) != nil {
		return ctx.Err()
	}
	return nil
}
