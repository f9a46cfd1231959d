package rollout_test

import (
	"fmt"
	"math"
	"time"

	"github.com/headgate-io/headgate/rollout"
)

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
