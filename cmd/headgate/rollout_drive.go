package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/ledger"
	"github.com/headgate-io/headgate/rollout/traffic"
)

// A drive is a rollout that is run.
type drive struct {
	*program
	flags  *runFlags
	canary *rollout.Canary
	book   *book
	file   *ledger.File
	stop   context.CancelCauseFunc // ends the run with an error

	analysis *rollout.Analysis
	proxy    *traffic.Proxy // nil without --proxy
	swapping *swapping      // nil unless the canary of the proxy is promoted
	view     *view
	unsaved  error               // why the status could not be saved
	settled  string              // the revision of the target, when there was nothing to do
	aborting bool                // nothing but an abort is done
	stepped  bool                // a step was done
	phase    func(rollout.Phase) // tells operations the phase
}

// run drives the rollout from a status to its end, and prints what became of it.
func (d *drive) run(ctx context.Context, s rollout.Status) error {
	d.view = d.newView(s)
	if now := time.Now(); s.LastStep.After(now) { // the clock went backwards: the interval counts from now
		s.LastStep = now.UTC().Round(0)
	}
	var open closing
	err := d.connect(ctx, s, &open)
	if err == nil && (!s.Ended() || d.flags.again) {
		err = d.file.Save(s) // or the first step would act, and nothing would know
	}
	if err != nil {
		return asUsage(errors.Join(err, open.close()))
	}
	if s.Ended() {
		d.request(ctx, s) // what was asked of a rollout that is over is not for another
	}
	s, resumed := d.first(s)
	d.view.begin(s, resumed)
	s, err = d.steps(ctx, s)
	d.view.end()
	if s.Ended() {
		d.request(context.WithoutCancel(ctx), s)
	}
	if err = ended(ctx, err); d.unsaved != nil {
		err = d.unsaved // also when it was interrupted just then
	}
	r := d.result(d.kept(s), err)
	errs := []error{d.print(r)}
	if d.swapping != nil && d.swapping.promoted != "" {
		url := redact.String(d.flags.canary)
		d.view.say(fmt.Sprintf("revision %s is at %s: give the next run --primary %s, or --swap", redact.String(d.swapping.promoted), url, url))
	}
	if d.flags.keep && err == nil {
		<-ctx.Done()
		if broken := new(brokenError); errors.As(context.Cause(ctx), &broken) {
			errs = append(errs, broken)
		}
	}
	errs = append(errs, open.close())
	if r.Outcome == outcomeError {
		errs = append([]error{err}, errs...)
	}
	if err := errors.Join(errs...); err != nil {
		return &exitError{max(exitUsage, outcomes[r.Outcome]), err}
	}
	if code := outcomes[r.Outcome]; code != exitPromoted {
		return &exitError{code, nil}
	}
	return nil
}

// first returns the status to go on from: of a canary that was not seen yet and
// of one that is rolled out again, that of a rollout that begins.
func (d *drive) first(s rollout.Status) (first rollout.Status, resumed bool) {
	switch {
	case s.Phase == "":
		return rollout.Status{Phase: rollout.Initialized, PromotedURL: s.PromotedURL}, false
	case s.Ended() && d.flags.again:
		return rollout.Status{Phase: rollout.Initialized, Sequence: s.Sequence, PromotedURL: s.PromotedURL}, false
	}
	return s, !s.Ended()
}

// steps drives the rollout until it has ended.
func (d *drive) steps(ctx context.Context, s rollout.Status) (rollout.Status, error) {
	loop := rollout.Loop{Wait: d.wait, Save: d.save, Interval: d.flags.interval, Request: func(s rollout.Status) *rollout.Request { return d.request(ctx, s) }}
	for s.Ended() { // until a step sees the revision that begins
		revision, err := d.analysis.Target.Revision(ctx)
		if err != nil {
			return s, fmt.Errorf("revision: %w", err)
		}
		if revision == s.AppliedSpec || revision == s.PromotedSpec {
			d.settled = revision
			d.view.unchanged(s, revision)
			return s, nil
		}
		if err := d.file.Save(s); err != nil { // or the step would act, and nothing would know
			d.unsaved = err
			return s, err
		}
		next, wait, err := d.analysis.Step(ctx, time.Now(), s)
		if err == nil {
			s, err = next, d.save(next)
		}
		if err == nil && wait > 0 {
			err = d.wait(ctx, d.interval())
		}
		if err != nil {
			return s, err
		}
	}
	return d.analysis.Run(ctx, s, loop)
}

// save keeps the status and shows it.
func (d *drive) save(s rollout.Status) error {
	s = d.kept(s)
	if err := d.file.Save(s); err != nil {
		d.unsaved = err
		return err
	}
	d.stepped = true
	d.phase(s.Phase)
	d.view.show(s)
	return nil
}

// interval is the time between two steps.
func (d *drive) interval() time.Duration { return cmp.Or(d.flags.interval, d.canary.Interval()) }

// wait waits until the next step is due. With --once there is one step, for
// which it waits less than a tenth of the interval.
func (d *drive) wait(ctx context.Context, interval time.Duration) error {
	due := time.Now().Add(interval).UTC().Format(time.RFC3339)
	switch {
	case d.flags.once && d.stepped:
		return notOverError("")
	case d.flags.once && interval >= d.interval()/10:
		return notOverError("nothing is done before " + due + ", when the next step is due")
	case !d.stepped:
		d.view.say("the next step is due at " + due)
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ended returns why the steps ended: what the run was stopped with, when that is it.
func ended(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	var broken *brokenError
	var over notOverError
	switch {
	case err == nil || cause == nil || !errors.Is(err, ctx.Err()) && !errors.Is(err, cause):
		return err
	case errors.As(cause, &over) || errors.As(cause, &broken):
		return cause
	}
	return notOverError("interrupted")
}

// A brokenError is why a run cannot go on.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }
