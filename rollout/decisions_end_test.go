package rollout_test

import (
	"time"

	"github.com/headgate-io/headgate/rollout"
)

const cp = "cp"

// iterating is a canary of iterations.
func (x *scenario) iterating(of, done int) {
	x.c.Spec.Analysis = rollout.Settings{
		Interval: x.c.Spec.Analysis.Interval, Threshold: 2, Iterations: of,
		Metrics: x.c.Spec.Analysis.Metrics, Webhooks: x.c.Spec.Analysis.Webhooks,
	}
	x.weight(0)
	x.s.Iterations, x.s.PreRollout = done, done > 0
}

// matching is an A/B test.
func (x *scenario) matching(of, done int) {
	x.iterating(of, done)
	x.c.Spec.Analysis.Match = []rollout.Match{{Headers: map[string]rollout.StringMatch{"x": {Exact: "y"}}}}
	if done > 0 {
		x.weight(100)
	}
}

// mirrored makes the first step a mirrored one, done or not.
func (x *scenario) mirrored(done bool) {
	x.weight(0)
	x.c.Spec.Analysis.Mirror, x.w.routes.Mirrored = true, done
	x.s.PreRollout = done
}

// advancing are scenarios of the strategies, and of confirm-promotion.
var advancing = map[string]func(*scenario){
	"Progressing: step over the maximum":                  func(x *scenario) { x.weight(40) },
	"Progressing: stepWeights":                            func(x *scenario) { x.steps(1) },
	"Progressing: stepWeights, weight in between":         func(x *scenario) { x.steps(5) },
	"Progressing: stepWeights, at the last":               func(x *scenario) { x.steps(30) },
	"Progressing: mirror, first step":                     func(x *scenario) { x.mirrored(false) },
	"Progressing: mirror, after the first step":           func(x *scenario) { x.mirrored(true) },
	"Progressing: mirror, after it, ti closed":            func(x *scenario) { x.mirrored(true); x.w.answers["ti"] = 403 },
	"Progressing: at the maximum, cp passes":              func(x *scenario) { x.weight(50) },
	"Progressing: over the maximum by hand":               func(x *scenario) { x.weight(70) },
	"Progressing: at the maximum, cp closed":              func(x *scenario) { x.weight(50); x.w.answers[cp] = 403 },
	"Progressing: at the maximum, cp answers 201":         func(x *scenario) { x.weight(50); x.w.answers[cp] = 201 },
	"Progressing: at the maximum, cp closed, mute":        func(x *scenario) { x.weight(50); x.w.answers[cp] = 403; x.hook(cp).MuteAlert = true },
	"Progressing: at cp, closed":                          func(x *scenario) { x.atGate() },
	"Progressing: at cp, ro fails":                        func(x *scenario) { x.atGate(); x.w.answers["ro"] = 500 },
	"Progressing: at cp, ro fails, threshold":             func(x *scenario) { x.atGate(); x.last(); x.w.answers["ro"] = 500 },
	"Progressing: at cp, passes":                          func(x *scenario) { x.atGate(); x.w.answers[cp] = 200 },
	"Progressing: at cp, rb fires":                        func(x *scenario) { x.atGate(); x.w.answers["rb"] = 200 },
	"Progressing: at cp, closed for its deadline":         func(x *scenario) { x.atGate(); x.deadlineOf(cp, time.Minute) },
	"Progressing: at cp, closed within deadline":          func(x *scenario) { x.atGate(); x.deadlineOf(cp, time.Hour) },
	"Progressing: at cp, another revision":                func(x *scenario) { x.atGate(); x.w.revision = "v3" },
	"Progressing: a/b, first iteration":                   func(x *scenario) { x.matching(2, 0) },
	"Progressing: a/b, next iteration":                    func(x *scenario) { x.matching(2, 1) },
	"Progressing: a/b, last is over, cp passes":           func(x *scenario) { x.matching(2, 2) },
	"Progressing: a/b, last is over, cp closed":           func(x *scenario) { x.matching(2, 2); x.w.answers[cp] = 403 },
	"Progressing: blue/green, first iteration":            func(x *scenario) { x.iterating(2, 0) },
	"Progressing: blue/green, mirror, first one":          func(x *scenario) { x.iterating(2, 0); x.c.Spec.Analysis.Mirror = true },
	"Progressing: blue/green, next iteration":             func(x *scenario) { x.iterating(2, 1) },
	"Progressing: blue/green, last is over, cp passes":    func(x *scenario) { x.iterating(2, 2) },
	"Progressing: blue/green, last is over, cp closed":    func(x *scenario) { x.iterating(1, 1); x.w.answers[cp] = 403 },
	"Progressing: blue/green, fewer iterations than done": func(x *scenario) { x.iterating(2, 3); x.w.answers[cp] = 403 },
	"Progressing: blue/green, all traffic at the canary":  func(x *scenario) { x.iterating(2, 3); x.s.Confirmed = true; x.weight(100) },
	"Progressing: blue/green, all traffic, ro fails": func(x *scenario) {
		x.iterating(2, 3)
		x.s.Confirmed, x.w.answers["ro"] = true, 500
		x.weight(100)
	},
}

