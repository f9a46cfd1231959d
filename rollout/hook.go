package rollout

import "context"

// A HookType says when a webhook is called and what its answer decides
// (specification, "Hook types").
type HookType string

// The types of webhooks.
const (
	HookConfirmRollout         HookType = "confirm-rollout"          // before the canary is scaled up: approval
	HookPreRollout             HookType = "pre-rollout"              // before traffic is routed to the canary
	HookRollout                HookType = "rollout"                  // on each iteration, before the metric checks
	HookConfirmTrafficIncrease HookType = "confirm-traffic-increase" // before the weight of the canary rises: approval
	HookConfirmPromotion       HookType = "confirm-promotion"        // before promotion: approval
	HookPostRollout            HookType = "post-rollout"             // after promotion or rollback
	HookRollback               HookType = "rollback"                 // a success asks for a rollback
	HookEvent                  HookType = "event"                    // for each event
)

// A Hook is a webhook as spec.analysis.webhooks lists it.
type Hook struct {
	Name       string            `json:"name"`
	Type       HookType          `json:"type,omitempty"` // default rollout
	URL        string            `json:"url"`
	Timeout    Duration          `json:"timeout,omitempty"` // of one attempt, default 10s
	Retries    int               `json:"retries,omitempty"` // attempts after the first
	DisableTLS bool              `json:"disableTLS,omitempty"`
	MuteAlert  bool              `json:"muteAlert,omitempty"`
	Metadata   map[string]string `json:"metadata,omitempty"`

	// Extensions of headgate.
	SecretRef     *SecretRef `json:"secretRef,omitempty"`     // headers, credentials and the key of signatures
	CertSecretRef *SecretRef `json:"certSecretRef,omitempty"` // ca.crt, tls.crt and tls.key
	Deadline      Duration   `json:"deadline,omitempty"`      // of a confirm gate: how long it may stay closed before the canary is rolled back
}

// A SecretRef names a Secret in the namespace of the canary.
type SecretRef struct {
	Name string `json:"name"`
}

// Hooks calls webhooks. A [Caller] does.
type Hooks interface {
	// Call posts payload to the webhook. The error is nil when the type of the
	// webhook accepts the answer.
	Call(ctx context.Context, hook Hook, payload Payload) (Answer, error)
}
