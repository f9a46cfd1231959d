package rollout

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
)

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

// A Payload is what a webhook receives: its fields in this order
// (specification, "Webhook call payload").
type Payload struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Phase     Phase             `json:"phase"`
	Checksum  string            `json:"checksum"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// Keys of metadata that tell people at a receiver what a webhook is asked about.
// An [Analysis] adds them to the metadata of webhooks, where a key of the webhook
// itself wins. A test runner does not take them for a part of the test.
const (
	MetadataRevision  = "headgate.revision"  // that is rolled out
	MetadataWeight    = "headgate.weight"    // percent of the traffic that the canary has
	MetadataStep      = "headgate.step"      // weights or iterations that were reached, of how many: "2/5"
	MetadataThreshold = "headgate.threshold" // failed checks at which the canary is rolled back
	MetadataFailures  = "headgate.failures"  // failed checks so far

	// MetadataTrial has the value "true" when a person tries out what a rollout
	// would send: nothing waits for the answer.
	MetadataTrial = "headgate.trial"
)

// metadata returns that of a webhook, with what a person needs to know.
func (t *tick) metadata(h Hook) map[string]string {
	s := t.s
	if t.fresh { // the status still counts for the revision before
		s.FailedChecks, s.Iterations = 0, 0
	}
	all := map[string]string{
		MetadataRevision: bounded(cmp.Or(t.revision, s.AppliedSpec)), MetadataWeight: strconv.Itoa(s.CanaryWeight),
		MetadataThreshold: strconv.Itoa(t.Canary.Threshold()), MetadataFailures: strconv.Itoa(s.FailedChecks),
	}
	if i, n := t.Canary.stepsDone(s); n > 0 {
		all[MetadataStep] = fmt.Sprintf("%d/%d", i, n)
	}
	maps.Copy(all, h.Metadata)
	return all
}

// checksumDigits are the letters and digits that spell no words.
const checksumDigits = "bcdfghjklmnpqrstvwxz2456789"

// Checksum identifies a revision, in at most ten characters, as the reference
// does: spec is the revision as the status of a canary has it. Receivers treat
// it as opaque.
//
// It is the 32-bit FNV-1a sum of a text with the revision; each decimal digit
// of the sum is replaced. It protects from nothing: different revisions can have
// the same.
func Checksum(spec string) string {
	sum := fnv.New32a()
	fmt.Fprintf(sum, "(struct { TrackedConfigs *map[string]string; LastAppliedSpec string }){TrackedConfigs:(*map[string]string)<nil> LastAppliedSpec:(string)%s}", spec)
	text := strconv.AppendUint(nil, uint64(sum.Sum32()), 10)
	for i, digit := range text {
		text[i] = checksumDigits[int(digit)%len(checksumDigits)]
	}
	return string(text)
}
