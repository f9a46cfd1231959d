// Package rollout implements the webhooks of a rollout controller: it calls
// them, judges their answers, and runs a canary analysis with webhooks, metrics
// and thresholds. It needs no cluster.
//
// It uses the terms of the specification: a canary is in one of seven phases, a
// webhook has one of eight types.
//
//	Caller     calls one webhook, with timeout, retries and credentials
//	HookType   judges the outcome of a call: see [HookType.Judge]
//	Analysis   runs one step of an analysis: status in, status out
//	Decode     reads Canary manifests
//
// # Manifests
//
// A [Canary] holds the fields that its manifest sets. Methods return the defaults
// of the others, so a Canary made in Go has the same defaults. [Decode] reads
// spec.analysis as strictly as an API server: names of fields are case-sensitive,
// unknown and duplicate fields are defects, no value is converted to another type.
// Manifests of the reference implementation are read unchanged.
//
// An analysis needs a canary for which [Canary.Check] returns nil. Decode only
// warns of some defects that Check refuses, because existing manifests have them,
// and of fields without effect. Each error and warning is a [*DocumentError].
//
// Limits: a stream has at most 64 MiB, a document 3 MiB.
//
// # Analyses
//
// An analysis runs one step in each interval and acts through the ports [Traffic],
// [Target], [Metrics], [Hooks] and [Sink]. [Analysis.Step] has no clock and no
// goroutine. Its only state is the [Status], which is stored after each step, so
// an analysis can be interrupted anywhere and resumed. The table
// testdata/decisions.txt lists what a step decides.
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

// Routes are the shares of the traffic in percent. They sum to 100.
type Routes struct {
	Primary  int  `json:"primary"`
	Canary   int  `json:"canary"`
	Mirrored bool `json:"mirrored"` // the canary gets copies of requests to the primary; its answers to them are dropped
}

// Traffic divides requests between primary and canary. With spec.analysis.match
// it divides only the requests that match; all others go to the primary.
type Traffic interface {
	Routes(ctx context.Context) (Routes, error) // the current routes
	SetRoutes(ctx context.Context, r Routes) error
}

// A Target is the workload. A resumed analysis may call each method again.
type Target interface {
	Revision(ctx context.Context) (string, error) // of the canary: text that changes with each new revision, never empty
	PrimaryReady(ctx context.Context) error       // nil if ready; wraps ErrStuck if it never becomes ready
	CanaryReady(ctx context.Context) error
	ScaleUp(ctx context.Context) error   // the canary
	ScaleDown(ctx context.Context) error // the canary, to zero
	Promote(ctx context.Context) error   // copies the revision to the primary
}

// ErrStuck is wrapped by an error of a Target that waiting does not resolve.
var ErrStuck = errors.New("never becomes ready")

// Metrics answers queries.
type Metrics interface {
	// Query returns the current value of a metric. The error wraps ErrNoValues if there is none.
	Query(ctx context.Context, canary *Canary, metric Metric) (float64, error)
}

// ErrTooEarly is wrapped when there can be no values yet, because the measurement
// has just begun. The check then decides nothing, and the weight is kept.
var ErrTooEarly = errors.New("measured for less than an interval")

// ErrNoValues is wrapped when a query has no result, or a result that is not a number.
var ErrNoValues = errors.New("no values found")

// A Sink receives events in order. Emit must not block.
type Sink interface {
	Emit(ctx context.Context, event Event)
}

// An Analysis drives the rollout of one canary through its ports. Only Canary,
// Traffic and Target are required, and Hooks if the canary lists webhooks of a
// type other than event; the Sink calls those of type event. Without Metrics, no
// metrics are checked.
//
// The table testdata/decisions.txt lists its decisions.
type Analysis struct {
	Canary  *Canary
	Traffic Traffic
	Target  Target
	Metrics Metrics
	Hooks   Hooks
	Sink    Sink
}

