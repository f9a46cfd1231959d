package rollout

import (
	"errors"
	"fmt"
	"time"
)

// An Action is what a person asks of a rollout that is under way.
type Action string

// The actions.
const (
	Abort   Action = "abort"   // roll back to the primary
	Promote Action = "promote" // skip what is left of the analysis
)

// A Request is what a person asks of a rollout that is under way. It is stored
// as JSON.
type Request struct {
	ID        string    `json:"id"` // differs from that of every other request
	Action    Action    `json:"action"`
	Revision  string    `json:"revision,omitempty"` // under analysis when it was asked; "" when none was applied yet
	By        string    `json:"by"`
	Reason    string    `json:"reason,omitempty"`
	SkipGates bool      `json:"skipGates,omitempty"` // of a promotion: neither confirm nor rollback webhooks are asked
	Time      time.Time `json:"time"`
	Accepted  bool      `json:"accepted,omitempty"` // it was told, and is acted upon
}

// Accepts returns why a request cannot be done for the rollout of the status,
// nil when it can. A request is for one revision: another one that came
// meanwhile is neither aborted nor promoted by it.
func (s Status) Accepts(r Request) error {
	switch {
	case r.Action != Abort && r.Action != Promote:
		return fmt.Errorf("%s: unknown, want %s or %s", bounded(string(r.Action)), Abort, Promote)
	case s.Phase == Succeeded || s.Phase == Failed:
		return fmt.Errorf("%s: no rollout is under way, the phase is %s", r.Action, s.Phase)
	case s.RollingBack:
		return fmt.Errorf("%s: the canary is being rolled back", r.Action)
	case s.promoted():
		return fmt.Errorf("%s: revision %s is promoted", r.Action, bounded(s.AppliedSpec))
	case r.Revision != "" && r.Revision != s.AppliedSpec:
		return fmt.Errorf("%s: it is about revision %s, and another one is rolled out", r.Action, bounded(r.Revision))
	case r.Action == Abort:
		return nil
	case !analysed.has(s.Phase):
		return fmt.Errorf("%s: there is no analysis to be skipped", r.Action)
	case r.Revision == "":
		return errors.New("promote: it names no revision")
	}
	return nil
}

// because says for people who asked, and why.
func (r Request) because() string {
	text := attributed(r.By, r.Reason)
	if r.SkipGates {
		text += " (gates are skipped)"
	}
	return text
}

// attributed is a reason with the name of the person who gives it, "" for neither.
func attributed(name, reason string) string {
	switch {
	case name == "":
		return reason
	case reason == "":
		return "by " + name
	}
	return "by " + name + ": " + reason
}

// requested takes up what a person asks. An abort before the rollout has begun
// ends it where it is: no traffic was moved.
func (t *tick) requested() bool {
	r := t.s.Request
	if r == nil || r.Accepted {
		return true
	}
	if t.s.Accepts(*r) != nil {
		t.s.Request = nil
		return true
	}
	begun := active.has(t.s.Phase)
	if r.Action == Abort && !begun {
		revision, err := t.Target.Revision(t.ctx)
		if err != nil && t.cut() {
			return false
		}
		t.s.AppliedSpec = revision // or it would begin when it is run again
	}
	accepted := *r // the caller has the old one
	accepted.Accepted = true
	a := eventDetail{reason: r.because()}
	switch {
	case r.Action == Promote:
		t.emit(EventPromotionAsked, a)
	case begun:
		t.abandon(EventAborted, a)
	default:
		t.end(Failed, EventAborted, a)
	}
	t.s.Request = &accepted
	return r.Action == Promote
}

// asked is the request for the promotion of the revision under analysis, nil
// when there is none.
func (t *tick) asked() *Request {
	if r := t.s.Request; r != nil && r.Accepted && r.Action == Promote && r.Revision == t.s.AppliedSpec && !t.fresh {
		return r
	}
	return nil
}

// ungated reports whether a person asked for the promotion without gates.
func (t *tick) ungated() bool { r := t.asked(); return r != nil && r.SkipGates }

// promoteAsked promotes a canary that is ready, when a person asked for that.
func (t *tick) promoteAsked() bool {
	if t.asked() == nil {
		return true
	}
	t.promote(func(kind HookType) bool { return t.s.Confirmed || t.confirm(kind) })
	return false
}
