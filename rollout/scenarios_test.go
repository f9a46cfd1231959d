package rollout_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

// scenarios are by phase and condition, as the first two columns of the table.
var scenarios = func() map[string]func(*scenario) {
	all := map[string]func(*scenario){}
	for _, part := range []map[string]func(*scenario){beforeRollout, waitingForRollout, waitingForTraffic, underAnalysis, failing, advancing, ending, requests} {
		maps.Copy(all, part)
	}
	return all
}()

var errStuck = fmt.Errorf("scripted: %w", rollout.ErrStuck)

// deadline lets progressDeadlineSeconds pass in which something is not ready.
func (x *scenario) deadline(what string) {
	x.w.fails[what] = errScripted
	x.s.NotReady, x.s.NotReadySince = what, epoch
	x.time = epoch.Add(10 * time.Minute)
}

// beforeRollout are scenarios in which no rollout is under way.
var beforeRollout = map[string]func(*scenario){
	"none: primary ready":                           func(x *scenario) {},
	"none: primary not ready":                       func(x *scenario) { x.w.fails["primary"] = errScripted },
	"none: primary stuck":                           func(x *scenario) { x.w.fails["primary"] = errStuck },
	"none: primary not ready for the deadline":      func(x *scenario) { x.deadline("primary") },
	"Initialized: suspended":                        func(x *scenario) { x.c.Spec.Suspend = true },
	"Initialized: suspended, told before":           func(x *scenario) { x.c.Spec.Suspend, x.s.Suspended = true, true },
	"Initialized: same revision":                    func(x *scenario) { x.w.revision = "v1" },
	"Initialized: no revision applied":              func(x *scenario) { x.s.AppliedSpec, x.s.PromotedSpec = "", "" },
	"Initialized: new revision, cr passes":          func(x *scenario) {},
	"Initialized: new revision, cr answers 202":     func(x *scenario) { x.w.answers["cr"] = 202 },
	"Initialized: new revision, no cr webhook":      func(x *scenario) { x.without(rollout.HookConfirmRollout) },
	"Initialized: new revision, cr closed":          func(x *scenario) { x.w.answers["cr"] = 403 },
	"Initialized: new revision, cr does not answer": func(x *scenario) { x.w.fails["hook cr"] = errScripted },
	"Initialized: new revision, cr closed, muteAlert": func(x *scenario) {
		x.w.answers["cr"] = 403
		x.hook("cr").MuteAlert = true
	},
	"Initialized: new revision, second cr closed": func(x *scenario) { x.second(rollout.HookConfirmRollout, 403) },
	"Initialized: new revision, scale up fails":   func(x *scenario) { x.w.fails["up"] = errScripted },
	"Initialized: new revision, routes by hand":   func(x *scenario) { x.weight(30) },
	"Initialized: new revision, primary not ready": func(x *scenario) {
		x.w.fails["primary"] = errScripted
	},
	"Initialized: new revision, primary stuck": func(x *scenario) { x.w.fails["primary"] = errStuck },
	"Initialized: new revision, primary stuck, skipAnalysis": func(x *scenario) {
		x.w.fails["primary"] = errStuck
		x.c.Spec.SkipAnalysis = true
	},
	"Initialized: revision unknown":  func(x *scenario) { x.w.fails["revision"] = errScripted },
	"Initialized: revision is empty": func(x *scenario) { x.w.revision = "" },
	"Initialized: routes unknown":    func(x *scenario) { x.w.fails["routes"] = errScripted },
	"Succeeded: same revision":       func(x *scenario) {},
	"Succeeded: new revision, cr closed": func(x *scenario) {
		x.w.revision, x.w.answers["cr"] = "v3", 403
	},
	"Succeeded: new revision, cr passes":  func(x *scenario) { x.w.revision = "v3" },
	"Failed: same revision":               func(x *scenario) {},
	"Failed: revision of the primary":     func(x *scenario) { x.w.revision = "v1" },
	"Failed: new revision, cr passes":     func(x *scenario) { x.w.revision = "v3" },
	"Failed: promotion failed, cr closed": func(x *scenario) { x.w.revision = "v3"; x.weight(100); x.w.answers["cr"] = 403 },
	"Failed: promotion failed, still so":  func(x *scenario) { x.w.revision = "v3"; x.weight(100); x.w.fails["primary"] = errStuck },
	"Succeeded: post-rollout to be done":  func(x *scenario) { x.s.PostRollout = true },
	"Failed: post-rollout to be done":     func(x *scenario) { x.s.PostRollout = true },
	"Failed: post-rollout, the first fails": func(x *scenario) {
		x.s.PostRollout, x.w.answers["po"] = true, 500
		x.second(rollout.HookPostRollout, 200)
	},
}

