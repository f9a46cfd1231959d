package rollout

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"strconv"
)

// A HookType defines when a webhook is called and what its answer decides
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
	SecretRef     *SecretRef `json:"secretRef,omitempty"`     // headers, credentials and the signature key
	CertSecretRef *SecretRef `json:"certSecretRef,omitempty"` // ca.crt, tls.crt and tls.key
	Deadline      Duration   `json:"deadline,omitempty"`      // of a confirm gate: how long it may stay closed before the canary is rolled back
}

// A SecretRef names a Secret in the namespace of the canary.
type SecretRef struct {
	Name string `json:"name"`
}

// Hooks calls webhooks. [Caller] implements it.
type Hooks interface {
	// Call posts payload to the webhook. The error is nil if the type of the
	// webhook accepts the answer.
	Call(ctx context.Context, hook Hook, payload Payload) (Answer, error)
}

// A Payload is the body that a webhook receives, with its fields in this order
// (specification, "Webhook call payload").
type Payload struct {
	Name      string            `json:"name"`
	Namespace string            `json:"namespace"`
	Phase     Phase             `json:"phase"`
	Checksum  string            `json:"checksum"`
	Metadata  map[string]string `json:"metadata,omitempty"`
}

// Metadata keys that tell users of a receiver about the rollout. An [Analysis] adds
// them to the metadata of each webhook; a key that the webhook sets itself takes
// precedence. A test runner does not treat them as parameters of the test.
const (
	MetadataRevision  = "headgate.revision"  // the revision that is rolled out
	MetadataWeight    = "headgate.weight"    // percent of the traffic that the canary has
	MetadataStep      = "headgate.step"      // reached and total number of weights or iterations: "2/5"
	MetadataThreshold = "headgate.threshold" // number of failed checks that rolls the canary back
	MetadataFailures  = "headgate.failures"  // failed checks so far

	// MetadataTrial has the value "true" if a user tries out the call that a
	// rollout would make: nothing waits for the answer.
	MetadataTrial = "headgate.trial"
)

// metadata returns the metadata of a webhook with the keys above added.
func (t *tick) metadata(h Hook) map[string]string {
	s := t.s
	if t.starting { // the counters are still those of the previous revision
		s.FailedChecks, s.Iterations = 0, 0
	}
	all := map[string]string{
		MetadataRevision: excerpt(cmp.Or(t.revision, s.AppliedSpec)), MetadataWeight: strconv.Itoa(s.CanaryWeight),
		MetadataThreshold: strconv.Itoa(t.Canary.Threshold()), MetadataFailures: strconv.Itoa(s.FailedChecks),
	}
	if i, n := t.Canary.stepsDone(s); n > 0 {
		all[MetadataStep] = fmt.Sprintf("%d/%d", i, n)
	}
	maps.Copy(all, h.Metadata)
	return all
}

// checksumDigits replace decimal digits. Without vowels they spell no words.
const checksumDigits = "bcdfghjklmnpqrstvwxz2456789"

// Checksum returns an identifier of a revision with at most ten characters, the
// same as the reference implementation; spec is the revision in the status of a
// canary. Receivers treat it as opaque.
//
// It is the 32-bit FNV-1a sum of a text with the revision, with each decimal digit
// replaced. It is not cryptographic: different revisions can have the same
// checksum.
func Checksum(spec string) string {
	sum := fnv.New32a()
	fmt.Fprintf(sum, "(struct { TrackedConfigs *map[string]string; LastAppliedSpec string }){TrackedConfigs:(*map[string]string)<nil> LastAppliedSpec:(string)%s}", spec)
	text := strconv.AppendUint(nil, uint64(sum.Sum32()), 10)
	for i, digit := range text {
		text[i] = checksumDigits[int(digit)%len(checksumDigits)]
	}
	return string(text)
}
