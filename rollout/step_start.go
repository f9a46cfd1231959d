package rollout

import (
	"context"
	"errors"
	"time"
)

// stopIfSuspended ends the tick of a suspended canary. It emits the suspension once.
func (t *tick) stopIfSuspended() bool {
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

// stopIfUnchanged ends the tick if no rollout is to begin, because the primary has the
// revision or the last rollout was of it. A failed revision can be rolled out
// again after the target was back at the revision of the primary.
func (t *tick) stopIfUnchanged() bool {
	s := &t.s
	began := s.AppliedSpec != "" || s.Phase == Failed // AppliedSpec is empty if a rollback interrupted a restart
	if !began || t.revision != s.PromotedSpec && t.revision != s.AppliedSpec {
		return true
	}
	if s.Phase == Failed {
		s.AppliedSpec = t.revision
	}
	s.clearNotReady()
	return false
}

// initialise initializes a canary whose primary is ready. The primary has the revision.
func (t *tick) initialise() bool {
	t.s.AppliedSpec, t.s.PromotedSpec = t.revision, t.revision
	t.enter(Initialized)
	t.emit(EventInitialized, eventDetail{})
	return false
}

// start begins a rollout by routing all traffic to the primary, which is ready. A
// failed promotion may have left the traffic at the canary.
func (t *tick) start() bool {
	t.starting = true
	return t.route(allToPrimary)
}

// restart starts the rollout again if the revision changes before the primary has
// the one under analysis. A change back to the revision of the primary ends the
// rollout instead.
func (t *tick) restart() bool {
	if t.revision == t.s.AppliedSpec || t.s.promoted() {
		return true
	}
	if t.revision == t.s.PromotedSpec {
		t.s.AppliedSpec = t.revision
		t.decideRollback(EventRevisionReverted, eventDetail{})
		return false
	}
	t.s.AppliedSpec = "" // the next revision starts from the beginning, even if the same one comes back before the restart is done
	return t.startAgain()
}

// restartPromoted starts the rollout again if the revision changes after the
// primary is ready with the previous one.
func (t *tick) restartPromoted() bool {
	return t.starting || t.revision == t.s.AppliedSpec || t.startAgain()
}

// startAgain is start during a rollout. If there are confirm-rollout webhooks, it
// also scales down the canary, which must not run before they pass.
func (t *tick) startAgain() bool {
	t.s.Request = nil // it was for the previous revision
	if !t.route(allToPrimary) {
		return false
	}
	if len(t.hooks(HookConfirmRollout)) > 0 && !t.waitsForApproval() &&
		!t.succeeded(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		return false
	}
	t.starting = true
	return true
}

// confirmRollout calls the confirm-rollout webhooks at the start of a rollout and in each
// tick in which the canary waits on them. When they pass, it scales the canary up.
func (t *tick) confirmRollout() bool {
	if !t.starting && !t.waitsForApproval() {
		return true
	}
	if !t.confirm(HookConfirmRollout) || !t.succeeded(EventTargetError, "scale up the canary", t.Target.ScaleUp(t.ctx)) {
		return false
	}
	code := EventRevisionNew
	if t.starting && active.has(t.s.Phase) {
		code = EventRevisionRestart
	}
	t.begin(Progressing)
	t.emit(code, eventDetail{})
	return false
}

// waitsForApproval reports whether the canary waits on a confirm-rollout webhook.
func (t *tick) waitsForApproval() bool {
	return t.s.Phase == Waiting && t.s.gateType() != HookConfirmTrafficIncrease
}

// begin resets the counters for the revision of the target.
func (t *tick) begin(p Phase) {
	t.enter(p)
	s := &t.s
	s.AppliedSpec, s.Gate, s.Values, s.Reason = t.revision, nil, nil, ""
	s.FailedChecks, s.Iterations, s.PreRollout, s.Confirmed = 0, 0, false, false
	s.clearNotReady()
	t.starting = false
}

// The values of [Status.NotReady].
const (
	thePrimary   = "primary"
	theCanary    = "canary"
	thePromotion = "promotion"
	theTraffic   = "traffic"
)

// primaryReady waits for the primary. With skipAnalysis the primary may be broken,
// since the new revision may repair it.
func (t *tick) primaryReady() bool {
	if t.Canary.Spec.SkipAnalysis && !unseen.has(t.s.Phase) && !t.s.promoted() {
		return true
	}
	return t.checkReady(thePrimary, t.Target.PrimaryReady, t.primaryStuck)
}

// canaryReady waits for the canary.
func (t *tick) canaryReady() bool {
	return t.checkReady(theCanary, t.Target.CanaryReady, func(reason string) {
		t.decideRollback(EventCanaryStuck, eventDetail{reason: reason})
	})
}

// checkReady calls ask and reports whether it succeeded. If not, the tick ends. After
// progressDeadlineSeconds, or at once if the error is ErrStuck, checkReady calls stuck.
func (t *tick) checkReady(part string, ask func(context.Context) error, stuck func(reason string)) bool {
	err := ask(t.ctx)
	if err == nil {
		t.markReady(part)
		return true
	}
	if t.contextEnded() {
		return false
	}
	reason := part + ": " + err.Error()
	if late := t.markNotReady(part); late || errors.Is(err, ErrStuck) {
		stuck(reason)
		return false
	}
	t.emit(EventNotReady, eventDetail{reason: reason})
	return false
}

// markNotReady records that a part is not ready, and reports whether this has lasted for
// progressDeadlineSeconds.
func (t *tick) markNotReady(part string) (late bool) {
	if t.s.NotReady != part {
		t.s.NotReady, t.s.NotReadySince = part, t.now
	}
	return t.now.Sub(t.s.NotReadySince) >= t.Canary.ProgressDeadline()
}

// markReady records that a part is ready.
func (t *tick) markReady(part string) {
	if t.s.NotReady == part {
		t.s.clearNotReady()
	}
}

// primaryStuck ends a rollout that cannot continue without the primary. If the
// primary has the new revision, all traffic goes to the canary; before that, the
// rollout is rolled back. Before a rollout, no traffic is moved.
func (t *tick) primaryStuck(reason string) {
	switch a := (eventDetail{reason: reason}); {
	case t.s.promoted():
		t.promotionFailed(a)
	case active.has(t.s.Phase):
		t.s.AppliedSpec = t.revision // even if the rollout of it has not begun
		t.decideRollback(EventPrimaryStuck, a)
	default:
		t.s.AppliedSpec = t.revision
		t.end(Failed, EventPrimaryStuck, a)
	}
}

// hooks returns the webhooks of a type, in list order.
func (t *tick) hooks(kind HookType) []Hook {
	var hooks []Hook
	for _, h := range t.Canary.Spec.Analysis.Webhooks {
		if h.Type = h.Kind(); h.Type == kind {
			hooks = append(hooks, h)
		}
	}
	return hooks
}

// call calls a webhook and returns its answer and the verdict. If ok is false, ctx
// has ended and there is no outcome.
func (t *tick) call(h Hook) (answer string, verdict Verdict, ok bool) {
	answer, err, ok := t.post(h)
	return answer, h.Type.Judge(err), ok
}

func (t *tick) post(h Hook) (message string, err error, ok bool) {
	payload := Payload{
		Name: t.Canary.Metadata.Name, Namespace: t.Canary.Namespace(),
		Phase: t.s.Phase, Checksum: t.checksum(), Metadata: t.metadata(h),
	}
	answer, err := t.Hooks.Call(t.ctx, h, payload)
	if err != nil && t.contextEnded() {
		return "", err, false
	}
	return answerText(answer, err), err, true
}

// A confirmation describes how one type of confirm webhook holds a canary.
type confirmation struct {
	phase       Phase // while the gate is closed
	waits, pass EventCode
}

var gates = map[HookType]confirmation{
	HookConfirmRollout:         {Waiting, EventRolloutWaits, EventRolloutPass},
	HookConfirmTrafficIncrease: {Waiting, EventTrafficWaits, EventTrafficPass},
	HookConfirmPromotion:       {Progressing, EventPromotionWaits, EventPromotionPass},
}

// confirm calls the confirm webhooks of a type in order and reports whether all
// pass. The canary waits on the first that does not.
func (t *tick) confirm(kind HookType) bool {
	if t.skipsGates() {
		return true
	}
	var passed []eventDetail
	for _, h := range t.hooks(kind) {
		answer, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		if verdict != Pass {
			t.waitOnGate(h, answer)
			return false
		}
		passed = append(passed, eventDetail{name: h.Name, reason: answer})
	}
	for _, a := range passed {
		t.emit(gates[kind].pass, a)
	}
	return true
}

// waitOnGate makes the canary wait on a gate. It emits an event with an alert when the
// wait begins. If the deadline of the gate has passed, it decides a rollback.
func (t *tick) waitOnGate(h Hook, answer string) {
	kind := gates[h.Type]
	if t.starting {
		restarted := active.has(t.s.Phase)
		if t.begin(kind.phase); restarted {
			t.emit(EventRevisionRestart, eventDetail{})
		}
	}
	t.enter(kind.phase)
	gate := Gate{Type: h.Type, Name: h.Name, Since: t.now, Reason: answer}
	was := t.s.Gate
	again := was != nil && was.Type == h.Type && was.Name == h.Name
	if again {
		gate.Since = was.Since
	}
	t.s.Gate = &gate
	a := eventDetail{name: h.Name, reason: answer, muted: h.MuteAlert}
	if !again {
		t.emit(kind.waits, a)
	}
	if closed := t.now.Sub(gate.Since); h.Deadline > 0 && closed >= time.Duration(h.Deadline) {
		a.muted = false
		t.decideRollback(EventGateExpired, a)
	}
}

// rollbackHooks calls the rollback webhooks until one asks for a rollback. Since
// they are called in every tick, an answer against a rollback emits no event; a
// missing answer does.
func (t *tick) rollbackHooks() bool {
	if t.Canary.Spec.SkipAnalysis || t.skipsGates() {
		return true
	}
	for _, h := range t.hooks(HookRollback) {
		answer, err, ok := t.post(h)
		if !ok {
			return false
		}
		a := eventDetail{name: h.Name, reason: answer}
		if h.Type.Judge(err) == Fire {
			t.decideRollback(EventRollbackFired, a)
			return false
		}
		if _, answered := errors.AsType[*StatusError](err); !answered {
			t.emit(EventRollbackError, a)
		}
	}
	return true
}

// postRollout calls all post-rollout webhooks, in the step after the one that
// returned the end of the rollout. It emits the result of each call.
func (t *tick) postRollout() bool {
	if !t.s.PostRollout {
		return true
	}
	for _, h := range t.hooks(HookPostRollout) {
		answer, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		code := EventPostRolloutPass
		if verdict != Pass {
			code = EventPostRolloutFail
		}
		t.emit(code, eventDetail{name: h.Name, reason: answer})
	}
	t.s.PostRollout = false
	return false
}
