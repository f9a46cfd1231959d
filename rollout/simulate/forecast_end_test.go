package simulate

import (
	"cmp"

	"github.com/headgate-io/headgate/rollout"
)

// promote waits for the decision to be stored.
func (f *forecast) promote() { f.phase, f.primary, f.gate = rollout.Promoting, "", "" }

func (f *forecast) copied(k sky) {
	switch f.when(k, promotion, cmp.Or(k.says(Target, promote), ready)) {
	case ready:
		f.primary = f.applied
		if k.canary.Spec.SkipAnalysis && f.route(k, 0, false) {
			f.finalising(k)
		}
	case stuck:
		f.primaryStuck(k)
	}
}

func (f *forecast) promoting(k sky) {
	step := cmp.Or(k.canary.Spec.Analysis.StepWeightPromotion, 100)
	if weight := max(0, f.weight-step); f.route(k, weight, false) && weight == 0 {
		if f.phase = rollout.Finalising; k.canary.Spec.SkipAnalysis {
			f.finalising(k)
		}
	}
}

func (f *forecast) finalising(k sky) {
	if f.phase = rollout.Finalising; !k.fails(Target, scaleDown) {
		f.end(k, rollout.Succeeded)
	}
}

// primaryStuck fails a promotion with all traffic at the canary, and anything else with none.
func (f *forecast) primaryStuck(k sky) {
	switch {
	case f.given():
		if (f.phase == rollout.Finalising || f.weight == 0) && (k.fails(Target, scaleUp) || k.says(Canary) != "") {
			f.primary = ""
			f.end(k, rollout.Failed) // the canary may be scaled down, and does not come back
		} else if k.says(Traffic) != setFailing && f.route(k, 100, false) {
			f.primary = "" // it is not ready with any
			f.end(k, rollout.Failed)
		}
	case f.active():
		f.applied = k.target
		f.leave()
	default:
		f.applied = k.target
		f.end(k, rollout.Failed)
	}
}

// leave waits for the decision to be stored.
func (f *forecast) leave() { f.leaving = true }

func (f *forecast) rollback(k sky) {
	if f.route(k, 0, false) && !k.fails(Target, scaleDown) {
		f.end(k, rollout.Failed)
	}
}

func (f *forecast) route(k sky, weight int, mirrored bool) bool {
	same := f.weight == weight && f.mirrored == mirrored
	if s := k.says(Traffic); s == failing || s == setFailing && !(same && !f.leaving) {
		return false
	}
	f.weight, f.mirrored = weight, mirrored
	return true
}

func (f *forecast) end(k sky, p rollout.Phase) {
	_, f.post = k.any(rollout.HookPostRollout)
	f.phase, f.gate, f.leaving, f.tested, f.waitsFor = p, "", false, false, ""
}
