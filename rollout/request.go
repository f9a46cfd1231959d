package rollout

import (
	"errors"
	"fmt"
	"time"
)

// An Action is an action that a user can request for a rollout under way.
type Action string

// The actions.
const (
	Abort   Action = "abort"   // roll back to the primary
	Promote Action = "promote" // skip the rest of the analysis
)

// A Request is the request of a user for a rollout under way. It is stored as JSON.
type Request struct {
	ID        string    `json:"id"` // unique
	Action    Action    `json:"action"`
	Revision  string    `json:"revision,omitempty"` // under analysis at the time of the request; "" if none was yet
	By        string    `json:"by"`
	Reason    string    `json:"reason,omitempty"`
	SkipGates bool      `json:"skipGates,omitempty"` // of a promotion: do not call confirm and rollback webhooks
	Time      time.Time `json:"time"`
	Accepted  bool      `json:"accepted,omitempty"` // a step has accepted it and acts upon it
}

// Accepts returns an error that says why the rollout of the status cannot accept
// the request, nil if it can. A request applies to one revision: it neither aborts
// nor promotes a revision that came later.
func (s Status) Accepts(r Request) error {
	switch {
	case r.Action != Abort && r.Action != Promote:
		return fmt.Errorf("%s: unknown, want %s or %s", excerpt(string(r.Action)), Abort, Promote)
	case s.Phase == Succeeded || s.Phase == Failed:
		return fmt.Errorf("%s: no rollout is under way, the phase is %s", r.Action, s.Phase)
	case s.RollingBack:
		return fmt.Errorf("%s: the canary is being rolled back", r.Action)
	case s.promoted():
		return fmt.Errorf("%s: revision %s is promoted", r.Action, excerpt(s.AppliedSpec))
	case r.Revision != "" && r.Revision != s.AppliedSpec:
		return fmt.Errorf("%s: it is about revision %s, and another one is rolled out", r.Action, excerpt(r.Revision))
	case r.Action == Abort:
		return nil
	case !analysed.has(s.Phase):
		return fmt.Errorf("%s: there is no analysis to be skipped", r.Action)
	case r.Revision == "":
		return errors.New("promote: it names no revision")
	}
	return nil
}

// eventReason returns the user and the reason of the request as text for an event.
func (r Request) eventReason() string {
	text := formatReason(r.By, r.Reason)
	if r.SkipGates {
		text += " (gates are skipped)"
	}
	return text
}

// formatReason returns a reason with the name of its author, "" if both are empty.
func formatReason(name, reason string) string {
	switch {
	case name == "":
		return reason
	case reason == "":
		return "by " + name
	}
	return "by " + name + ": " + reason
}

// acceptRequest accepts or drops the request in the status. An abort before the rollout
// has begun ends it at once, since no traffic was moved.
func (t *tick) acceptRequest() bool {
	r := t.s.Request
	if r == nil || r.Accepted {
		return true
	}
	if t.s.Accepts(*r) != nil {
		t.s.Request = nil
		return true
	}
	started := active.has(t.s.Phase)
	if r.Action == Abort && !started {
		revision, err := t.Target.Revision(t.ctx)
		if !t.succeeded(EventTargetError, "read the revision of the target", err) {
			return false
		}
		t.s.AppliedSpec = revision // or the next run would begin the rollout
	}
	accepted := *r // the caller of Step holds the old one
	accepted.Accepted = true
	a := eventDetail{reason: r.eventReason()}
	switch {
	case r.Action == Promote:
		t.emit(EventPromotionAsked, a)
	case started:
		t.decideRollback(EventAborted, a)
	default:
		t.end(Failed, EventAborted, a)
	}
	t.s.Request = &accepted
	return r.Action == Promote
}

// promotionRequest returns the accepted request to promote the revision under analysis, nil
// for none.
func (t *tick) promotionRequest() *Request {
	if r := t.s.Request; r != nil && r.Accepted && r.Action == Promote && r.Revision == t.s.AppliedSpec && !t.starting {
		return r
	}
	return nil
}

// skipsGates reports whether a user requested the promotion with SkipGates.
func (t *tick) skipsGates() bool { r := t.promotionRequest(); return r != nil && r.SkipGates }

// promoteOnRequest promotes a canary that is ready, if a user requested it.
func (t *tick) promoteOnRequest() bool {
	if t.promotionRequest() == nil {
		return true
	}
	t.promote(func(kind HookType) bool { return t.s.Confirmed || t.confirm(kind) })
	return false
}
