package source

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// A Reconciler drives every kind through the same steps and is the only writer of status.
type Reconciler struct {
	Store *artifact.Store
	// Load fills in the saved status of obj and returns the saved state; nil: nothing is saved.
	Load func(ctx context.Context, obj Object) (State, error)
	// Save makes the status of obj and the state durable; nil: nothing is saved.
	Save func(ctx context.Context, obj Object, state State) error
	Now  func() time.Time // default time.Now
	Emit func(Event)      // default: events are dropped
}

// An Outcome says how a reconciliation ended.
type Outcome string

// The outcomes.
const (
	Stored    Outcome = "stored"    // a new artifact was published
	Unchanged Outcome = "unchanged" // the published artifact is still good
	Suspended Outcome = "suspended" // spec.suspend: nothing was done
	Waiting   Outcome = "waiting"   // a dependency is not there yet
	Failed    Outcome = "failed"    // try again with back-off
	Stalled   Outcome = "stalled"   // not again until the spec changes
)

// A Result says how a reconciliation ended and when the next is due.
type Result struct {
	Outcome      Outcome
	After        time.Duration // until the next run; 0 means not until the spec changes
	Verification Verification
	Report       Report // of a stored artifact
}

// Reconcile brings obj up to date with its origin.
func (r *Reconciler) Reconcile(ctx context.Context, obj Object, from Origin) (Result, error) {
	return Result{}, errors.ErrUnsupported
}
