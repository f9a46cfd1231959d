package source

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// advance is the pipeline: resolve, stop if nothing changed, otherwise open, verify and store. It
// collects results in the run, but records nothing.
func (r *run) advance(ctx context.Context) error {
	r.checkStored()
	if err := r.phase(ctx, StepResolve, r.resolve); err != nil {
		return err
	}
	if r.why = r.outdatedBy(); r.why == "" {
		if r.published != nil && r.rev.Metadata != nil { // metadata may change while the content stays the same
			r.published.Metadata = r.rev.Metadata
		}
		return nil
	}
	if r.Admit != nil {
		end, err := r.Admit(ctx)
		if err != nil {
			return r.failure(StepFetch, err)
		}
		defer end()
	}
	if err := r.phase(ctx, StepFetch, r.open); err != nil {
		return err
	}
	defer r.content.Close()
	if err := r.phase(ctx, StepVerify, r.verify); err != nil {
		return err
	}
	return r.phase(ctx, StepStore, r.store)
}

// checkStored checks that the store still has the recorded artifact.
func (r *run) checkStored() {
	r.step = StepStore
	if r.published == nil {
		return
	}
	if r.lost = r.Store.Check(*r.published); r.lost != nil {
		r.published, r.url = nil, ""
		return
	}
	r.updateURLs()
}

// updateURLs updates the URLs of the published artifact, because the address of the store or the
// version of the document may have changed since it was stored.
func (r *run) updateURLs() {
	a, latest := *r.published, r.plan.Words.Latest
	a.URL = r.Store.URL(a.Path)
	moved := a.URL != r.published.URL
	r.published = &a
	switch {
	case latest == "":
		r.url = ""
	case r.url == "" || moved:
		// The artifact is usable without the pointer.
		if url, err := r.Store.Point(r.dir, latest, a); err == nil {
			r.url = url
		}
	}
}

// resolve resolves the revision of the origin.
func (r *run) resolve(ctx context.Context) error {
	rev, state, err := r.from.Resolve(ctx, r.state)
	r.inputs = rev.Inputs
	if err != nil {
		return err
	}
	r.rev, r.next, r.resolved = rev, state, true
	r.plan.Verify = cmp.Or(r.plan.Verify, rev.Verify)
	return nil
}

// outdatedBy returns how a new artifact would differ from the published one, "" if it would be the
// same.
func (r *run) outdatedBy() string {
	a := r.published
	switch {
	case r.rev.ID == "":
		return ""
	case r.lost != nil:
		return "the artifact disappeared from storage: " + r.lost.Error()
	case a == nil:
		return "there was no artifact"
	case a.Revision != r.rev.ID:
		return fmt.Sprintf("the revision changed from %s to %s", a.Revision, r.rev.ID)
	}
	if drift := r.obj.Drift(r.rev); drift != "" {
		return "changed: " + drift
	}
	switch {
	case r.rev.Renew != "":
		return r.rev.Renew
	case !r.verified():
		return "the artifact was not verified as the spec asks now"
	case r.rev.Reverify && r.plan.Verify != "":
		return "the trusted keys changed"
	}
	return ""
}

// verified reports whether the published artifact passed the verification that this generation of
// the spec requires, or was accepted without: another generation may trust other keys.
func (r *run) verified() bool {
	c := r.obj.Common().Condition(SourceVerifiedCondition)
	return r.plan.Verify == "" || passed(c) && c.ObservedGeneration == r.obj.Head().Metadata.Generation
}

// open opens the content of the revision.
func (r *run) open(ctx context.Context) (err error) {
	r.content, err = r.from.Open(ctx, r.rev)
	return err
}

// verify verifies the content. If the spec requires verification and nothing was verified, it
// fails.
func (r *run) verify(ctx context.Context) (err error) {
	r.verification, err = r.content.Verify(ctx)
	if err == nil && r.plan.Verify != "" && r.verification == (Verification{}) {
		return fmt.Errorf("spec.verify asks for %s, but this origin has nothing to verify: %w", r.plan.Verify, ErrVerification)
	}
	return err
}

// store writes the artifact and points status.url at it.
func (r *run) store(ctx context.Context) error {
	var written error
	a, err := r.Store.Put(ctx, r.dir, r.rev.File, func(w io.Writer) error {
		r.report, written = r.content.WriteTo(ctx, w)
		return written
	})
	if err = cmp.Or(written, err); err != nil {
		return err
	}
	a.Revision, a.Metadata = r.rev.ID, r.rev.Metadata
	if r.report.Emptied {
		r.report.Notes = append(slices.Clone(r.report.Notes), emptiedNote)
	}
	if r.report.Found != nil {
		r.rev.Found = r.report.Found
	}
	url := ""
	if latest := r.plan.Words.Latest; latest != "" {
		if url, err = r.Store.Point(r.dir, latest, a); err != nil {
			return &StepError{StepStore, "SymlinkUpdateFailed", fmt.Errorf("point %s at the new artifact: %w", latest, err)}
		}
	}
	r.published, r.url, r.stored = &a, url, true
	return nil
}

const emptiedNote = "the artifact has no files: the ignore rules leave all of them out; correct spec.ignore or the ignore files of the source"

// phase executes one step of the pipeline within spec.timeout. Its error is a *StepError that names
// the step and says whether it timed out.
func (r *run) phase(ctx context.Context, step Step, do func(context.Context) error) error {
	r.step = step
	if err := Within(ctx, r.plan.Timeout, string(step), do); err != nil {
		return r.failure(step, err)
	}
	return nil
}

// errTimeout is the cause of a context that ended because of spec.timeout.
var errTimeout = fmt.Errorf("spec.timeout: %w", context.DeadlineExceeded)

// Within executes one step of fetching within timeout, the timeout of a spec; zero means no limit.
// If the step times out, the error names it and wraps [context.DeadlineExceeded].
func Within(ctx context.Context, timeout time.Duration, step string, do func(context.Context) error) error {
	if timeout <= 0 {
		return do(ctx)
	}
	limited, cancel := context.WithTimeoutCause(ctx, timeout, errTimeout)
	defer cancel()
	err := do(limited)
	if err != nil && ctx.Err() == nil && context.Cause(limited) == errTimeout {
		if !errors.Is(err, context.DeadlineExceeded) { // the interrupted operation may return another error
			err = fmt.Errorf("%w: %w", err, errTimeout)
		}
		return fmt.Errorf("%s: not done within %s, raise spec.timeout if the origin is slow: %w", step, timeout, err)
	}
	return err
}

// Bounded returns a context that ends after the spec.timeout of obj, for callers that use an origin
// without a [Reconciler].
func Bounded(ctx context.Context, obj Object) (context.Context, context.CancelFunc) {
	t := obj.Plan().Timeout
	if t <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, t, fmt.Errorf("not done within spec.timeout %s", t))
}
