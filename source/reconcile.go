package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// A Reconciler drives every kind through the same steps and is the only writer of status.
//
// It saves before it announces and announces before it prunes, so that a crash
// at any point leaves a saved status that names a file which exists. A failure
// never replaces a published artifact. It saves once, at the end of a run: a
// run that dies leaves the status of the run before.
//
// A Reconciler holds nothing between runs. One may drive many objects at once;
// the lock of the [artifact.Store] orders the runs of one object, in this
// process and in others.
type Reconciler struct {
	Store *artifact.Store
	// Load fills in the saved status of obj and returns the saved state; nil: nothing is saved.
	// What it cannot read counts as not saved and is announced as an event.
	Load func(ctx context.Context, obj Object) (State, error)
	// Save makes the status of obj and the state durable; nil: nothing is saved.
	Save func(ctx context.Context, obj Object, state State) error
	// Admit bounds how many contents are open at a time: it returns when one more
	// may be opened, and the function it returns is called once that is closed.
	// Waiting does not count against spec.timeout. Its error is that of ctx. Nil:
	// there is no bound.
	Admit func(ctx context.Context) (end func(), err error)
	Now   func() time.Time // default time.Now
	Emit  func(Event)      // default: events are dropped; several runs may call it at once
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

// How long to wait after a run that did not succeed (reference A1.5).
const (
	retryDelay   = 750 * time.Millisecond // the shortest; callers that repeat runs make it grow
	waitingDelay = 30 * time.Second
)

// maxMoves bounds how often one run resolves an origin that does not hold still.
const maxMoves = 3

// A Result says how a reconciliation ended and when the next is due.
type Result struct {
	Outcome      Outcome
	After        time.Duration // until the next run, the shortest for one that failed; 0 means not until the spec changes
	Changed      bool          // the published artifact has another digest than before
	Why          string        // why a new artifact was made, or was not; of a failed run, what it was to be made for, if that is known
	Verification Verification  // of a stored artifact
	Report       Report        // of a stored artifact
}

// Reconcile brings obj up to date with its origin. It fills in the defaults of obj (see [Default]).
//
// The status of obj, as it stands afterwards, is what was saved. The error is
// nil for the outcomes Stored and Unchanged, and for Suspended unless the saved
// status cannot be read. Otherwise it is a *StepError whose text is fit to be shown; it wraps [ErrInvalid] when the
// outcome is Stalled and [ErrWaiting] when it is Waiting. A panic in the origin
// becomes an error that wraps a *PanicError.
//
// URLs lose their credentials, and texts their control characters, before they
// become a condition, an event or an error. An origin that has a method
// Secrets() []string names further credentials that must not show: those it
// was given and those it was issued.
//
// An error that has a method RetryAfter() time.Duration says how long the
// upstream wants to be left alone. A run that failed is not repeated before
// that, or before the interval is over if that is sooner.
//
// When ctx ends the run ends with it, nothing is recorded, and the result is
// zero. The end of spec.timeout, which bounds each phase, is a failure.
func (r *Reconciler) Reconcile(ctx context.Context, obj Object, from Origin) (Result, error) {
	Default(obj)
	run := &run{Reconciler: r, obj: obj, from: from, plan: obj.Plan()}
	dir, err := Address(obj)
	if err != nil {
		return run.record(ctx, &StepError{StepStore, "InvalidPath", err})
	}
	run.dir = dir
	if run.plan.Suspend {
		return Result{Outcome: Suspended, Why: "spec.suspend is set"}, run.load(ctx)
	}
	unlock, locked := run.lock(ctx)
	defer unlock()
	if err := run.load(ctx); err != nil {
		run.announce(SeverityError, "ReadOperationFailed", err.Error())
	}
	run.published, run.url = obj.Artifact(), obj.Common().URL
	if locked != nil {
		return run.record(ctx, locked)
	}
	return run.record(ctx, run.guarded(ctx))
}

// A PanicError is a panic of an origin, turned into an error so that one
// object cannot end the work on others. A panic in a goroutine that an origin
// started itself cannot be caught: origins must not let remote data cause one.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a defect of headgate, please report it", e.Value)
}

