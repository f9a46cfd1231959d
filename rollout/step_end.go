package rollout

// plans maps each strategy to the function that advances its canary.
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

// shiftWeight raises the weight by a step, up to the maximum. With mirror, the
// first step sends copies of requests. That is no traffic increase and needs no
// confirmation.
func (t *tick) shiftWeight() {
	c := t.Canary
	switch {
	case t.routes.Canary >= c.MaxWeight():
		t.promote(t.confirm)
	case c.Spec.Analysis.Mirror && t.routes.Canary == 0 && !t.routes.Mirrored:
		t.moveTo(Routes{Primary: 100, Mirrored: true}, EventMirrored, 0)
	case t.confirm(HookConfirmTrafficIncrease):
		t.moveTo(canaryRoutes(c.NextWeight(t.routes.Canary)), EventWeightAdvanced, 0)
	}
}

// testMatching gives the canary all requests that match, and counts iterations.
func (t *tick) testMatching() {
	if t.s.Iterations >= t.Canary.Spec.Analysis.Iterations {
		t.promote(t.confirm)
		return
	}
	t.moveTo(canaryRoutes(100), EventIterationAdvanced, 1)
}

// switchOver counts iterations during which the canary gets no traffic, or copies
// of it. It then routes all traffic to the canary, checks once more, and promotes.
func (t *tick) switchOver() {
	set := t.Canary.Spec.Analysis
	switch {
	case t.s.Confirmed:
		t.promote(func(HookType) bool { return true }) // the webhooks agreed before the traffic moved
	case t.s.Iterations < set.Iterations:
		t.moveTo(Routes{Primary: 100, Mirrored: set.Mirror}, EventIterationAdvanced, 1)
	case t.confirm(HookConfirmPromotion):
		t.s.Confirmed = t.moveTo(canaryRoutes(100), EventRouteCanary, 1)
	}
}

// moveTo sets the routes, adds iterations and emits code. It ends any wait on a gate.
func (t *tick) moveTo(r Routes, code EventCode, iterations int) bool {
	t.enterProgressing()
	if err := t.setRoutes(r); err != nil {
		t.routingFailed(describeRouting(r) + ": " + err.Error())
		return false
	}
	t.markReady(theTraffic)
	t.s.Iterations += iterations
	t.emit(code, eventDetail{reason: t.metricValuesText()})
	return true
}

// routingFailed emits that the routes could not be set. After progressDeadlineSeconds
// this counts as a failed check.
func (t *tick) routingFailed(reason string) {
	switch a := (eventDetail{reason: reason}); {
	case t.contextEnded():
	case t.markNotReady(theTraffic):
		t.fail(EventTrafficFail, a)
	default:
		t.emit(EventTrafficError, a)
	}
}

// enterProgressing resumes a canary that waited.
func (t *tick) enterProgressing() {
	t.enter(Progressing)
	t.s.Gate = nil
}

// promote decides the promotion if confirm returns true.
func (t *tick) promote(confirm func(HookType) bool) {
	if t.s.Phase == Waiting { // on a gate for more traffic, which the canary has by now
		t.enterProgressing()
	}
	if confirm(HookConfirmPromotion) {
		t.decidePromotion()
	}
}

// decidePromotion records the decision; the next step acts upon it.
func (t *tick) decidePromotion() {
	t.enter(Promoting)
	t.s.Gate, t.s.PromotedSpec = nil, "" // not known until the revision is copied
	t.decided = true
}

// decideRollback decides a rollback and emits the reason.
func (t *tick) decideRollback(code EventCode, a eventDetail) {
	t.s.RollingBack, t.decided = true, true
	t.s.Reason = t.emit(code, a)
}

// rollback routes all traffic to the primary, then scales the canary down. If
// either fails, the next tick repeats it before anything else. A canary that may
// still have traffic is not scaled down.
func (t *tick) rollback() bool {
	if !t.s.RollingBack {
		return true
	}
	t.routes = Routes{} // so that route sets them in any case
	if t.route(allToPrimary) && t.succeeded(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		t.end(Failed, EventRolledBack, eventDetail{})
	}
	return false
}

// promotionFailed routes all traffic to the canary, because the primary cannot
// serve. A canary without traffic may be scaled down already, so it is scaled up
// first; if it cannot serve either, the routes are left unchanged.
func (t *tick) promotionFailed(a eventDetail) {
	if t.s.Phase == Finalising || t.s.CanaryWeight == 0 {
		err := t.Target.ScaleUp(t.ctx)
		if err == nil {
			err = t.Target.CanaryReady(t.ctx)
		}
		if err != nil {
			if !t.contextEnded() {
				a.reason += "; canary: " + err.Error()
				t.endFailedPromotion(a)
			}
			return
		}
	}
	t.routes = Routes{}
	if t.route(canaryRoutes(100)) {
		t.endFailedPromotion(a)
	}
}

// endFailedPromotion ends a failed promotion. The primary is not ready with the new revision
// and no longer has the old one, so any other revision starts a rollout.
func (t *tick) endFailedPromotion(a eventDetail) {
	t.s.PromotedSpec = ""
	t.end(Failed, EventPromotionFailed, a)
}

// end ends a rollout. The next step calls the post-rollout webhooks, after the
// status was saved.
func (t *tick) end(p Phase, code EventCode, a eventDetail) {
	t.enter(p)
	reason := t.emit(code, a)
	s := &t.s
	s.Iterations, s.Request = 0, nil
	if p == Failed {
		s.FailedChecks = 0
		if !s.RollingBack || s.Reason == "" { // a rollback keeps the reason of its decision
			s.Reason = reason
		}
	}
	s.Gate, s.RollingBack, s.PreRollout, s.Confirmed = nil, false, false, false
	s.PostRollout = len(t.hooks(HookPostRollout)) > 0
	t.decided = s.PostRollout
	s.clearNotReady()
}

// copyRevision copies the revision to the primary. If that fails for
// progressDeadlineSeconds, the rollout is rolled back.
func (t *tick) copyRevision() bool {
	if t.s.promoted() {
		return true
	}
	if t.checkReady(thePromotion, t.Target.Promote, t.primaryStuck) {
		t.s.PromotedSpec = t.s.AppliedSpec
		t.emit(EventPromoteCopy, eventDetail{})
		return t.Canary.Spec.SkipAnalysis
	}
	return false
}

// promoting routes the traffic back to the primary, which is ready with the
// revision: all at once, or in steps of stepWeightPromotion.
func (t *tick) promoting() bool {
	weight := 0
	if step := t.Canary.Spec.Analysis.StepWeightPromotion; step > 0 {
		weight = max(0, t.routes.Canary-step)
	}
	code := EventPrimaryAdvanced
	if !t.route(canaryRoutes(weight)) {
		return false
	}
	if weight == 0 {
		t.s.Iterations, code = 0, EventRoutePrimary
		t.enter(Finalising)
	}
	t.emit(code, eventDetail{})
	return weight == 0 && t.Canary.Spec.SkipAnalysis
}

// finalising scales down the canary, which has no traffic.
func (t *tick) finalising() bool {
	code := EventPromoted
	if t.Canary.Spec.SkipAnalysis {
		code = EventSkippedPromoted
	}
	if t.route(allToPrimary) && t.succeeded(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		t.end(Succeeded, code, eventDetail{})
	}
	return false
}

// skipAnalysis decides to promote a canary that is ready. The next step does the
// whole promotion.
func (t *tick) skipAnalysis() bool {
	if !t.Canary.Spec.SkipAnalysis {
		return true
	}
	if t.route(allToPrimary) {
		t.decidePromotion()
	}
	return false
}
