package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The types of conditions that the [Reconciler] owns (reference A2). Ready summarizes the others.
// All conditions describe the last run, except ArtifactInStorage, ArtifactOutdated and
// SourceVerified=True, which describe the published artifact.
const (
	ReadyCondition                  = "Ready"
	ReconcilingCondition            = "Reconciling"
	StalledCondition                = "Stalled"
	FetchFailedCondition            = "FetchFailed"
	IncludeUnavailableCondition     = "IncludeUnavailable"
	SourceVerifiedCondition         = "SourceVerified"
	BuildFailedCondition            = "BuildFailed"
	StorageOperationFailedCondition = "StorageOperationFailed"
	ArtifactOutdatedCondition       = "ArtifactOutdated"
	ArtifactInStorageCondition      = "ArtifactInStorage"
)

// ownedConditions lists the conditions of the reconciler in their order in a status.
var ownedConditions = []string{
	ReadyCondition, ReconcilingCondition, StalledCondition,
	StorageOperationFailedCondition, FetchFailedCondition, IncludeUnavailableCondition, BuildFailedCondition,
	SourceVerifiedCondition, ArtifactOutdatedCondition, ArtifactInStorageCondition,
}

// Owned reports whether the [Reconciler] owns conditions of a type. It does not change others.
func Owned(condition string) bool { return slices.Contains(ownedConditions, condition) }

// stepConditions has the condition that a failure in a step sets, and its reason if the origin has none. If
// the reason is empty, it depends on the kind: [Words].Failed.
var stepConditions = map[Step]struct{ condition, status, reason string }{
	StepResolve: {FetchFailedCondition, "True", ""},
	StepFetch:   {FetchFailedCondition, "True", ""},
	StepInclude: {IncludeUnavailableCondition, "True", "NotFound"},
	StepVerify:  {SourceVerifiedCondition, "False", "VerificationError"},
	StepBuild:   {BuildFailedCondition, "True", "ChartPackageError"},
	StepStore:   {StorageOperationFailedCondition, "True", "ArchiveOperationFailed"},
}

// RefusedChart is the reason of SourceVerified=False and of BuildFailed for a chart whose signature
// was refused (reference A2).
const RefusedChart = "ChartVerificationError"

// A verdict says how the reconciler treats a failed run.
type verdict struct {
	outcome  Outcome
	after    time.Duration
	severity string // of the event
	progress string // condition that describes what happens next
	reason   string // of that condition; "": the reason of the failure
}

// judge returns the verdict for err.
func judge(err error) verdict {
	switch {
	case errors.Is(err, ErrInvalid):
		return verdict{Stalled, 0, SeverityError, StalledCondition, ""}
	case errors.Is(err, ErrWaiting):
		return verdict{Waiting, waitingDelay, SeverityInfo, ReconcilingCondition, "ProgressingWithRetry"}
	}
	return verdict{Failed, retryDelay, SeverityError, ReconcilingCondition, "ProgressingWithRetry"}
}

// summary defines Ready: the first row whose condition is present decides.
var summary = []struct{ condition, status, ready, reason string }{
	{SourceVerifiedCondition, "False", "False", ""},
	{StorageOperationFailedCondition, "True", "False", ""},
	{FetchFailedCondition, "True", "False", ""},
	{IncludeUnavailableCondition, "True", "False", ""},
	{BuildFailedCondition, "True", "False", ""},
	{ArtifactOutdatedCondition, "True", "False", ""},
	{ArtifactInStorageCondition, "True", "True", ""},
	{StalledCondition, "True", "False", ""},
	{ReconcilingCondition, "True", "Unknown", "Progressing"},
}

// Condition returns the condition of the given type, or the zero Condition if there is none.
func (s *Status) Condition(kind string) Condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return Condition{}
}

// conditions returns the conditions after a run that ended with failed, nil for success. They have
// no generation and time; mergeConditions adds them.
func (r *run) conditions(failed *StepError) []Condition {
	var list []Condition
	if failed != nil {
		list = append(r.failureConditions(failed), r.outdatedCondition()...)
	}
	list = append(list, r.verifiedCondition(failed)...)
	return withReady(append(list, r.storedCondition()...))
}

// failureConditions returns the conditions that describe the failure and what happens next.
func (r *run) failureConditions(failed *StepError) []Condition {
	row, v := stepConditions[failed.Step], judge(failed)
	reason, message := v.reason, r.progress()
	if reason == "" {
		reason, message = failed.Reason, failed.Error()
	}
	list := append(r.set(row.condition, row.status, failed.Reason, failed.Error()), r.set(v.progress, "True", reason, message)...)
	if failed.Reason == RefusedChart {
		list = append(list, r.set(BuildFailedCondition, "True", failed.Reason, failed.Error())...)
	}
	return list
}

// outdatedCondition returns ArtifactOutdated if, after a failure, the published artifact is no longer the
// requested one, according to this run or else the last one.
func (r *run) outdatedCondition() []Condition {
	if r.published == nil {
		return nil
	}
	if reason, message := r.outdated(); reason != "" {
		return r.set(ArtifactOutdatedCondition, "True", reason, message)
	}
	if r.resolved {
		return nil
	}
	return r.previousCondition(ArtifactOutdatedCondition)
}