// Step runs one step of the analysis. It returns the status after the step and
// how long to wait before the next one. The wait is zero if the step decided a
// rollback, a promotion, or an end after which post-rollout webhooks are to be
// called: store the status before the next step acts upon it.
//
// Step reports errors of ports as events and repeats the failed operation in the
// next tick. If ctx ends, it returns the error of ctx with everything decided
// before that; an operation that ctx cut short is not counted. Any other error
// names a missing field of the analysis or a defect of the status, and the status
// is returned unchanged.
func (a *Analysis) Step(ctx context.Context, now time.Time, s Status) (Status, time.Duration, error) {
	if err := errors.Join(a.check(), s.Check()); err != nil {
		return s, 0, err
	}
	if err := ctx.Err(); err != nil {
		return s, 0, err
	}
	t := &tick{Analysis: a, ctx: ctx, now: now.UTC().Round(0), s: s} // as JSON stores it, without the monotonic clock
	t.run()
	if t.err != nil || t.decided {
		return t.s, 0, t.err
	}
	t.s.LastStep = t.now
	return t.s, a.Canary.Interval(), nil
}

// check returns an error if a required field is missing.
func (a *Analysis) check() error {
	switch {
	case a.Canary == nil:
		return errors.New("analysis: no canary")
	case a.Traffic == nil:
		return errors.New("analysis: no traffic")
	case a.Target == nil:
		return errors.New("analysis: no target")
	case a.Hooks == nil && a.Canary.callsHooks():
		return errors.New("analysis: the canary has webhooks, and nothing calls them")
	case !a.Canary.Spec.SkipAnalysis && a.Canary.Strategy() == Weighted && a.Canary.NextWeight(0) == 0:
		return errors.New("spec.analysis: none of stepWeight, stepWeights and iterations is set: no rollout would end")
	}
	return nil
}

// callsHooks reports whether the canary has webhooks that an analysis calls.
func (c *Canary) callsHooks() bool {
	return slices.ContainsFunc(c.Spec.Analysis.Webhooks, func(h Hook) bool { return h.Type != HookEvent })
}

// A Loop connects [Analysis.Run] to its surroundings. If Now or Wait is nil, Run
// uses the clock; if Save is nil, it saves nothing.
type Loop struct {
	Now      func() time.Time
	Wait     func(context.Context, time.Duration) error
	Save     func(Status) error // called after each step, before the next
	Interval time.Duration      // between two steps; 0 for the interval of the canary
	Next     bool               // if the rollout has ended already, roll out another revision if there is one

	// Request returns the pending request of a user for the rollout, nil for none.
	// Run calls it before each step and copies the request to the status.
	Request func(Status) *Request
}

// Run runs steps until the rollout or ctx has ended, and returns the last status.
// It can be interrupted anywhere and resumed with the last saved status. It
// returns the status of an ended rollout unchanged, unless [Loop.Next] is set.
//
// A resumed run first waits for the rest of the interval (see [Status.Rest]),
// unless there is a request or another revision to roll out.
//
// The error is that of ctx, Step or Save.
func (a *Analysis) Run(ctx context.Context, s Status, loop Loop) (Status, error) {
	loop = loop.defaults()
	if err := a.waitUntilDue(ctx, s, loop); err != nil {
		return s, err
	}
	for {
		if s.Ended() {
			if follows, err := a.hasNextRevision(ctx, s, loop); !follows {
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

// hasNextRevision reports whether to roll out another revision after a rollout that has ended.
func (a *Analysis) hasNextRevision(ctx context.Context, s Status, loop Loop) (bool, error) {
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

// waitUntilDue waits until the next step of a resumed rollout is due.
func (a *Analysis) waitUntilDue(ctx context.Context, s Status, loop Loop) error {
	if s.Ended() || a.check() != nil { // Step returns the error of check
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

// sleep waits for d, or returns the error of ctx if that ends first.
func sleep(ctx context.Context, d time.Duration) error {
	if retry.Sleep(ctx, d) != nil {
		return ctx.Err()
	}
	return nil
}
