package rollout

import (
	"fmt"
	"slices"
	"time"
)

// A Phase is where a canary is (specification, "States and transitions").
type Phase string

// The phases. A canary that was not seen yet has none.
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

// A Status is all that an analysis knows between two steps: it is stored as JSON.
type Status struct {
	Phase          Phase     `json:"phase,omitempty"`
	FailedChecks   int       `json:"failedChecks"`
	CanaryWeight   int       `json:"canaryWeight"` // percent, as the routes were last seen or set
	Iterations     int       `json:"iterations"`
	AppliedSpec    string    `json:"lastAppliedSpec,omitempty"`  // the revision under analysis
	PromotedSpec   string    `json:"lastPromotedSpec,omitempty"` // the revision that the primary has; none from the decision to promote until that is done, and after a promotion that failed
	PromotedURL    string    `json:"promotedURL,omitempty"`      // what serves the revision of the primary, where a proxy promoted it; kept for the owner of the analysis. Absent: not known
	LastTransition time.Time `json:"lastTransitionTime,omitzero"`
	LastStep       time.Time `json:"lastStepTime,omitzero"` // the interval is counted from it; steps that follow at once do not change it. Absent: the next step is due
	Gate           *Gate     `json:"gate,omitempty"`        // the confirm gate that it waits on

	NotReady      string    `json:"notReady,omitempty"`           // what is not ready: primary, canary, promotion or traffic
	NotReadySince time.Time `json:"notReadySince,omitzero"`       // it was first seen so
	PreRollout    bool      `json:"preRollout,omitempty"`         // the pre-rollout webhooks passed for this revision
	Confirmed     bool      `json:"promotionConfirmed,omitempty"` // the confirm-promotion webhooks passed, and all traffic goes to the canary
	RollingBack   bool      `json:"rollingBack,omitempty"`        // a rollback is decided, and not done yet
	PostRollout   bool      `json:"postRollout,omitempty"`        // post-rollout webhooks are still to be called
	Suspended     bool      `json:"suspended,omitempty"`          // the suspension was told
	Mirrored      bool      `json:"mirrored,omitempty"`           // the routes, as they were last seen or set, have copies for the canary
	Reason        string    `json:"reason,omitempty"`             // why it is rolled back or failed: the message of that event
	Request       *Request  `json:"request,omitempty"`            // what a person asks of this rollout
	Sequence      int64     `json:"sequence"`                     // of the last event
	Values        []Value   `json:"metricValues,omitempty"`       // of the metrics, as they were last queried
}

// A Gate is a confirm webhook that did not pass.
type Gate struct {
	Type   HookType  `json:"type"`
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"` // what it answered, bounded
}

// A Value is what a metric was when it was last queried, as text: it may be
// infinite, or the reason for there being none.
type Value struct {
	Metric string `json:"metric"`
	Value  string `json:"value"`
}

// maxValues bounds the metrics whose values a status keeps.
const maxValues = 64

// Routes are how the traffic was divided when it was last seen or set.
func (s Status) Routes() Routes {
	return Routes{Primary: 100 - s.CanaryWeight, Canary: s.CanaryWeight, Mirrored: s.Mirrored}
}

// Ended reports whether the rollout of the status is over and nothing is left to do for it.
func (s Status) Ended() bool {
	return (s.Phase == Succeeded || s.Phase == Failed) && !s.PostRollout
}

// Rest returns how much of the interval is left at the time now before the next
// step is due: zero when it is, or when something is decided or asked that is to
// be acted upon at once. It is at most the interval, also with a clock that went backwards.
func (s Status) Rest(interval time.Duration, now time.Time) time.Duration {
	asked := s.Request != nil && !s.Request.Accepted
	if s.LastStep.IsZero() || s.RollingBack || s.PostRollout || asked {
		return 0
	}
	return min(max(interval-now.Sub(s.LastStep), 0), interval)
}

// Check returns what no analysis has written: [Analysis.Step] refuses such a status.
func (s Status) Check() error {
	_, known := gates[s.gate()]
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

// gate is the type of the gate that it waits on, "" for none.
func (s Status) gate() HookType {
	if s.Gate == nil {
		return ""
	}
	return s.Gate.Type
}

// promoted reports whether the primary was given the revision under analysis.
func (s Status) promoted() bool {
	return (s.Phase == Promoting || s.Phase == Finalising) && s.AppliedSpec != "" && s.PromotedSpec == s.AppliedSpec
}

// ready says that nothing is not ready.
func (s *Status) ready() { s.NotReady, s.NotReadySince = "", time.Time{} }
