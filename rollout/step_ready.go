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
	theTraffic   = "traffic"
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
		t.isReady(what)
		return true
	}
	if t.cut() {
		return false
	}
	reason := what + ": " + err.Error()
	if late := t.notReady(what); late || errors.Is(err, ErrStuck) {
		stuck(reason)
		return false
	}
	t.emit(EventNotReady, about{reason: reason})
	return false
}

// notReady notes that something is not ready, and reports whether it has not
// been for progressDeadlineSeconds.
func (t *tick) notReady(what string) (late bool) {
	if t.s.NotReady != what {
		t.s.NotReady, t.s.NotReadySince = what, t.now
	}
	return t.now.Sub(t.s.NotReadySince) >= t.Canary.ProgressDeadline()
}

// isReady notes that something is ready.
func (t *tick) isReady(what string) {
	if t.s.NotReady == what {
		t.s.ready()
	}
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
