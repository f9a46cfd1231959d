package rollout

import "time"

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

// A Status is all that an analysis knows between two steps: it is stored as JSON.
type Status struct {
	Phase          Phase     `json:"phase,omitempty"`
	FailedChecks   int       `json:"failedChecks"`
	CanaryWeight   int       `json:"canaryWeight"`
	Iterations     int       `json:"iterations"`
	AppliedSpec    string    `json:"lastAppliedSpec,omitempty"`  // the revision under analysis
	PromotedSpec   string    `json:"lastPromotedSpec,omitempty"` // the revision that the primary serves
	LastTransition time.Time `json:"lastTransitionTime,omitzero"`
	Gate           *Gate     `json:"gate,omitempty"`         // the confirm gate that it waits on
	NotReadySince  time.Time `json:"notReadySince,omitzero"` // of the canary or the primary
	PostRollout    bool      `json:"postRollout,omitempty"`  // post-rollout webhooks are still to be called
	Sequence       int64     `json:"sequence"`               // of the last event
}

// A Gate is a confirm webhook that did not pass.
type Gate struct {
	Type   HookType  `json:"type"`
	Name   string    `json:"name"`
	Since  time.Time `json:"since"`
	Reason string    `json:"reason,omitempty"` // what it answered, bounded
}
