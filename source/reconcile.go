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
// It saves the status before it emits events, and emits events before it prunes. A crash at any
// point therefore leaves a saved status that names an existing file. A failure never replaces a
// published artifact. It saves once, at the end of a run: if a run dies, the status of the previous
// run stays.
//
// A Reconciler keeps no state between runs. It may reconcile several objects concurrently; the lock
// of the [artifact.Store] serializes the runs of one object, in this process and in others.
type Reconciler struct {
	Store *artifact.Store
	// Load sets obj to its saved status and returns the saved state; nil: nothing is saved. If it
	// fails, the run continues as if nothing were saved and emits an event.
	Load func(ctx context.Context, obj Object) (State, error)
	// Save writes the status of obj and the state durably; nil: nothing is saved.
	Save func(ctx context.Context, obj Object, state State) error
	// Admit bounds the number of contents that are open at a time. It returns when one more may be
	// opened; the run calls the returned function after closing the content. Waiting does not count
	// against spec.timeout. Its error is that of ctx. Nil: no bound.
	Admit func(ctx context.Context) (end func(), err error)
	Now   func() time.Time // default time.Now
	Emit  func(Event)      // default: events are dropped; it may be called concurrently
}

// An Outcome is the result of a reconciliation.
type Outcome string

// The outcomes.
const (
	Stored    Outcome = "stored"    // a new artifact was published
	Unchanged Outcome = "unchanged" // the published artifact is up to date
	Suspended Outcome = "suspended" // spec.suspend is set: nothing was done
	Waiting   Outcome = "waiting"   // a dependency is not available yet
	Failed    Outcome = "failed"    // retry with back-off
	Stalled   Outcome = "stalled"   // do not retry until the spec changes
)

// Delays after a run that did not succeed (reference A1.5).
const (
	retryDelay   = 750 * time.Millisecond // the minimum; callers that repeat runs increase it
	waitingDelay = 30 * time.Second
)

// maxMoves bounds how often one run resolves an origin that keeps changing.
const maxMoves = 3

// A Result describes how a reconciliation ended and when the next one is due.
type Result struct {
	Outcome      Outcome
	After        time.Duration // time until the next run, the minimum after a failure; 0 means not until the spec changes
	Changed      bool          // the digest of the published artifact has changed
	Why          string        // reason for making a new artifact or not; for a failed run, the reason for making it, if known
	Verification Verification  // of a stored artifact
	Report       Report        // of a stored artifact
}

// Reconcile brings obj up to date with its origin. It fills in the defaults of obj (see [Default]).
//
// Afterwards, the status of obj is the saved one. The error is nil for the outcomes Stored and
// Unchanged, and for Suspended unless the saved status cannot be read. Otherwise it is a *StepError
// whose text may be shown to users; it wraps [ErrInvalid] if the outcome is Stalled and
// [ErrWaiting] if it is Waiting. A panic in the origin becomes an error that wraps a *PanicError.
//
// Credentials in URLs and control characters are removed from texts before they become a condition,
// an event or an error. If an origin has a method Secrets() []string, the credentials that it
// returns are removed too: those it received and those it was issued.
//
// An error with a method RetryAfter() time.Duration says how long the upstream asks to wait. A
// failed run is not repeated before that time, or before the interval has passed if that is
// shorter.
//
// If ctx ends, the run ends, nothing is recorded, and the result is zero. If spec.timeout ends a
// phase, that is a failure. Each phase has the whole timeout.
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
		run.addEvent(SeverityError, "ReadOperationFailed", err.Error())
	}
	run.published, run.url = obj.Artifact(), obj.Common().URL
	if locked != nil {
		return run.record(ctx, locked)
	}
	return run.record(ctx, run.runPipeline(ctx))
}

// A PanicError is a panic of an origin that was recovered, so that one object does not stop the
// work on others. A panic in a goroutine that an origin started itself cannot be recovered: origins
// must not let remote data cause one.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("panic: %v; this is a defect of headgate, please report it", e.Value)
}

// A run is one reconciliation of one object: its findings, and what to record about them. Only load
// and record write to the object.
type run struct {
	*Reconciler
	obj       Object
	from      Origin
	plan      Plan
	dir       string // of the object in the store
	step      Step   // the current step
	holdsLock bool   // this run holds the lock, so it may save
	state     State  // as saved
	next      State  // as Resolve returned it

	lost         error               // why the recorded artifact cannot be served
	published    *artifact.Artifact  // what consumers can fetch: first the last good artifact, later the new one
	url          string              // status.url of published
	inputs       []artifact.Artifact // artifacts of other sources, by Resolve
	resolved     bool                // rev is known
	rev          Revision
	content      Content
	why          string // how the published artifact is outdated, "" if it is not
	stored       bool   // published is new
	verification Verification
	report       Report

	events []Event // emitted after the status is saved
}

// lock acquires the lock of the object, which allows this run to save. The returned function is
// never nil.
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
	r.holdsLock = true
	return unlock, nil
}

// load sets the object to its saved status. The caller treats unreadable data as not saved: this
// run replaces it. A revision in an old format still counts as the same revision.
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

// runPipeline calls advance, recovers panics, and starts again if the origin moves meanwhile.
func (r *run) runPipeline(ctx context.Context) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = r.failure(r.step, &PanicError{v, debug.Stack()})
		}
	}()
	for try := 1; ; try++ {
		if err = r.Store.WithRoom(func() error { return r.advance(ctx) }); !errors.Is(err, ErrMoved) || ctx.Err() != nil {
			if full, ok := errors.AsType[*artifact.SpaceError](err); ok {
				return r.failure(r.step, full)
			}
			return err
		}
		if try == maxMoves {
			return r.failure(r.step, fmt.Errorf("%w (begun %d times in this run: it changes faster than it can be fetched; fetch less of it, or when it rests)", err, try))
		}
	}
}

// Address returns KIND/NAMESPACE/NAME, the slash-separated name of obj's directory in the store and
// of its files in a [Ledger]. The kind is in lower case; a missing namespace is the default one.
// The error wraps [ErrInvalid] if a part cannot be a file name.
func Address(obj Object) (string, error) {
	head := obj.Head()
	return Reference{head.Kind, head.Metadata.namespace(), head.Metadata.Name}.address()
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

// failure adds the step and the reason for the condition to err: those that the origin chose, or
// else those of the step in which it occurred.
func (r *run) failure(step Step, err error) *StepError {
	reason := ""
	var chosen *StepError
	switch {
	case errors.As(err, &chosen):
		reason = chosen.Reason
		if _, known := stepConditions[chosen.Step]; known {
			step = chosen.Step
		}
	case errors.Is(err, ErrVerification):
		step = StepVerify
	}
	return &StepError{step, cmp.Or(reason, stepConditions[step].reason, r.plan.Words.Failed, "Failed"), err}
}
