package rollout

import (
	"errors"
	"time"
)

// hooks are the webhooks of a type, in list order.
func (t *tick) hooks(kind HookType) []Hook {
	var hooks []Hook
	for _, h := range t.Canary.Spec.Analysis.Webhooks {
		if h.Type = h.kind(); h.Type == kind {
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

// A door is how a type of confirm webhooks holds a canary.
type door struct {
	phase       Phase // while it is closed
	waits, pass EventCode
}

var gates = map[HookType]door{
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
	var passed []about
	for _, h := range t.hooks(kind) {
		said, verdict, ok := t.call(h)
		if !ok {
			return false
		}
		if verdict != Pass {
			t.hold(h, said)
			return false
		}
		passed = append(passed, about{name: h.Name, reason: said})
	}
	for _, a := range passed {
		t.emit(gates[kind].pass, a)
	}
	return true
}

// hold makes the canary wait on a gate. That is told, and people are alerted,
// when it begins. A gate with a deadline that has passed rolls back.
func (t *tick) hold(h Hook, said string) {
	door := gates[h.Type]
	if t.fresh {
		restarted := active.has(t.s.Phase)
		if t.begin(door.phase); restarted {
			t.emit(EventRevisionRestart, about{})
		}
	}
	t.enter(door.phase)
	gate := Gate{Type: h.Type, Name: h.Name, Since: t.now, Reason: said}
	was := t.s.Gate
	again := was != nil && was.Type == h.Type && was.Name == h.Name
	if again {
		gate.Since = was.Since
	}
	t.s.Gate = &gate
	a := about{name: h.Name, reason: said, muted: h.MuteAlert}
	if !again {
		t.emit(door.waits, a)
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
		a := about{name: h.Name, reason: said}
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
		t.emit(code, about{name: h.Name, reason: said})
	}
	t.s.PostRollout = false
	return false
}
