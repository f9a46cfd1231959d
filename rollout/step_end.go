package rollout

// plans are how the canary of each strategy advances.
var plans = map[Strategy]func(*tick){
	Weighted:  (*tick).shiftWeight,
	ABTest:    (*tick).testMatching,
	BlueGreen: (*tick).switchOver,
}

// advance gives the canary more traffic or another iteration or, after the
// last, promotes it.
func (t *tick) advance() bool {
	plans[t.Canary.Strategy()](t)
	return false
}

// shiftWeight raises the weight by a step, up to the maximum. With mirror the
// first step is copies of requests, which is no increase.
func (t *tick) shiftWeight() {
	c := t.Canary
	switch {
	case t.routes.Canary >= c.MaxWeight():
		t.promote(t.confirm)
	case c.Spec.Analysis.Mirror && t.routes.Canary == 0 && !t.routes.Mirrored:
		t.moveTo(Routes{Primary: 100, Mirrored: true}, EventMirrored, 0)
	case t.confirm(HookConfirmTrafficIncrease):
		t.moveTo(toCanary(c.NextWeight(t.routes.Canary)), EventWeightAdvanced, 0)
	}
}

// testMatching gives the canary all requests that match, and counts iterations.
func (t *tick) testMatching() {
	if t.s.Iterations >= t.Canary.Spec.Analysis.Iterations {
		t.promote(t.confirm)
		return
	}
	t.moveTo(toCanary(100), EventIterationAdvanced, 1)
}

// switchOver counts iterations without traffic at the canary, or with copies of
// it, then gives it everything, checks once more, and promotes.
func (t *tick) switchOver() {
	set := t.Canary.Spec.Analysis
	switch {
	case t.s.Confirmed:
		t.promote(func(HookType) bool { return true }) // it was asked before the traffic moved
	case t.s.Iterations < set.Iterations:
		t.moveTo(Routes{Primary: 100, Mirrored: set.Mirror}, EventIterationAdvanced, 1)
	case t.confirm(HookConfirmPromotion):
		t.s.Confirmed = t.moveTo(toCanary(100), EventRouteCanary, 1)
	}
}

// moveTo routes, counts iterations, and says so. What held the canary is over.
func (t *tick) moveTo(r Routes, code EventCode, iterations int) bool {
	t.progress()
	if err := t.setRoutes(r); err != nil {
		t.unmoved(routing(r) + ": " + err.Error())
		return false
	}
	t.isReady(theTraffic)
	t.s.Iterations += iterations
	t.emit(code, eventDetail{reason: t.measured()})
	return true
}

// unmoved tells that the traffic could not be divided. From
// progressDeadlineSeconds on that is a failed check.
func (t *tick) unmoved(reason string) {
	switch a := (eventDetail{reason: reason}); {
	case t.cut():
	case t.notReady(theTraffic):
		t.fail(EventTrafficFail, a)
	default:
		t.emit(EventTrafficError, a)
	}
}

// progress resumes a canary that waited.
func (t *tick) progress() {
	t.enter(Progressing)
	t.s.Gate = nil
}

// promote decides the promotion when confirm agrees.
func (t *tick) promote(confirm func(HookType) bool) {
	if t.s.Phase == Waiting { // for more traffic, which the canary has by now
		t.progress()
	}
	if confirm(HookConfirmPromotion) {
		t.decidePromotion()
	}
}

// decidePromotion is for the next step to act upon.
func (t *tick) decidePromotion() {
	t.enter(Promoting)
	t.s.Gate, t.s.PromotedSpec = nil, "" // not known until it is copied
	t.decided = true
}

// abandon decides a rollback and says why.
func (t *tick) abandon(code EventCode, a eventDetail) {
	t.s.RollingBack, t.decided = true, true
	t.s.Reason = t.emit(code, a)
}

// rollback gives all traffic to the primary, then scales the canary down. What
// fails is done again in the next tick, before anything else: a canary that
// may still have traffic is not scaled down.
func (t *tick) rollback() bool {
	if !t.s.RollingBack {
		return true
	}
	t.routes = Routes{} // set them, whatever they were
	if t.route(home) && t.done(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		t.end(Failed, EventRolledBack, eventDetail{})
	}
	return false
}

// promotionFailed gives everything to the canary: the primary cannot serve. A
// canary without traffic may be scaled down already: when it cannot serve
// either, the traffic is left where it is.
func (t *tick) promotionFailed(a eventDetail) {
	if t.s.Phase == Finalising || t.s.CanaryWeight == 0 {
		err := t.Target.ScaleUp(t.ctx)
		if err == nil {
			err = t.Target.CanaryReady(t.ctx)
		}
		if err != nil {
			if !t.cut() {
				a.reason += "; canary: " + err.Error()
				t.strand(a)
			}
			return
		}
	}
	t.routes = Routes{}
	if t.route(toCanary(100)) {
		t.strand(a)
	}
}

// strand ends a promotion that failed. The primary is not ready with what it
// was given, and no longer has what it had: any other revision is a rollout.
func (t *tick) strand(a eventDetail) {
	t.s.PromotedSpec = ""
	t.end(Failed, EventPromotionFailed, a)
}

// end ends a rollout. Post-rollout webhooks are for the next step, after the
// status was saved.
func (t *tick) end(p Phase, code EventCode, a eventDetail) {
	t.enter(p)
	why := t.emit(code, a)
	s := &t.s
	s.Iterations, s.Request = 0, nil
	if p == Failed {
		s.FailedChecks = 0
		if !s.RollingBack || s.Reason == "" { // a rollback has that of its decision
			s.Reason = why
		}
	}
	s.Gate, s.RollingBack, s.PreRollout, s.Confirmed = nil, false, false, false
	s.PostRollout = len(t.hooks(HookPostRollout)) > 0
	t.decided = s.PostRollout
	s.ready()
}

// copyRevision makes the revision that of the primary. What fails for
// progressDeadlineSeconds is rolled back.
func (t *tick) copyRevision() bool {
	if t.s.promoted() {
		return true
	}
	if t.ready(thePromotion, t.Target.Promote, t.primaryStuck) {
		t.s.PromotedSpec = t.s.AppliedSpec
		t.emit(EventPromoteCopy, eventDetail{})
		return t.Canary.Spec.SkipAnalysis
	}
	return false
}

// promoting gives the traffic back to the primary, which is ready with the
// revision: at once, or by stepWeightPromotion.
func (t *tick) promoting() bool {
	weight := 0
	if step := t.Canary.Spec.Analysis.StepWeightPromotion; step > 0 {
		weight = max(0, t.routes.Canary-step)
	}
	code := EventPrimaryAdvanced
	if !t.route(toCanary(weight)) {
		return false
	}
	if weight == 0 {
		t.s.Iterations, code = 0, EventRoutePrimary
		t.enter(Finalising)
	}
	t.emit(code, eventDetail{})
	return weight == 0 && t.Canary.Spec.SkipAnalysis
}

// finalising scales the canary down, which has no traffic.
func (t *tick) finalising() bool {
	code := EventPromoted
	if t.Canary.Spec.SkipAnalysis {
		code = EventSkippedPromoted
	}
	if t.route(home) && t.done(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		t.end(Succeeded, code, eventDetail{})
	}
	return false
}

// skipAnalysis decides to promote a canary that is ready, and makes no more
// calls. The next step does all of it.
func (t *tick) skipAnalysis() bool {
	if !t.Canary.Spec.SkipAnalysis {
		return true
	}
	if t.route(home) {
		t.decidePromotion()
	}
	return false
}
