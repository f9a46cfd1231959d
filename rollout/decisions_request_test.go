package rollout_test

import "github.com/headgate-io/headgate/rollout"

// ask is a request that is not accepted yet.
func (x *scenario) ask(action rollout.Action) {
	x.s.Request = &rollout.Request{ID: "1", Action: action, Revision: x.s.AppliedSpec, By: "ann", Reason: "5xx"}
}

// askUngated asks for a promotion without gates.
func (x *scenario) askUngated() {
	x.ask(rollout.Promote)
	x.s.Request.SkipGates = true
}

// requests are scenarios in which a person asks for something.
var requests = map[string]func(*scenario){
	"none: aborted":                                  func(x *scenario) { x.ask(rollout.Abort) },
	"Initialized: aborted":                           func(x *scenario) { x.ask(rollout.Abort) },
	"Initialized: asked to promote":                  func(x *scenario) { x.ask(rollout.Promote) },
	"Waiting: at cr, aborted":                        func(x *scenario) { x.ask(rollout.Abort) },
	"Waiting: at cr, asked to promote":               func(x *scenario) { x.ask(rollout.Promote) },
	"Waiting: at cr, asked to promote without gates": func(x *scenario) { x.askUngated() },
	"Waiting: at ti, aborted":                        func(x *scenario) { x.onTraffic(); x.ask(rollout.Abort) },
	"Waiting: at ti, asked to promote":               func(x *scenario) { x.onTraffic(); x.ask(rollout.Promote) },
	"Progressing: aborted": func(x *scenario) {
		x.ask(rollout.Abort)
		x.w.fails["revision"] = errScripted
	},
	"Progressing: first rollout, aborted": func(x *scenario) { x.s.PromotedSpec = ""; x.ask(rollout.Abort) },
	"Progressing: aborted, of another revision": func(x *scenario) {
		x.ask(rollout.Abort)
		x.s.Request.Revision = "v0"
	},
	"Progressing: aborted, told before":          func(x *scenario) { x.ask(rollout.Abort); x.s.Request.Accepted, x.s.RollingBack = true, true },
	"Progressing: asked to promote":              func(x *scenario) { x.ask(rollout.Promote) },
	"Progressing: asked to promote, told before": func(x *scenario) { x.ask(rollout.Promote); x.s.Request.Accepted = true },
	"Progressing: asked to promote, cp closed":   func(x *scenario) { x.ask(rollout.Promote); x.w.answers["cp"] = 403 },
	"Progressing: asked to promote, rb fires":    func(x *scenario) { x.ask(rollout.Promote); x.w.answers["rb"] = 200 },
	"Progressing: asked to promote without gates": func(x *scenario) {
		x.askUngated()
		x.w.answers["rb"], x.w.answers["cp"] = 200, 403
	},
	"Progressing: asked to promote, canary not ready": func(x *scenario) { x.ask(rollout.Promote); x.w.fails["canary"] = errScripted },
	"Progressing: asked to promote without gates, another revision": func(x *scenario) {
		x.askUngated()
		x.w.revision, x.w.answers["cr"] = "v3", 403
	},
	"Progressing: blue/green, asked to promote": func(x *scenario) { x.iterating(2, 1); x.ask(rollout.Promote) },
	"Promoting: to be copied, aborted":          func(x *scenario) { x.s.PromotedSpec = ""; x.ask(rollout.Abort) },
	"Promoting: aborted":                        func(x *scenario) { x.ask(rollout.Abort) },
	"Failed: aborted":                           func(x *scenario) { x.ask(rollout.Abort) },
}