// without takes the webhooks of a type away.
func (x *scenario) without(of rollout.HookType) {
	var rest []rollout.Hook
	for _, h := range x.c.Spec.Analysis.Webhooks {
		if h.Type != of {
			rest = append(rest, h)
		}
	}
	x.c.Spec.Analysis.Webhooks = rest
}

// second adds another webhook of a type, which answers with a status.
func (x *scenario) second(of rollout.HookType, answers int) {
	first := slices.IndexFunc(x.c.Spec.Analysis.Webhooks, func(h rollout.Hook) bool { return h.Type == of })
	name := x.c.Spec.Analysis.Webhooks[first].Name + "2"
	x.w.answers[name] = answers
	x.c.Spec.Analysis.Webhooks = append(x.c.Spec.Analysis.Webhooks, rollout.Hook{Name: name, Type: of})
}

// waitingForRollout are scenarios at a closed confirm-rollout webhook.
var waitingForRollout = map[string]func(*scenario){
	"Waiting: at cr, closed":                    func(x *scenario) {},
	"Waiting: at cr, passes":                    func(x *scenario) { x.w.answers["cr"] = 200 },
	"Waiting: at cr, passes, scale up fails":    func(x *scenario) { x.w.answers["cr"] = 200; x.w.fails["up"] = errScripted },
	"Waiting: at cr, passes, second one closed": func(x *scenario) { x.w.answers["cr"] = 200; x.second(rollout.HookConfirmRollout, 403) },
	"Waiting: at cr, closed for its deadline":   func(x *scenario) { x.hook("cr").Deadline = rollout.Duration(time.Minute) },
	"Waiting: at cr, closed for its deadline, muteAlert": func(x *scenario) {
		x.hook("cr").Deadline, x.hook("cr").MuteAlert = rollout.Duration(time.Minute), true
	},
	"Waiting: at cr, passes after its deadline": func(x *scenario) {
		x.hook("cr").Deadline = rollout.Duration(time.Second)
		x.w.answers["cr"] = 200
	},
	"Waiting: at cr, rb fires":                 func(x *scenario) { x.w.answers["rb"] = 200 },
	"Waiting: at cr, rb does not answer":       func(x *scenario) { x.w.fails["hook rb"] = errScripted },
	"Waiting: at cr, another revision, closed": func(x *scenario) { x.w.revision = "v3" },
	"Waiting: at cr, another revision, passes": func(x *scenario) { x.w.revision = "v3"; x.w.answers["cr"] = 200 },
	"Waiting: at cr, revision of the primary":  func(x *scenario) { x.w.revision = "v1" },
	"Waiting: at cr, primary not ready":        func(x *scenario) { x.w.fails["primary"] = errScripted },
	"Waiting: at cr, primary stuck":            func(x *scenario) { x.w.fails["primary"] = errStuck },
	"Waiting: at cr, skipAnalysis":             func(x *scenario) { x.c.Spec.SkipAnalysis = true },
}

// waitingForTraffic are scenarios at a closed confirm-traffic-increase webhook.
var waitingForTraffic = func() map[string]func(*scenario) {
	const ti = "ti"
	of := map[string]func(*scenario){
		"closed":                     func(x *scenario) {},
		"answers 202":                func(x *scenario) { x.w.answers[ti] = 202 },
		"passes":                     func(x *scenario) { x.w.answers[ti] = 200 },
		"closed at weight 0":         func(x *scenario) { x.weight(0); x.w.answers["ro"] = 500; x.w.values["m"] = 0 },
		"passes at weight 0":         func(x *scenario) { x.weight(0); x.w.answers[ti], x.w.answers["ro"] = 200, 500 },
		"closed, copies at weight 0": func(x *scenario) { x.weight(0); x.c.Spec.Analysis.Mirror, x.w.routes.Mirrored = true, true },
		"ro fails":                   func(x *scenario) { x.w.answers["ro"], x.w.answers[ti] = 500, 200 },
		"metric out of range":        func(x *scenario) { x.w.values["m"], x.w.answers[ti] = 98.9, 200 },
		"metric out of range, threshold": func(x *scenario) {
			x.last()
			x.w.values["m"], x.w.answers[ti] = 98.9, 200
		},
		"metric without values, inconclusive": func(x *scenario) {
			x.w.answers[ti] = 200
			x.noValues(rollout.NoValuesInconclusive)
		},
		"passes, routing fails":       func(x *scenario) { x.w.answers[ti] = 200; x.w.fails["set"] = errScripted },
		"closed for its deadline":     func(x *scenario) { x.hook(ti).Deadline = rollout.Duration(time.Minute) },
		"rb fires":                    func(x *scenario) { x.w.answers["rb"] = 202 },
		"failed checks at threshold":  func(x *scenario) { x.s.FailedChecks = 2 },
		"another revision, cr closed": func(x *scenario) { x.w.revision, x.w.answers["cr"] = "v3", 403 },
		"another revision, cr passes": func(x *scenario) { x.w.revision = "v3" },
		"revision of the primary":     func(x *scenario) { x.w.revision = "v1" },
		"canary not ready":            func(x *scenario) { x.w.fails["canary"] = errScripted },
		"canary stuck":                func(x *scenario) { x.w.fails["canary"] = errStuck },
		"maximum reached by hand":     func(x *scenario) { x.weight(50) },
		"skipAnalysis":                func(x *scenario) { x.c.Spec.SkipAnalysis = true },
		"rollback to be done":         func(x *scenario) { x.s.RollingBack = true },
	}
	all := map[string]func(*scenario){}
	for when, set := range of {
		all["Waiting: at ti, "+when] = func(x *scenario) { x.onTraffic(); set(x) }
	}
	return all
}()

