package headgate

import (
	"context"
	"fmt"

	"github.com/headgate-io/headgate/source"
)

// inspect contacts the origin of an object without storing anything.
func (f *fetch) inspect(ctx context.Context, r *Result) error {
	_, generator := r.Object.(*source.ArtifactGenerator) // a generator has no revision, only its artifacts have
	if generator || f.Locked && specOnly(r.Object) {
		return nil
	}
	source.AssignGeneration(r.Object, nil) // part of the version of a chart; the same as in a first fetch
	obj, err := f.withoutIncludes(ctx, r.Object)
	if err != nil {
		return err
	}
	from, _, err := f.originOf(obj)
	if err != nil {
		return err
	}
	ctx, cancel := source.Bounded(ctx, obj)
	defer cancel()
	if f.Until == source.StepVerify {
		err = r.verify(ctx, from)
	} else if r.Revision.ID == "" { // reconcile has not found it
		r.Revision, _, err = from.Resolve(ctx, nil)
	}
	return source.Conceal(err, from)
}

// withoutIncludes returns a copy of obj without its includes, so that the result is about obj alone. The
// includes must exist.
func (f *fetch) withoutIncludes(ctx context.Context, obj source.Object) (source.Object, error) {
	g, ok := obj.(*source.GitRepository)
	if !ok || len(g.Spec.Include) == 0 {
		return obj, nil
	}
	if _, err := source.Needed(ctx, g, f.Env.Sources); err != nil {
		return nil, fmt.Errorf("spec.include: %w", err)
	}
	repo := *g
	repo.Spec.Include = nil
	return &repo, nil
}

// verify fetches the object of r and checks its signature.
func (r *Result) verify(ctx context.Context, from source.Origin) error {
	if err := checkVerifiable(r.Object); err != nil {
		return err
	}
	rev, _, err := from.Resolve(ctx, nil)
	r.Revision = rev
	if err != nil {
		return err
	}
	if r.Object.Plan().Verify == "" && rev.Verify == "" {
		return errNoVerify
	}
	content, err := from.Open(ctx, rev)
	if err != nil {
		return err
	}
	defer content.Close()
	r.Verification, err = verifyContent(ctx, r.Object, rev, content)
	return err
}

var errNoVerify = fmt.Errorf("spec.verify is not set: nothing was verified: %w", source.ErrVerification)

// checkVerifiable returns the reason why nothing of obj can be verified, or nil if something may be.
func checkVerifiable(obj source.Object) error {
	switch o := obj.(type) {
	case *source.Bucket:
		return fmt.Errorf("buckets have no signatures: nothing was verified: %w", source.ErrVerification)
	case *source.PkgRepository:
		if o.Spec.Verify != nil {
			return fmt.Errorf("spec.verify is about the charts of a repository, its index has no signature: verify a PkgChart: %w", source.ErrVerification)
		}
		return fmt.Errorf("indexes have no signatures: nothing was verified: %w", source.ErrVerification)
	case *source.PkgChart:
		return nil // its repository may ask for it
	case *source.ExternalArtifact:
		return fmt.Errorf("it is made of other sources, or elsewhere: verify these: %w", source.ErrVerification)
	}
	if obj.Plan().Verify == "" {
		return errNoVerify
	}
	return nil
}
