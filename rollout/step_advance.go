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
	t.emit(code, about{reason: t.measured()})
	return true
}

// unmoved tells that the traffic could not be divided. From
// progressDeadlineSeconds on that is a failed check.
func (t *tick) unmoved(reason string) {
	switch a := (about{reason: reason}); {
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
