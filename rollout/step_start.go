package rollout

import (
	"context"
	"errors"
	"time"
)

// suspended leaves a suspended canary alone. It is told once.
func (t *tick) suspended() bool {
	if !t.Canary.Spec.Suspend {
		t.s.Suspended = false
		return true
	}
	if !t.s.Suspended {
		t.s.Suspended = true
		t.emit(EventSuspended, eventDetail{})
	}
	return false
}

// unchanged ends the tick when no rollout is under way and none begins: the
// revision is the one of the primary, or the last rollout was of it. A revision
// that failed may come again after that of the primary was back.
func (t *tick) unchanged() bool {
	s := &t.s
	began := s.AppliedSpec != "" || s.Phase == Failed // a rollback that a restart was cut short by has none
	if !began || t.revision != s.PromotedSpec && t.revision != s.AppliedSpec {
		return true
	}
	if s.Phase == Failed {
		s.AppliedSpec = t.revision
	}
	s.ready()
	return false
}

// initialise takes a canary up whose primary is ready: that has the revision.
func (t *tick) initialise() bool {
	t.s.AppliedSpec, t.s.PromotedSpec = t.revision, t.revision
	t.enter(Initialized)
	t.emit(EventInitialized, eventDetail{})
	return false
}

// start begins a rollout with all traffic at the primary, which is ready: a
// promotion that failed left it at the canary.
func (t *tick) start() bool {
	t.fresh = true
	return t.route(home)
}

// restart begins with another revision before the primary is given the one
// under analysis. The revision of the primary ends the rollout instead.
func (t *tick) restart() bool {
	if t.revision == t.s.AppliedSpec || t.s.promoted() {
		return true
	}
	if t.revision == t.s.PromotedSpec {
		t.s.AppliedSpec = t.revision
		t.abandon(EventRevisionReverted, eventDetail{})
		return false
	}
	t.s.AppliedSpec = "" // whichever is next begins anew, this one too when it comes back before all of this is done
	return t.startAgain()
}

// restartPromoted begins with another revision when the primary is ready with
// the one before.
func (t *tick) restartPromoted() bool {
	return t.fresh || t.revision == t.s.AppliedSpec || t.startAgain()
}

// startAgain is start under way. With confirm-rollout webhooks the canary does
// not run while they are asked.
func (t *tick) startAgain() bool {
	t.s.Request = nil // it was about the revision before
	if !t.route(home) {
		return false
	}
	if len(t.hooks(HookConfirmRollout)) > 0 && !t.waitsForApproval() &&
		!t.done(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		return false
	}
	t.fresh = true
	return true
}

// approve asks the confirm-rollout webhooks at the start of a rollout and as
// long as it waits on them, then scales the canary up.
func (t *tick) approve() bool {
	if !t.fresh && !t.waitsForApproval() {
		return true
	}
	if !t.confirm(HookConfirmRollout) || !t.done(EventTargetError, "scale up the canary", t.Target.ScaleUp(t.ctx)) {
		return false
	}
	code := EventRevisionNew
	if t.fresh && active.has(t.s.Phase) {
		code = EventRevisionRestart
	}
	t.begin(Progressing)
	t.emit(code, eventDetail{})
	return false
}

// waitsForApproval reports whether the canary waits on a confirm-rollout webhook.
func (t *tick) waitsForApproval() bool {
	return t.s.Phase == Waiting && t.s.gate() != HookConfirmTrafficIncrease
}

