package rollout

import (
	"fmt"
	"slices"
	"time"
)

// A Phase is the state of a canary (specification, "States and transitions").
type Phase string

// The phases. A canary that no step has seen yet has the phase "".
const (
	Initialized Phase = "Initialized"
	Waiting     Phase = "Waiting"
	Progressing Phase = "Progressing"
	Promoting   Phase = "Promoting"
	Finalising  Phase = "Finalising"
	Succeeded   Phase = "Succeeded"
	Failed      Phase = "Failed"
)

// Phases lists the phases.
func Phases() []Phase {
	return []Phase{Initialized, Waiting, Progressing, Promoting, Finalising, Succeeded, Failed}
}

// phases is a set of phases.
type phases []Phase

var (
	unseen   = phases{""}
	idle     = phases{Initialized, Succeeded, Failed}
	analysed = phases{Waiting, Progressing}
	active   = phases{Waiting, Progressing, Promoting, Finalising}
	anyPhase = slices.Concat(unseen, idle, active)
)

func (p phases) has(phase Phase) bool { return slices.Contains(p, phase) }

// A Status is all state that an analysis keeps between two steps. It is stored as JSON.
type Status struct {
	Phase          Phase     `json:"phase,omitempty"`
	FailedChecks   int       `json:"failedChecks"`
	CanaryWeight   int       `json:"canaryWeight"` // percent, as the routes were last seen or set
	Iterations     int       `json:"iterations"`
	AppliedSpec    string    `json:"lastAppliedSpec,omitempty"`  // the revision under analysis
	PromotedSpec   string    `json:"lastPromotedSpec,omitempty"` // the revision of the primary; empty from the decision to promote until the primary has it, and after a failed promotion
	PromotedURL    string    `json:"promotedURL,omitempty"`      // URL that serves the revision of the primary, if a proxy promoted it; kept for the owner of the analysis. Absent: not known
	LastTransition time.Time `json:"lastTransitionTime,omitzero"`
	LastStep       time.Time `json:"lastStepTime,omitzero"` // the interval starts here; steps that follow without a wait do not change it. Absent: the next step is due
	Gate           *Gate     `json:"gate,omitempty"`        // the confirm gate that the canary waits on

	NotReady      string    `json:"notReady,omitempty"`           // what is not ready: primary, canary, promotion or traffic
	NotReadySince time.Time `json:"notReadySince,omitzero"`       // when it was first seen not ready
	PreRollout    bool      `json:"preRollout,omitempty"`         // the pre-rollout webhooks passed for this revision
	Confirmed     bool      `json:"promotionConfirmed,omitempty"` // the confirm-promotion webhooks passed, and all traffic goes to the canary
	RollingBack   bool      `json:"rollingBack,omitempty"`        // a rollback is decided but not done yet
	PostRollout   bool      `json:"postRollout,omitempty"`        // post-rollout webhooks are still to be called
	Suspended     bool      `json:"suspended,omitempty"`          // the suspension was announced
	Mirrored      bool      `json:"mirrored,omitempty"`           // the routes, as last seen or set, send copies to the canary
	Reason        string    `json:"reason,omitempty"`             // why the rollout is rolled back or failed: the message of that event
	Request       *Request  `json:"request,omitempty"`            // what a user asks of this rollout
	Sequence      int64     `json:"sequence"`                     // number of the last event
	Values        []Value   `json:"metricValues,omitempty"`       // results of the last query of each metric
}

// A Gate is a confirm webhook that did not pass.
type Gate struct {
	Type   HookType  `json:"type"`
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"` // the answer of the webhook, bounded
}

// A Value is the last result of a metric as text: a number, which may be
// infinite, or the reason why there is no value.
type Value struct {
	Metric string `json:"metric"`
	Value  string `json:"value"`
}

// maxValues bounds the metrics whose values a status keeps.
const maxValues = 64

// Routes returns the routes as they were last seen or set.
func (s Status) Routes() Routes {
	return Routes{Primary: 100 - s.CanaryWeight, Canary: s.CanaryWeight, Mirrored: s.Mirrored}
}

// Ended reports whether the rollout is over and all its post-rollout webhooks were called.
func (s Status) Ended() bool {
	return (s.Phase == Succeeded || s.Phase == Failed) && !s.PostRollout
}

// Rest returns how much of the interval is left at the time now. It returns zero
// if the next step is due, or if a decision or a request is to be acted upon at
// once. It never returns more than the interval, even if the clock went backwards.
func (s Status) Rest(interval time.Duration, now time.Time) time.Duration {
	pending := s.Request != nil && !s.Request.Accepted
	if s.LastStep.IsZero() || s.RollingBack || s.PostRollout || pending {
		return 0
	}
	return min(max(interval-now.Sub(s.LastStep), 0), interval)
}

// Check returns an error if no analysis can have written this status.
// [Analysis.Step] refuses such a status.
func (s Status) Check() error {
	_, known := gates[s.gateType()]
	switch {
	case !anyPhase.has(s.Phase):
		return fmt.Errorf("status: phase %q: want a phase of the specification, or none", s.Phase)
	case s.CanaryWeight < 0 || s.CanaryWeight > 100:
		return fmt.Errorf("status: canaryWeight %d: want 0 to 100", s.CanaryWeight)
	case s.FailedChecks < 0 || s.Iterations < 0 || s.Sequence < 0:
		return fmt.Errorf("status: failedChecks %d, iterations %d, sequence %d: want no negative number", s.FailedChecks, s.Iterations, s.Sequence)
	case !known && s.Gate != nil:
		return fmt.Errorf("status: gate.type %q: want a type of confirm webhooks", s.Gate.Type)
	}
	return nil
}

// gateType returns the type of the gate that the canary waits on, "" for none.
func (s Status) gateType() HookType {
	if s.Gate == nil {
		return ""
	}
	return s.Gate.Type
}

// promoted reports whether the primary has the revision under analysis.
func (s Status) promoted() bool {
	return (s.Phase == Promoting || s.Phase == Finalising) && s.AppliedSpec != "" && s.PromotedSpec == s.AppliedSpec
}

// clearNotReady clears NotReady.
func (s *Status) clearNotReady() { s.NotReady, s.NotReadySince = "", time.Time{} }
