package simulate

import (
	"slices"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// A forecast is what the specification says a canary is in, told from the
// outcomes alone. It is written from the specification and from the decisions
// of docs/rollout.md, and it shares nothing with the engine.
type forecast struct {
	phase            rollout.Phase
	weight           int // of the routes
	mirrored         bool
	failed, iters    int
	gate             rollout.HookType
	post             bool // post-rollout webhooks are due
	applied, primary string

	since    time.Time // the gate is closed
	closed   string    // the webhook that closed it
	waitsFor Subject   // what is not ready
	unready  time.Time
	tested   bool // the pre-rollout webhooks passed
	leaving  bool // a rollback is decided and not done
}

// tick is the next state.
func (f *forecast) tick(k sky) {
	switch {
	case k.canary.Spec.Suspend:
		return
	case f.post:
		f.post = false
		return
	case f.leaving:
		f.rollback(k)
		return
	case f.fired(k):
		f.leave()
		return
	case k.fails(Target, revision) || f.settled(k):
		return
	}
	fresh, over := false, false
	if f.active() && !f.given() {
		if fresh, over = f.begins(k); over {
			return
		}
	}
	switch {
	case f.phase != "" && k.canary.Spec.SkipAnalysis && !f.given():
	default:
		switch f.ready(k, Primary) {
		case notReady:
			return
		case stuck:
			f.primaryStuck(k)
			return
		}
	}
	switch {
	case f.phase == "":
		f.phase, f.applied, f.primary = rollout.Initialized, k.target, k.target
		return
	case k.fails(Traffic):
		return
	}
	if !fresh && (!f.active() || f.given()) {
		if fresh, over = f.begins(k); over {
			return
		}
	}
	switch {
	case fresh || f.phase == rollout.Waiting && f.gate == rollout.HookConfirmRollout:
		f.approve(k, fresh)
	case f.phase == rollout.Promoting && !f.given():
		f.copied(k)
	case f.phase == rollout.Promoting:
		f.promoting(k)
	case f.phase == rollout.Finalising:
		if f.route(k, 0, false) {
			f.finalising(k)
		}
	default:
		f.analyse(k)
	}
}

// fired reports whether a rollback webhook asks for a rollback.
func (f *forecast) fired(k sky) bool {
	_, fired := k.first(rollout.HookRollback, 202, true)
	return fired && f.analysed() && !k.canary.Spec.SkipAnalysis
}

func (f *forecast) analysed() bool {
	return f.phase == rollout.Progressing || f.phase == rollout.Waiting
}

func (f *forecast) active() bool { return f.analysed() || promoting(f.phase) }

// given reports whether the primary has the revision.
func (f *forecast) given() bool {
	return promoting(f.phase) && f.applied != "" && f.primary == f.applied
}

// settled reports whether no rollout is under way and none begins.
func (f *forecast) settled(k sky) bool {
	switch f.phase {
	case rollout.Initialized, rollout.Succeeded, rollout.Failed:
		known := k.target == f.applied || k.target == f.primary
		if known {
			f.waitsFor = ""
		}
		if known && f.phase == rollout.Failed {
			f.applied = k.target // a revision that failed can come again
		}
		return known
	}
	return false
}

// begins reports whether a rollout of another revision begins, and whether that is all for the tick.
func (f *forecast) begins(k sky) (fresh, over bool) {
	switch f.phase {
	case rollout.Initialized, rollout.Succeeded, rollout.Failed:
		return true, !f.route(k, 0, false)
	}
	if k.target == f.applied {
		return false, false
	}
	if k.target == f.primary && !f.given() {
		f.applied = k.target
		f.leave()
		return false, true
	}
	if !f.given() {
		f.applied = "" // nothing is under analysis until the new one begins
	}
	if !f.given() && k.says(Traffic) != "" || !f.route(k, 0, false) {
		return false, true
	}
	_, gated := k.any(rollout.HookConfirmRollout)
	if gated && !(f.phase == rollout.Waiting && f.gate == rollout.HookConfirmRollout) && k.fails(Target, scaleDown) {
		return false, true
	}
	return true, false
}

func (f *forecast) approve(k sky, fresh bool) {
	h, closed := k.first(rollout.HookConfirmRollout, 202, false)
	if closed {
		if fresh {
			f.anew(k)
		}
		f.phase = rollout.Waiting
		f.hold(k, h)
		return
	}
	if k.fails(Target, scaleUp) {
		return
	}
	f.anew(k)
	f.phase = rollout.Progressing
}

func (f *forecast) anew(k sky) {
	f.applied, f.failed, f.iters, f.tested, f.gate, f.waitsFor = k.target, 0, 0, false, "", ""
}

// hold waits on a gate, or rolls back after its deadline.
func (f *forecast) hold(k sky, h rollout.Hook) {
	if f.gate != h.Type || f.closed != h.Name {
		f.gate, f.closed, f.since = h.Type, h.Name, k.now
	}
	if h.Deadline > 0 && k.now.Sub(f.since) >= time.Duration(h.Deadline) {
		f.leave()
	}
}

func (f *forecast) analyse(k sky) {
	switch f.ready(k, Canary) {
	case notReady:
		return
	case stuck:
		f.leave()
		return
	}
	if k.canary.Spec.SkipAnalysis {
		if f.route(k, 0, false) {
			f.promote()
		}
		return
	}
	if !f.checked(k) {
		return
	}
	a := k.canary.Spec.Analysis
	switch {
	case a.Iterations > 0 && f.iters < a.Iterations:
		weight := 0
		if len(a.Match) > 0 {
			weight = 100
		}
		if f.move(k, weight, weight == 0 && a.Mirror) {
			f.iters++
		}
	case a.Iterations > 0 && len(a.Match) == 0 && f.iters == a.Iterations: // blue/green: the switch
		if f.confirmed(k, rollout.HookConfirmPromotion, rollout.Progressing) && f.move(k, 100, false) {
			f.iters++
		}
	case a.Iterations > 0 && len(a.Match) == 0:
		f.promote()
	case a.Iterations > 0 || f.weight >= k.steps()[len(k.steps())-1]:
		if f.confirmed(k, rollout.HookConfirmPromotion, rollout.Progressing) {
			f.promote()
		}
	case a.Mirror && f.weight == 0 && !f.mirrored:
		f.move(k, 0, true)
	case f.confirmed(k, rollout.HookConfirmTrafficIncrease, rollout.Waiting):
		f.phase = rollout.Progressing
		i := slices.IndexFunc(k.steps(), func(w int) bool { return w > f.weight })
		f.move(k, k.steps()[i], false)
	}
}

// checked runs the pre-rollout webhooks once, and webhooks and metrics from the first step on.
func (f *forecast) checked(k sky) bool {
	fail, decided := false, true
	if !f.tested {
		_, fail = k.first(rollout.HookPreRollout, 202, false)
		f.tested = !fail
	}
	if !fail && (f.weight > 0 || f.mirrored || f.iters > 0) {
		if _, fail = k.first(rollout.HookRollout, 202, false); !fail {
			fail, decided = k.metrics()
		}
	}
	if !fail {
		return decided
	}
	f.fail(k)
	return false
}

// fail counts a failed check.
func (f *forecast) fail(k sky) {
	if f.failed++; f.failed >= max(k.canary.Spec.Analysis.Threshold, 1) {
		f.leave()
	}
}

// move gives the canary its traffic. That it cannot be given counts after the deadline.
func (f *forecast) move(k sky, weight int, mirrored bool) bool {
	says := setFailing
	if f.route(k, weight, mirrored) {
		says = ready
	}
	says = f.when(k, Traffic, says)
	if says == stuck {
		f.fail(k)
	}
	return says == ready
}

func (f *forecast) confirmed(k sky, of rollout.HookType, closed rollout.Phase) bool {
	h, shut := k.first(of, 200, false)
	if shut {
		f.phase = closed
		f.hold(k, h)
	} else {
		f.gate = ""
	}
	return !shut
}