// A run is one reconciliation of one object: what was found, and what is to be
// recorded about it. Only load and record write to the object.
type run struct {
	*Reconciler
	obj   Object
	from  Origin
	plan  Plan
	dir   string // of the object in the store
	step  Step   // the step the run is in
	owner bool   // this run holds the lock, so it may save
	state State  // as saved
	next  State  // as Resolve returned it

	lost         error               // why the recorded artifact cannot be served
	published    *artifact.Artifact  // what consumers can fetch: the last good artifact, later the new one
	url          string              // status.url that goes with it
	seen         []artifact.Artifact // of other sources, by Resolve
	resolved     bool                // rev is known
	rev          Revision
	content      Content
	why          string // in which way the published artifact was outdated, "" when it was not
	stored       bool   // published is new
	verification Verification
	report       Report

	events []Event // announced once the status is saved
}

// lock takes the lock of the object, which makes this run the one that may
// save. The function it returns is never nil.
func (r *run) lock(ctx context.Context) (unlock func(), err error) {
	err = r.Store.WithRoom(func() (err error) {
		unlock, err = r.Store.Lock(ctx, r.dir)
		return err
	})
	if errors.Is(err, fs.ErrInvalid) {
		return func() {}, &StepError{StepStore, "InvalidPath", fmt.Errorf("%w: %w", ErrInvalid, err)}
	}
	if err != nil {
		return func() {}, &StepError{StepStore, "AcquireLockFailed", fmt.Errorf("lock %s: %w", r.dir, err)}
	}
	r.owner = true
	return unlock, nil
}

// load fills in what was saved. What cannot be read counts as not saved:
// the run that follows replaces it. A revision in an old spelling is still the
// same revision.
func (r *run) load(ctx context.Context) error {
	defer renewRevisions(r.obj)
	if r.Load == nil {
		return nil
	}
	state, err := r.Load(ctx, r.obj)
	if err != nil {
		return fmt.Errorf("read saved status of %s: %w", r.dir, err)
	}
	r.state = state
	return nil
}

// guarded is advance without panics, begun again when the origin moves on under it.
func (r *run) guarded(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.failure(r.step, &PanicError{v, debug.Stack()})
		}
	}()
	for try := 1; ; try++ {
		if err = r.Store.WithRoom(func() error { return r.advance(ctx) }); !errors.Is(err, ErrMoved) || ctx.Err() != nil {
			if full, told := errors.AsType[*artifact.SpaceError](err); told {
				return r.failure(r.step, full)
			}
			return err
		}
		if try == maxMoves {
			return r.failure(r.step, fmt.Errorf("%w (begun %d times in this run: it changes faster than it can be fetched; fetch less of it, or when it rests)", err, try))
		}
	}
}

// Address returns KIND/NAMESPACE/NAME, the slash-separated name of obj's
// directory in the store and of its files in a [Ledger]. The kind is in lower
// case, a missing namespace the default one. The error wraps [ErrInvalid] when a
// part cannot be a file name.
func Address(obj Object) (string, error) {
	head := obj.Head()
	return Reference{head.Kind, head.Metadata.space(), head.Metadata.Name}.address()
}

func (r Reference) address() (string, error) {
	parts := []string{strings.ToLower(r.Kind), r.Namespace, r.Name}
	for i, part := range parts {
		if !fs.ValidPath(part) || part[0] == '.' || strings.ContainsAny(part, "/\\:\x00") {
			field := []string{"kind", "metadata.namespace", "metadata.name"}[i]
			return "", fmt.Errorf("%s %q cannot be used in a path: %w", field, part, ErrInvalid)
		}
	}
	return strings.Join(parts, "/"), nil
}

// failure gives err the step and the reason that its condition carries: those
// the origin chose, or else those of the step it occurred in.
func (r *run) failure(step Step, err error) *StepError {
	reason := ""
	var chosen *StepError
	switch {
	case errors.As(err, &chosen):
		reason = chosen.Reason
		if _, known := steps[chosen.Step]; known {
			step = chosen.Step
		}
	case errors.Is(err, ErrVerification):
		step = StepVerify
	}
	return &StepError{step, cmp.Or(reason, steps[step].reason, r.plan.Words.Failed, "Failed"), err}
}