// start is the first tick of an analysis.
func (x *scenario) start() { x.weight(0); x.s.PreRollout = false }

// underAnalysis are scenarios in which checks pass or are not come to.
var underAnalysis = map[string]func(*scenario){
	"Progressing: weight 0, pr passes":         func(x *scenario) { x.start() },
	"Progressing: weight 0, pr passed before":  func(x *scenario) { x.weight(0) },
	"Progressing: weight 20 by hand, pr never": func(x *scenario) { x.start(); x.weight(20) },
	"Progressing: checks pass":                 func(x *scenario) {},
	"Progressing: checks pass, no ti webhook":  func(x *scenario) { x.without(rollout.HookConfirmTrafficIncrease) },
	"Progressing: checks pass, ti closed":      func(x *scenario) { x.w.answers["ti"] = 403 },
	"Progressing: checks pass, ti answers 202": func(x *scenario) { x.w.answers["ti"] = 202 },
	"Progressing: checks pass, ti closed, muteAlert": func(x *scenario) {
		x.w.answers["ti"] = 403
		x.hook("ti").MuteAlert = true
	},
	"Progressing: checks pass, routing fails":                             func(x *scenario) { x.w.fails["set"] = errScripted },
	"Progressing: checks pass, routing fails for the deadline":            func(x *scenario) { x.unroutable() },
	"Progressing: checks pass, routing fails for the deadline, threshold": func(x *scenario) { x.unroutable(); x.last() },
	"Progressing: a/b, routing fails for the deadline":                    func(x *scenario) { x.matching(2, 0); x.unroutable() },
	"Progressing: another revision, routing fails for the deadline":       func(x *scenario) { x.w.revision = "v3"; x.unroutable() },
	"Progressing: routing works again":                                    func(x *scenario) { x.unroutable(); delete(x.w.fails, "set") },
	"Progressing: rb fires":                                               func(x *scenario) { x.w.answers["rb"] = 200 },
	"Progressing: second rb fires":                                        func(x *scenario) { x.second(rollout.HookRollback, 200) },
	"Progressing: rb does not answer":                                     func(x *scenario) { x.w.fails["hook rb"] = errScripted },
	"Progressing: rollback to be done, routing fails":                     func(x *scenario) { x.s.RollingBack = true; x.w.fails["set"] = errScripted },
	"Progressing: rollback to be done, scale down fails":                  func(x *scenario) { x.s.RollingBack = true; x.w.fails["down"] = errScripted },
	"Progressing: rollback to be done":                                    func(x *scenario) { x.s.RollingBack = true; x.w.fails["revision"] = errScripted },
	"Progressing: another revision, cr passes":                            func(x *scenario) { x.w.revision = "v3"; x.s.FailedChecks = 1 },
	"Progressing: another revision, cr closed":                            func(x *scenario) { x.w.revision, x.w.answers["cr"] = "v3", 403 },
	"Progressing: another revision, no cr webhook":                        func(x *scenario) { x.w.revision = "v3"; x.without(rollout.HookConfirmRollout) },
	"Progressing: another revision, routing fails":                        func(x *scenario) { x.w.revision = "v3"; x.w.fails["set"] = errScripted },
	"Progressing: another revision, scale down fails": func(x *scenario) {
		x.w.revision = "v3"
		x.w.fails["down"] = errScripted
	},
	"Progressing: revision of the primary":             func(x *scenario) { x.w.revision = "v1" },
	"Progressing: primary not ready":                   func(x *scenario) { x.w.fails["primary"] = errScripted },
	"Progressing: primary stuck":                       func(x *scenario) { x.w.fails["primary"] = errStuck },
	"Progressing: primary stuck, another revision":     func(x *scenario) { x.w.revision = "v3"; x.w.fails["primary"] = errStuck },
	"Progressing: canary not ready":                    func(x *scenario) { x.w.fails["canary"] = errScripted },
	"Progressing: canary not ready for the deadline":   func(x *scenario) { x.deadline("canary") },
	"Progressing: canary stuck":                        func(x *scenario) { x.w.fails["canary"] = errStuck },
	"Progressing: skipAnalysis":                        func(x *scenario) { x.start(); x.c.Spec.SkipAnalysis = true },
	"Progressing: suspended":                           func(x *scenario) { x.c.Spec.Suspend = true },
	"Progressing: routes unknown":                      func(x *scenario) { x.w.fails["routes"] = errScripted },
	"Progressing: primary not ready, another revision": func(x *scenario) { x.w.revision = "v3"; x.w.fails["primary"] = errScripted },
}

