package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"time"

	"github.com/headgate-io/headgate/artifact"
)

// unobserved is the observedGeneration of an object before any of its generations was processed, as
// in an API server (reference, section 0).
const unobserved = -1

// record writes the result of the run to the status, saves it, emits events and prunes superseded
// artifacts.
func (r *run) record(ctx context.Context, err error) (Result, error) {
	if err != nil && ctx.Err() != nil {
		return Result{}, fmt.Errorf("%s: interrupted: %w", r.dir, context.Cause(ctx))
	}
	var failed *StepError
	errors.As(err, &failed)
	ctx = context.WithoutCancel(ctx) // stored artifacts must be recorded
	before := Clone(r.obj)
	r.writeStatus(failed)
	if err := r.save(ctx, failed); err != nil {
		SetStatus(r.obj, before)
		failed = saveFailure(err, failed)
		r.events = nil
		r.addEvent(SeverityError, failed.Reason, failed.Error())
	}
	if r.Emit != nil {
		r.emit()
	}
	if failed != nil {
		v := judge(failed)
		failed.Err = Conceal(failed.Err, r.from)
		return Result{Outcome: v.outcome, After: r.retryAfter(failed, v), Why: r.why}, failed
	}
	r.prune()
	if !r.stored {
		reason := cmp.Or(r.rev.Note, "revision, spec and inputs are those of the artifact")
		if r.rev.ID == "" {
			reason = "objects of this sort have no artifact"
		}
		return Result{Outcome: Unchanged, After: r.obj.Interval(), Why: reason}, nil
	}
	return Result{
		Outcome: Stored, After: r.obj.Interval(), Changed: digestOf(r.obj) != digestOf(before), Why: r.why,
		Verification: r.verification, Report: r.report,
	}, nil
}

// retryAfter returns how long to wait after a failure: at least as long as the upstream asks for, but at
// most the interval.
func (r *run) retryAfter(failed *StepError, v verdict) time.Duration {
	busy, ok := errors.AsType[interface {
		error
		RetryAfter() time.Duration
	}](failed)
	if !ok || v.outcome != Failed {
		return v.after
	}
	return max(v.after, min(busy.RetryAfter(), r.obj.Interval()))
}

// digestOf returns the digest of the artifact in the status of obj.
func digestOf(obj Object) string {
	if a := obj.Artifact(); a != nil {
		return a.Digest
	}
	return ""
}

// writeStatus updates the status of the object and adds the events about it.
func (r *run) writeStatus(failed *StepError) {
	status, head := r.obj.Common(), r.obj.Head()
	if r.Emit != nil {
		r.addOutcomeEvents(failed)
	}
	conditions := r.conditions(failed)
	if static := failed == nil && r.rev.ID == ""; static {
		conditions, r.published, r.url = nil, nil, ""
		if r.rev.Ready != "" {
			conditions = r.set(ReadyCondition, "True", "Succeeded", r.rev.Ready)
		}
	}
	status.Conditions = mergeConditions(status.Conditions, conditions, head.Metadata.Generation, r.now())
	switch {
	case failed == nil || judge(failed).outcome == Stalled:
		status.ObservedGeneration = head.Metadata.Generation
	case status.ObservedGeneration == 0 && head.Metadata.Generation != 0:
		status.ObservedGeneration = unobserved
	}
	if at := RequestedAt(r.obj); at != "" {
		status.LastHandledReconcileAt = at
	}
	status.Artifact, status.URL = r.published, r.url
	if r.stored {
		r.obj.Observe(r.rev)
	}
	if obj, ok := r.obj.(interface{ observeInputs([]artifact.Artifact) }); ok && r.inputs != nil {
		obj.observeInputs(r.inputs)
	}
}

// addOutcomeEvents adds the events that describe how the run ended (reference A3).
func (r *run) addOutcomeEvents(failed *StepError) {
	before := r.obj.Common()
	if r.lost != nil && !errors.Is(r.lost, fs.ErrNotExist) { // a new volume lacks all artifacts
		r.addEvent(SeverityError, "ArtifactVerificationFailed", fmt.Sprintf("artifact %s is damaged: %v", before.Artifact.Path, r.lost))
	}
	switch {
	case failed != nil:
		r.addEvent(judge(failed).severity, failed.Reason, failed.Error())
	case r.rev.ID == "":
	case r.stored && (before.Artifact == nil || before.Artifact.Digest != r.published.Digest):
		r.addEvent(SeverityInfo, cmp.Or(r.report.Reason, "NewArtifact"), cmp.Or(r.report.Message, r.storedMessage()))
		if r.report.Emptied {
			r.addEvent(SeverityError, "EmptyArtifact", emptiedNote)
		}
	case before.Condition(ReadyCondition).Status == "False":
		c := r.storedCondition()[0] // the message from when it was stored
		r.addEvent(SeverityInfo, c.Reason, c.Message)
	default:
		r.addEvent(SeverityTrace, "ArtifactUpToDate", fmt.Sprintf("artifact is up to date with revision '%s'", r.rev.ID))
	}
}

// save saves the status and its state durably.
func (r *run) save(ctx context.Context, failed *StepError) error {
	if r.Save == nil || !r.holdsLock {
		return nil
	}
	if failed == nil {
		r.state = r.next
	}
	save := func() error { return r.Save(ctx, r.obj, r.state) }
	retry := r.Store.WithRoom
	if failed != nil && errors.As(failed.Err, new(*artifact.SpaceError)) { // the cache is empty already
		retry = func(do func() error) error { return do() }
	}
	if err := retry(save); err != nil {
		return fmt.Errorf("save status of %s: %w", r.dir, err)
	}
	return nil
}

// saveFailure returns the failure of a run whose result could not be saved.
func saveFailure(err error, failed *StepError) *StepError {
	if failed != nil {
		err = fmt.Errorf("%w, after: %v", err, failed)
	}
	return &StepError{StepStore, "PatchOperationFailed", err}
}

// prune removes superseded artifacts, or everything of an object that has no artifact any more.
// Failures only cost space.
func (r *run) prune() {
	var err error
	switch {
	case r.published != nil:
		err = r.Store.Prune(r.dir, *r.published)
	case r.rev.ID == "":
		err = r.Store.Remove(r.dir)
	}
	if err != nil && r.Emit != nil {
		r.events = nil
		r.addEvent(SeverityError, "GarbageCollectionFailed", fmt.Sprintf("remove superseded artifacts: %v", err))
		r.emit()
	}
}

// now returns the time for status and events: whole seconds, UTC.
func (r *run) now() time.Time {
	now := time.Now
	if r.Now != nil {
		now = r.Now
	}
	return now().UTC().Truncate(time.Second)
}

// statusOf returns the status of obj: the field Status of the struct of its kind, or else the
// common part.
func statusOf(obj Object) reflect.Value {
	if status := reflect.ValueOf(obj).Elem().FieldByName("Status"); status.IsValid() {
		return status
	}
	return reflect.ValueOf(obj.Common()).Elem()
}
