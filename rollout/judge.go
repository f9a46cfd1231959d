package rollout

import (
	"errors"
	"net/http"
)

// A Verdict is the decision that an answer of a webhook leads to.
type Verdict string

// The verdicts. Only Halt counts a failed check.
const (
	Pass     Verdict = "pass"    // go on
	Halt     Verdict = "halt"    // do not go on, and count a failed check
	Pause    Verdict = "pause"   // do not go on until it passes; nothing is counted
	Fire     Verdict = "fire"    // roll back
	NoFire   Verdict = "no fire" // no rollback
	LogError Verdict = "log"     // go on; the error is logged
)

func (v Verdict) String() string { return string(v) }

// A rule maps answers to verdicts for one type of webhook. An answer with a
// status from 200 to last is accepted.
type rule struct {
	last      int
	accepted  Verdict
	otherwise Verdict // any other status, no answer in time, no answer at all
}

// rules holds the rule of each type (specification, "Hook types", "Endpoints"
// and "Errors").
var rules = map[HookType]rule{
	HookConfirmRollout:         {http.StatusAccepted, Pass, Pause},
	HookPreRollout:             {http.StatusAccepted, Pass, Halt},
	HookRollout:                {http.StatusAccepted, Pass, Halt},
	HookConfirmTrafficIncrease: {http.StatusOK, Pass, Pause},
	HookConfirmPromotion:       {http.StatusOK, Pass, Pause},
	HookPostRollout:            {http.StatusAccepted, Pass, LogError},
	HookRollback:               {http.StatusAccepted, Fire, NoFire},
	HookEvent:                  {http.StatusAccepted, Pass, LogError},
}

// rule returns the rule of the type; ok is false for an unknown type, and the
// rule then accepts nothing. The empty type is rollout.
func (t HookType) rule() (r rule, ok bool) {
	if t == "" {
		t = HookRollout
	}
	if r, ok = rules[t]; !ok {
		r = rule{accepted: Halt, otherwise: Halt}
	}
	return r, ok
}

func (r rule) accepts(status int) bool { return status >= http.StatusOK && status <= r.last }

// Judge returns the verdict on a webhook call; err is nil or the error that
// [Hooks].Call returned. A [*StatusError] is judged by its code, so Hooks may
// return one for every answer. The verdict of an unknown type is Halt.
//
// A call whose context has ended has no outcome: check the context first.
func (t HookType) Judge(err error) Verdict {
	r, _ := t.rule()
	answer, answered := errors.AsType[*StatusError](err)
	if err == nil || answered && r.accepts(answer.Code) {
		return r.accepted
	}
	return r.otherwise
}
