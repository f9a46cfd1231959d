package controller

import (
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// A Trigger says why a run began.
type Trigger string

// The triggers.
const (
	Start   Trigger = "start"   // the object is new, or its last run is not known
	Tick    Trigger = "tick"    // its interval is over
	Retry   Trigger = "retry"   // the last run failed, or waited
	Spec    Trigger = "spec"    // its document changed
	Request Trigger = "request" // the annotation requestedAt, a command or the page
	Hook    Trigger = "hook"    // a webhook
	Input   Trigger = "input"   // a source that it is made of changed
	Secret  Trigger = "secret"  // a Secret that it uses changed
	Repair  Trigger = "repair"  // its artifact was found damaged
)

// A Run is one reconciliation that ended.
type Run struct {
	Number  int64 // 1 for the first run of an object since the controller began
	Object  source.Reference
	Kind    string // of the object, as its document spells it
	Trigger Trigger
	Due     time.Time // when it was to begin
	Started time.Time
	Took    time.Duration
	Result  source.Result
	Err     error // fit to be shown

	Artifact *artifact.Artifact // that is published now, by this run or one before; nil for none
}

// A Phase says what an object is doing.
type Phase string

// The phases.
const (
	Idle      Phase = "idle"      // until it is due
	Queued    Phase = "queued"    // due, and waits for its turn
	Running   Phase = "running"   // under reconciliation
	Blocked   Phase = "blocked"   // an object that it is made of has yet to run
	Stalled   Phase = "stalled"   // until its spec changes
	Suspended Phase = "suspended" // by its spec or a command
	Removed   Phase = "removed"   // from the feed; its artifacts go after their retention
	Gone      Phase = "gone"      // with its artifacts; only Watch tells it, as the last of an object
)

// A View is an object as it is at one moment.
type View struct {
	Object     source.Object // as it was after its last run; not to be changed
	Phase      Phase
	Next       time.Time          // when it is due, the zero time when it is not
	Last       Run                // the last run; its Number is 0 when there was none
	Checked    time.Time          // when its origin was last asked with success, the zero time when not since the controller began
	Failures   int                // failed runs since the last that succeeded
	Suspension *source.Suspension // by a command; nil for none
	Missing    bool               // its document is missing, and that of others is defective: it goes on as it was
	Blockers   []source.Reference // what it waits for when it is blocked
}

// Stats say how much there is to do.
type Stats struct {
	Objects  int // in the feed
	Idle     int // until they are due
	Queued   int // due
	Running  int
	Fetching int           // of those that run
	Oldest   time.Duration // how long the first of those that are due has waited
	Asked    int64         // questions that upstreams were asked, as far as objects can share the answers
	Shared   int64         // answers that were those to another object
}