// unroutable makes the routes ones that could not be set for progressDeadlineSeconds.
func (x *scenario) unroutable() { x.deadline("traffic"); x.w.fails["set"] = errScripted }

// failing are scenarios of failed checks. The threshold is 2.
var failing = map[string]func(*scenario){
	"Progressing: weight 0, pr fails":                func(x *scenario) { x.start(); x.w.answers["pr"] = 500 },
	"Progressing: weight 0, pr fails, threshold":     func(x *scenario) { x.start(); x.last(); x.w.answers["pr"] = 500 },
	"Progressing: weight 0, first pr fails of two":   func(x *scenario) { x.start(); x.w.answers["pr"] = 204; x.second(rollout.HookPreRollout, 200) },
	"Progressing: weight 0, second pr fails":         func(x *scenario) { x.start(); x.second(rollout.HookPreRollout, 404) },
	"Progressing: ro fails":                          func(x *scenario) { x.w.answers["ro"] = 500 },
	"Progressing: ro does not answer":                func(x *scenario) { x.w.fails["hook ro"] = errScripted },
	"Progressing: first ro fails of two":             func(x *scenario) { x.w.answers["ro"] = 403; x.second(rollout.HookRollout, 200) },
	"Progressing: ro fails, threshold":               func(x *scenario) { x.last(); x.w.answers["ro"] = 500 },
	"Progressing: failed checks at threshold":        func(x *scenario) { x.s.FailedChecks = 2 },
	"Progressing: metric out of range":               func(x *scenario) { x.w.values["m"] = 98.9 },
	"Progressing: metric at the end of the range":    func(x *scenario) { x.w.values["m"] = 99 },
	"Progressing: metric out of range, threshold":    func(x *scenario) { x.last(); x.w.values["m"] = 98.9 },
	"Progressing: metric fails, another one follows": func(x *scenario) { x.w.values["m"] = 0; x.metric(rollout.Metric{Name: "b"}) },
	"Progressing: metric with a template is first":   func(x *scenario) { x.template() },
	"Progressing: metric not known":                  func(x *scenario) { x.w.fails["metric m"] = errScripted },
	"Progressing: metric without values":             func(x *scenario) { x.noValues("") },
	"Progressing: metric is NaN":                     func(x *scenario) { x.w.values["m"] = math.NaN() },
	"Progressing: metric without values, pass":       func(x *scenario) { x.noValues(rollout.NoValuesPass) },
	"Progressing: metric without values, inconclusive": func(x *scenario) {
		x.noValues(rollout.NoValuesInconclusive)
	},
	"Progressing: metric without values, inconclusive, another one fails": func(x *scenario) {
		x.noValues(rollout.NoValuesInconclusive)
		most := 1.0
		x.metric(rollout.Metric{Name: "b", ThresholdRange: &rollout.Range{Max: &most}})
	},
	"Progressing: nobody to ask about metrics": func(x *scenario) { x.a.Metrics = nil },
}

// last makes the next failed check the one that reaches the threshold.
func (x *scenario) last() { x.s.FailedChecks = 1 }

// metric adds a metric.
func (x *scenario) metric(m rollout.Metric) {
	x.c.Spec.Analysis.Metrics = append(x.c.Spec.Analysis.Metrics, m)
}

// template puts a metric with a template before the one without.
func (x *scenario) template() {
	set := &x.c.Spec.Analysis
	set.Metrics = append([]rollout.Metric{{Name: "t", TemplateRef: &rollout.ObjectRef{Name: "t"}}}, set.Metrics...)
}

func (x *scenario) noValues(policy string) {
	x.w.fails["metric m"] = fmt.Errorf("query: %w", rollout.ErrNoValues)
	x.c.Spec.Analysis.Metrics[0].NoValues = policy
}

// atGate makes the canary wait on confirm-promotion at the maximum.
func (x *scenario) atGate() { x.weight(50); x.gate(rollout.HookConfirmPromotion) }

func (x *scenario) deadlineOf(hook string, d time.Duration) {
	x.hook(hook).Deadline = rollout.Duration(d)
}

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