// steps makes the steps 1, 10 and 30 percent.
func (x *scenario) steps(now int) {
	x.c.Spec.Analysis.StepWeight, x.c.Spec.Analysis.StepWeights = 0, []int{1, 10, 30}
	x.weight(now)
}

// copying makes a promotion one that was decided and is not done yet.
func (x *scenario) copying() { x.s.PromotedSpec = "" }

// skipping is copying without an analysis.
func (x *scenario) skipping() {
	x.copying()
	x.weight(0)
	x.c.Spec.SkipAnalysis = true
}

// ending are scenarios of the promotion.
var ending = map[string]func(*scenario){
	"Promoting: to be copied":                              func(x *scenario) { x.copying() },
	"Promoting: to be copied, fails":                       func(x *scenario) { x.copying(); x.w.fails["promote"] = errScripted },
	"Promoting: to be copied, fails for the deadline":      func(x *scenario) { x.copying(); x.deadline("promotion"); x.w.fails["promote"] = errScripted },
	"Promoting: to be copied, never can be":                func(x *scenario) { x.copying(); x.w.fails["promote"] = errStuck },
	"Promoting: to be copied, primary stuck":               func(x *scenario) { x.copying(); x.w.fails["primary"] = errStuck },
	"Promoting: to be copied, another revision":            func(x *scenario) { x.copying(); x.w.revision = "v3" },
	"Promoting: skipAnalysis, to be copied":                func(x *scenario) { x.skipping() },
	"Promoting: skipAnalysis, to be copied, primary stuck": func(x *scenario) { x.skipping(); x.w.fails["primary"] = errStuck },
	"Promoting: skipAnalysis, to be copied, fails":         func(x *scenario) { x.skipping(); x.w.fails["promote"] = errScripted },
	"Promoting: skipAnalysis, scale down fails":            func(x *scenario) { x.skipping(); x.w.fails["down"] = errScripted },
	"Finalising: skipAnalysis, canary gone":                func(x *scenario) { x.c.Spec.SkipAnalysis = true; x.w.fails["canary"] = errScripted },
	"Promoting: to be copied, rollback to be done":         func(x *scenario) { x.copying(); x.s.RollingBack = true },
	"Promoting: primary ready":                             func(x *scenario) {},
	"Promoting: primary not ready":                         func(x *scenario) { x.w.fails["primary"] = errScripted },
	"Promoting: primary stuck":                             func(x *scenario) { x.w.fails["primary"] = errStuck },
	"Promoting: primary stuck, skipAnalysis":               func(x *scenario) { x.w.fails["primary"] = errStuck; x.c.Spec.SkipAnalysis = true },
	"Promoting: primary not ready for the deadline":        func(x *scenario) { x.deadline("primary") },
	"Promoting: primary stuck, routing fails":              func(x *scenario) { x.w.fails["primary"] = errStuck; x.w.fails["set"] = errScripted },
	"Promoting: routing fails":                             func(x *scenario) { x.w.fails["set"] = errScripted },
	"Promoting: stepWeightPromotion":                       func(x *scenario) { x.c.Spec.Analysis.StepWeightPromotion = 30 },
	"Promoting: stepWeightPromotion, last step":            func(x *scenario) { x.c.Spec.Analysis.StepWeightPromotion = 30; x.weight(20) },
	"Promoting: stepWeightPromotion, weight 0":             func(x *scenario) { x.c.Spec.Analysis.StepWeightPromotion = 30; x.weight(0) },
	"Promoting: another revision, cr closed":               func(x *scenario) { x.w.revision, x.w.answers["cr"] = "v3", 403 },
	"Promoting: another revision, cr passes":               func(x *scenario) { x.w.revision = "v3" },
	"Promoting: revision of before":                        func(x *scenario) { x.w.revision = "v1" },
	"Finalising: primary ready":                            func(x *scenario) {},
	"Finalising: a check failed before":                    func(x *scenario) { x.s.FailedChecks = 1 },
	"Finalising: scale down fails":                         func(x *scenario) { x.w.fails["down"] = errScripted },
	"Finalising: no post-rollout webhook":                  func(x *scenario) { x.without(rollout.HookPostRollout) },
	"Finalising: primary not ready":                        func(x *scenario) { x.w.fails["primary"] = errScripted },
	"Finalising: primary stuck":                            func(x *scenario) { x.w.fails["primary"] = errStuck },
	"Finalising: primary stuck, canary gone": func(x *scenario) {
		x.w.fails["primary"], x.w.fails["canary"] = errStuck, errScripted
	},
	"Finalising: another revision, cr passes": func(x *scenario) { x.w.revision = "v3" },
}
