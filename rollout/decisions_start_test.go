package rollout_test

import (
	"fmt"
	"maps"
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
