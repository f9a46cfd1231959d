package rollout

// suspended leaves a suspended canary alone. It is told once.
func (t *tick) suspended() bool {
	if !t.Canary.Spec.Suspend {
		t.s.Suspended = false
		return true
	}
	if !t.s.Suspended {
		t.s.Suspended = true
		t.emit(EventSuspended, about{})
	}
	return false
}

// unchanged ends the tick when no rollout is under way and none begins: the
// revision is the one of the primary, or the last rollout was of it. A revision
// that failed may come again after that of the primary was back.
func (t *tick) unchanged() bool {
	s := &t.s
	began := s.AppliedSpec != "" || s.Phase == Failed // a rollback that a restart was cut short by has none
	if !began || t.revision != s.PromotedSpec && t.revision != s.AppliedSpec {
		return true
	}
	if s.Phase == Failed {
		s.AppliedSpec = t.revision
	}
	s.ready()
	return false
}

// initialise takes a canary up whose primary is ready: that has the revision.
func (t *tick) initialise() bool {
	t.s.AppliedSpec, t.s.PromotedSpec = t.revision, t.revision
	t.enter(Initialized)
	t.emit(EventInitialized, about{})
	return false
}

// start begins a rollout with all traffic at the primary, which is ready: a
// promotion that failed left it at the canary.
func (t *tick) start() bool {
	t.fresh = true
	return t.route(home)
}

// restart begins with another revision before the primary is given the one
// under analysis. The revision of the primary ends the rollout instead.
func (t *tick) restart() bool {
	if t.revision == t.s.AppliedSpec || t.s.promoted() {
		return true
	}
	if t.revision == t.s.PromotedSpec {
		t.s.AppliedSpec = t.revision
		t.abandon(EventRevisionReverted, about{})
		return false
	}
	t.s.AppliedSpec = "" // whichever is next begins anew, this one too when it comes back before all of this is done
	return t.startAgain()
}

// restartPromoted begins with another revision when the primary is ready with
// the one before.
func (t *tick) restartPromoted() bool {
	return t.fresh || t.revision == t.s.AppliedSpec || t.startAgain()
}

// startAgain is start under way. With confirm-rollout webhooks the canary does
// not run while they are asked.
func (t *tick) startAgain() bool {
	t.s.Request = nil // it was about the revision before
	if !t.route(home) {
		return false
	}
	if len(t.hooks(HookConfirmRollout)) > 0 && !t.waitsForApproval() &&
		!t.done(EventTargetError, "scale down the canary", t.Target.ScaleDown(t.ctx)) {
		return false
	}
	t.fresh = true
	return true
}

// approve asks the confirm-rollout webhooks at the start of a rollout and as
// long as it waits on them, then scales the canary up.
func (t *tick) approve() bool {
	if !t.fresh && !t.waitsForApproval() {
		return true
	}
	if !t.confirm(HookConfirmRollout) || !t.done(EventTargetError, "scale up the canary", t.Target.ScaleUp(t.ctx)) {
		return false
	}
	code := EventRevisionNew
	if t.fresh && active.has(t.s.Phase) {
		code = EventRevisionRestart
	}
	t.begin(Progressing)
	t.emit(code, about{})
	return false
}

// waitsForApproval reports whether the canary waits on a confirm-rollout webhook.
func (t *tick) waitsForApproval() bool {
	return t.s.Phase == Waiting && t.s.gate() != HookConfirmTrafficIncrease
}

// begin counts anew, for the revision of the target.
func (t *tick) begin(p Phase) {
	t.enter(p)
	s := &t.s
	s.AppliedSpec, s.Gate, s.Values, s.Reason = t.revision, nil, nil, ""
	s.FailedChecks, s.Iterations, s.PreRollout, s.Confirmed = 0, 0, false, false
	s.ready()
	t.fresh = false
}