// begin counts anew, for the revision of the target.
func (t *tick) begin(p Phase) {
	t.enter(p)
	s := &t.s
	s.AppliedSpec, s.Gate, s.Values, s.Reason = t.revision, nil, nil, ""
	s.FailedChecks, s.Iterations, s.PreRollout, s.Confirmed = 0, 0, false, false
	s.ready()
	t.fresh = false
}

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
		t.abandon(EventCanaryStuck, eventDetail{reason: reason})
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
	t.emit(EventNotReady, eventDetail{reason: reason})
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
	switch a := (eventDetail{reason: reason}); {
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

// hooks are the webhooks of a type, in list order.
func (t *tick) hooks(kind HookType) []Hook {
	var hooks []Hook
	for _, h := range t.Canary.Spec.Analysis.Webhooks {
		if h.Type = h.Kind(); h.Type == kind {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// call calls a webhook and judges what came of it. Without ok ctx ended, and
// there is no outcome.
func (t *tick) call(h Hook) (said string, verdict Verdict, ok bool) {
	said, err, ok := t.post(h)
	return said, h.Type.Judge(err), ok
}

func (t *tick) post(h Hook) (said string, err error, ok bool) {
	payload := Payload{
		Name: t.Canary.Metadata.Name, Namespace: t.Canary.Namespace(),
		Phase: t.s.Phase, Checksum: t.checksum(), Metadata: t.metadata(h),
	}
	answer, err := t.Hooks.Call(t.ctx, h, payload)
	if err != nil && t.cut() {
		return "", err, false
	}
	return reason(answer, err), err, true
}

// A confirmation is how a type of confirm webhooks holds a canary.
type confirmation struct {
	phase       Phase // while it is closed
	waits, pass EventCode
}

var gates = map[HookType]confirmation{
	HookConfirmRollout:         {Waiting, EventRolloutWaits, EventRolloutPass},
	HookConfirmTrafficIncrease: {Waiting, EventTrafficWaits, EventTrafficPass},
	HookConfirmPromotion:       {Progressing, EventPromotionWaits, EventPromotionPass},
}

// confirm asks the confirm webhooks of a type until one does not pass: the
// canary then waits on it.
func (t *tick) confirm(kind HookType) bool {
	if t.ungated() {
		return true
	}
	var passed []eventDetail
	for _, h := range t.hooks(kind) {
		said, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		if verdict != Pass {
			t.hold(h, said)
			return false
		}
		passed = append(passed, eventDetail{name: h.Name, reason: said})
	}
	for _, a := range passed {
		t.emit(gates[kind].pass, a)
	}
	return true
}

// hold makes the canary wait on a gate. That is told, and people are alerted,
// when it begins. A gate with a deadline that has passed rolls back.
func (t *tick) hold(h Hook, said string) {
	kind := gates[h.Type]
	if t.fresh {
		restarted := active.has(t.s.Phase)
		if t.begin(kind.phase); restarted {
			t.emit(EventRevisionRestart, eventDetail{})
		}
	}
	t.enter(kind.phase)
	gate := Gate{Type: h.Type, Name: h.Name, Since: t.now, Reason: said}
	was := t.s.Gate
	again := was != nil && was.Type == h.Type && was.Name == h.Name
	if again {
		gate.Since = was.Since
	}
	t.s.Gate = &gate
	a := eventDetail{name: h.Name, reason: said, muted: h.MuteAlert}
	if !again {
		t.emit(kind.waits, a)
	}
	if closed := t.now.Sub(gate.Since); h.Deadline > 0 && closed >= time.Duration(h.Deadline) {
		a.muted = false
		t.abandon(EventGateExpired, a)
	}
}

// rollbackHooks asks until one wants a rollback. One that does not is not told,
// but when it gave no answer: it is asked in every tick.
func (t *tick) rollbackHooks() bool {
	if t.Canary.Spec.SkipAnalysis || t.ungated() {
		return true
	}
	for _, h := range t.hooks(HookRollback) {
		said, err, ok := t.post(h)
		if !ok {
			return false
		}
		a := eventDetail{name: h.Name, reason: said}
		if h.Type.Judge(err) == Fire {
			t.abandon(EventRollbackFired, a)
			return false
		}
		if _, answered := errors.AsType[*StatusError](err); !answered {
			t.emit(EventRollbackError, a)
		}
	}
	return true
}

// postRollout calls all post-rollout webhooks, after the status that says how
// the rollout ended was returned. What fails is told.
func (t *tick) postRollout() bool {
	if !t.s.PostRollout {
		return true
	}
	for _, h := range t.hooks(HookPostRollout) {
		said, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		code := EventPostRolloutPass
		if verdict != Pass {
			code = EventPostRolloutFail
		}
		t.emit(code, eventDetail{name: h.Name, reason: said})
	}
	t.s.PostRollout = false
	return false
}