// verifiedCondition returns SourceVerified of the published artifact. If a revision was refused, failureConditions
// returns the condition.
func (r *run) verifiedCondition(failed *StepError) []Condition {
	switch {
	case r.published == nil || failed != nil && failed.Step == StepVerify:
		return nil
	case r.plan.Verify == "" && (r.resolved || r.obj.Common().Condition(SourceVerifiedCondition).ObservedGeneration != r.obj.Head().Metadata.Generation):
		return nil // if it was not resolved, the source may be what requires verification
	case r.stored && r.verification.Ignored:
		return r.set(SourceVerifiedCondition, "Unknown", ignoredReason, cmp.Or(r.verification.Message, ignoredMessage(r.verification.Level)))
	case r.stored:
		return r.set(SourceVerifiedCondition, "True", "Succeeded", r.verification.Message)
	}
	return r.previousCondition(SourceVerifiedCondition)
}

// storedCondition returns the condition ArtifactInStorage.
func (r *run) storedCondition() []Condition {
	if r.published == nil {
		return nil
	}
	if list := r.previousCondition(ArtifactInStorageCondition); list != nil && !r.stored {
		return list
	}
	return r.set(ArtifactInStorageCondition, "True", cmp.Or(r.report.Reason, "Succeeded"), r.storedMessage())
}

// set returns one condition with a sanitized message.
func (r *run) set(kind, status, reason, message string) []Condition {
	return []Condition{{Type: kind, Status: status, Reason: reason, Message: r.sanitize(message)}}
}

// previousCondition returns the condition from before the run, if it still applies.
func (r *run) previousCondition(kind string) []Condition {
	if c := r.obj.Common().Condition(kind); passed(c) {
		return []Condition{c}
	}
	return nil
}

// ignoredReason is the reason of SourceVerified for an artifact without a valid signature that the
// trust policy in the spec accepts anyway.
const ignoredReason = "VerificationIgnored"

func ignoredMessage(level string) string {
	return fmt.Sprintf("no signature holds, and the policy of level '%s' lets that pass", level)
}

// passed reports whether c is True, or describes an artifact that was accepted without a signature.
func passed(c Condition) bool {
	return c.Status == "True" || c.Type == SourceVerifiedCondition && c.Status == "Unknown" && c.Reason == ignoredReason
}

// withReady adds the Ready condition to list.
func withReady(list []Condition) []Condition {
	for _, row := range summary {
		for _, c := range list {
			if c.Type == row.condition && c.Status == row.status {
				return append(list, Condition{Type: ReadyCondition, Status: row.ready, Reason: cmp.Or(row.reason, c.Reason), Message: c.Message})
			}
		}
	}
	return list
}

// mergeConditions returns old with the conditions of the reconciler replaced by those in list. Foreign
// conditions stay. The transition time changes only if the status does.
func mergeConditions(old, list []Condition, generation int64, now time.Time) []Condition {
	var all []Condition
	for _, kind := range ownedConditions {
		c := (&Status{Conditions: list}).Condition(kind)
		if c.Type == "" {
			continue
		}
		c.LastTransitionTime = now
		if kind != SourceVerifiedCondition || c.ObservedGeneration == 0 { // a kept one is about the spec that it was verified for
			c.ObservedGeneration = generation
		}
		before := (&Status{Conditions: old}).Condition(kind)
		if before.Status == c.Status && !before.LastTransitionTime.IsZero() {
			c.LastTransitionTime = before.LastTransitionTime
		}
		all = append(all, c)
	}
	for _, c := range old {
		if !slices.Contains(ownedConditions, c.Type) {
			all = append(all, c)
		}
	}
	return all
}

// progress returns the message of Reconciling: the progress of the run and the reason for it.
func (r *run) progress() string {
	observed, generation := r.obj.Common().ObservedGeneration, r.obj.Head().Metadata.Generation
	setDefault(&observed, unobserved)
	switch _, newer := r.outdated(); {
	case r.lost != nil:
		return "building artifact: disappeared from storage"
	case r.published == nil:
		return "building artifact"
	case newer != "":
		return "building artifact: " + newer
	case observed != generation:
		return fmt.Sprintf("processing object: new generation %d -> %d", observed, generation)
	}
	return "reconciliation in progress"
}

// outdated returns why the published artifact does not match the spec and the origin any more, or
// an empty reason if it still does.
func (r *run) outdated() (reason, message string) {
	newer := r.plan.Words.Newer
	switch {
	case !r.resolved || r.published == nil || r.stored:
		return "", ""
	case r.published.Revision != r.rev.ID:
		return cmp.Or(newer, "NewRevision"), fmt.Sprintf("new upstream revision '%s'", r.rev.ID)
	case r.obj.Drift(r.rev) == "" && (newer == "" || r.rev.Renew == ""):
		return "", ""
	case newer != "":
		return newer, cmp.Or(r.rev.Renew, "the spec differs from that of the artifact in storage")
	case len(r.rev.Inputs) > 0 && r.obj.Common().ObservedGeneration == r.obj.Head().Metadata.Generation:
		return "IncludeChange", "included artifacts differ from those of the artifact in storage"
	}
	return "NewConfiguration", "the spec differs from that of the artifact in storage"
}

// storedMessage returns the message of Ready and ArtifactInStorage.
func (r *run) storedMessage() string {
	if r.report.Ready != "" {
		return r.report.Ready
	}
	form := cmp.Or(r.plan.Words.Stored, "stored artifact: revision '%s'")
	return strings.ReplaceAll(form, "%s", r.published.Revision)
}
