package rollout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/retry"
)

// A Loop is the world around the steps of an analysis. Nil fields mean the
// clock, and that nothing is saved.
type Loop struct {
	Now      func() time.Time
	Wait     func(context.Context, time.Duration) error
	Save     func(Status) error // after each step, before the next
	Interval time.Duration      // between two steps; 0 for that of the canary

	// Request returns what a person asks of the rollout of the status, nil for
	// nothing. It is asked before each step, until the status has that request.
	Request func(Status) *Request
}

// Run steps until the rollout has ended or ctx does, and returns the last
// status. It may be cut short anywhere and go on from the status that was saved
// last; that of a rollout that has ended is returned as it is.
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
	for !s.Ended() {
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
		if err != nil {
			return s, err
		}
		if wait <= 0 || s.Ended() {
			continue
		}
		if err := loop.Wait(ctx, cmp.Or(loop.Interval, wait)); err != nil {
			return s, err
		}
	}
	return s, nil
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
