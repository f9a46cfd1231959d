package api

import "time"

// A Kind is what a switch is for.
type Kind string

// The two kinds of switches.
const (
	KindGate     Kind = "gate"     // open: the rollout may go on
	KindRollback Kind = "rollback" // open: the canary is to be rolled back
)

// DefaultGate is the gate of the paths without a name, such as /gate/check.
const DefaultGate = "default"

// A Mode says what ends the opening of a gate.
type Mode string

// The modes.
const (
	Sticky  Mode = "sticky"   // nothing but a close: what the reference implementation does
	OneShot Mode = "one-shot" // it holds for the checksum of the first check that passes; a check with another closes it
	Bound   Mode = "checksum" // it holds for the checksum given when it was opened, and no other
)

// A Key names a gate or a rollback switch.
type Key struct {
	Kind      Kind   `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of the canary
	Gate      string `json:"gate"` // DefaultGate, or a name of its own
}

// String returns KIND NAMESPACE/NAME/GATE.
func (k Key) String() string {
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name + "/" + k.Gate
}

// A Gate is the state of a gate or a rollback switch.
type Gate struct {
	Key
	Open     bool      `json:"open"`
	Mode     Mode      `json:"mode,omitempty"`     // of the opening
	Checksum string    `json:"checksum,omitempty"` // that it is open for; "" for any
	Expires  time.Time `json:"expires,omitzero"`   // when it closes by itself
	Changed  time.Time `json:"changed,omitzero"`   // opened or closed
	Actor    string    `json:"actor,omitempty"`    // who did
	Reason   string    `json:"reason,omitempty"`   // and why
	Waiting  *Waiting  `json:"waiting,omitempty"`  // nil when nobody waits for it
}

// A Waiting is who waits at a closed gate. It ends when a check passes, when the
// rollout is over, or when no check has come for a while.
type Waiting struct {
	Since    time.Time `json:"since"`              // the first check that was refused
	Last     time.Time `json:"last"`               // the latest
	Stale    bool      `json:"stale,omitempty"`    // no check came within two of the intervals between them, or 2 s
	Phase    string    `json:"phase,omitempty"`    // of the canary
	Checksum string    `json:"checksum,omitempty"` // the revision that waits
	About
}

// An About is what a payload says of its canary for people, in the keys of its
// metadata that begin with "headgate.". Its texts are as the caller sent them.
type About struct {
	Revision  string `json:"revision,omitempty"`
	Weight    string `json:"weight,omitempty"`    // percent of the traffic that the canary has
	Step      string `json:"step,omitempty"`      // weights or iterations that were reached, of how many: "2/5"
	Threshold string `json:"threshold,omitempty"` // failed checks at which it is rolled back
	Failures  string `json:"failures,omitempty"`  // failed checks so far
}

// A Change opens or closes a gate.
type Change struct {
	Mode     Mode   `json:"mode,omitempty"`     // default Sticky, with Checksum Bound
	Checksum string `json:"checksum,omitempty"` // for Bound
	TTL      string `json:"ttl,omitempty"`      // seconds or a duration after which it closes; default never
	Actor    string `json:"actor,omitempty"`    // counts only where callers need not say who they are
	Reason   string `json:"reason,omitempty"`
}

// An Entry is one line of the audit trail.
type Entry struct {
	ID   uint64    `json:"id"` // ascending
	Time time.Time `json:"time"`
	Key
	Action   string `json:"action"` // open, close, reject, expire, consume, link
	Mode     Mode   `json:"mode,omitempty"`
	Checksum string `json:"checksum,omitempty"`
	Actor    string `json:"actor,omitempty"`
	Reason   string `json:"reason,omitempty"`
}
