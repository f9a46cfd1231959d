package rollout

import (
	"context"
	"errors"
)

// What may be not ready: [Status.NotReady].
const (
	thePrimary   = "primary"
	theCanary    = "canary"
	thePromotion = "promotion"
)

// primaryReady waits for the primary. With skipAnalysis it may be broken: the
// revision is what mends it.
func (t *tick) primaryReady() bool {
	if t.Canary.Spec.SkipAnalysis && !unseen.has(t.s.Phase) && !t.s.promoted() {
		return true
	}
	return t.ready(thePrimary, t.Target.PrimaryReady, t.primaryStuck)
}

// canaryReady waits for the canary.
func (t *tick) canaryReady() bool {
	return t.ready(theCanary, t.Target.CanaryReady, func(reason string) {
		t.abandon(EventCanaryStuck, about{reason: reason})
	})
}

// ready asks for readiness. One that is wanting ends the tick; after
// progressDeadlineSeconds, or at once with ErrStuck, that is the end.
func (t *tick) ready(what string, ask func(context.Context) error, stuck func(reason string)) bool {
	err := ask(t.ctx)
	if err == nil {
		if t.s.NotReady == what {
			t.s.ready()
		}
		return true
	}
	if t.cut() {
		return false
	}
	if t.s.NotReady != what {
		t.s.NotReady, t.s.NotReadySince = what, t.now
	}
	reason := what + ": " + err.Error()
	if errors.Is(err, ErrStuck) || t.now.Sub(t.s.NotReadySince) >= t.Canary.ProgressDeadline() {
		stuck(reason)
		return false
	}
	t.emit(EventNotReady, about{reason: reason})
	return false
}

// primaryStuck ends what cannot go on without the primary: when it was given
// the revision, with all traffic on the canary; before that, by a rollback.
// Before a rollout no traffic is moved.
func (t *tick) primaryStuck(reason string) {
	switch a := (about{reason: reason}); {
	case t.s.promoted():
		t.promotionFailed(a)
	case active.has(t.s.Phase):
		t.s.AppliedSpec = t.revision // also when it did not come to begin
		t.abandon(EventPrimaryStuck, a)
	default:
		t.s.AppliedSpec = t.revision
		t.end(Failed, EventPrimaryStuck, a)
	}
}
