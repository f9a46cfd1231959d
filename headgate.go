// Package headgate is the shortest way through the library. [Origins] returns the
// [source.Origin] of any object. [Fetch] brings a set of objects up to date once, in
// the order of their needs. [Origins.Write] writes the artifact of one object,
// without a store.
//
// A program passes in what it links: drivers of buckets (packages bucket/s3,
// bucket/gcs and bucket/azure), verifiers of signatures (oci/cosign and
// oci/notation) and logins of clouds (packages in source/login). This package
// imports none of them. It reads no environment and does not log.
package headgate

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/bucket"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/git"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/generator"
)

// Origins says what a program can fetch. The zero value reads Git repositories,
// registries and repositories of charts, with the credentials that Secrets hold;
// it reads no buckets and verifies no signatures of registries.
type Origins struct {
	Buckets   map[string]bucket.Provider  // spec.provider of a Bucket → driver
	Verifiers map[string]oci.Technology   // spec.verify.provider of an OCIRepository or PkgChart → technology
	Logins    map[string]source.LoginFunc // spec.provider → login; unused where [source.Env] has a Login
}

// New returns the origin of obj, whose defaults it fills in (see [source.Default]).
// It does no I/O. The error wraps [source.ErrInvalid]: the artifact of an
// ExternalArtifact that no generator makes is published by others.
func (o Origins) New(obj source.Object, env source.Env) (source.Origin, error) {
	source.Default(obj)
	if env.Login == nil && o.Logins != nil {
		env.Login = o.login
	}
	switch obj := obj.(type) {
	case *source.GitRepository:
		return git.New(obj, env), nil
	case *source.Bucket:
		return bucket.New(obj, env, o.Buckets), nil
	case *source.OCIRepository:
		return oci.New(obj, env, o.Verifiers), nil
	case *source.PkgRepository:
		return chart.NewRepository(obj, env), nil
	case *source.PkgChart:
		return chart.New(obj, env, o.Verifiers), nil
	case *source.ArtifactGenerator:
		return generator.NewSummary(obj, env), nil
	case *source.ExternalArtifact:
		if obj.Composed != nil {
			return generator.New(obj, env), nil
		}
	}
	return nil, kindError(obj.Head().Kind)
}

// login is a [source.LoginFunc].
func (o Origins) login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	login, ok := o.Logins[r.Provider]
	if !ok {
		return source.Credential{}, fmt.Errorf("%w: %w: this version of headgate cannot log in with it", source.ErrInvalid, source.ErrProvider)
	}
	return login(ctx, r)
}

// Write writes the artifact of obj, as its origin has it now, to w. It verifies
// the content first if the spec asks for it, and stores nothing. Includes of a
// GitRepository, the source of a PkgChart and those of a generator come from
// env.Sources, and have to have artifacts. The spec.timeout of obj bounds all of it.
func (o Origins) Write(ctx context.Context, w io.Writer, obj source.Object, env source.Env) (source.Revision, source.Report, error) {
	from, err := o.New(obj, env)
	if err != nil {
		return source.Revision{}, source.Report{}, err
	}
	ctx, cancel := source.Bounded(ctx, obj)
	defer cancel()
	rev, report, err := write(ctx, w, obj, from)
	return rev, report, source.Conceal(err, from)
}

func write(ctx context.Context, w io.Writer, obj source.Object, from source.Origin) (source.Revision, source.Report, error) {
	rev, _, err := from.Resolve(ctx, nil)
	if err != nil {
		return rev, source.Report{}, err
	}
	content, err := from.Open(ctx, rev)
	if err != nil {
		return rev, source.Report{}, err
	}
	var report source.Report
	if _, err = verified(ctx, obj, rev, content); err == nil {
		report, err = content.WriteTo(ctx, w)
	}
	return rev, report, errors.Join(err, content.Close())
}

// verified verifies content. Content without a signature is refused if the spec asks for one.
func verified(ctx context.Context, obj source.Object, rev source.Revision, content source.Content) (source.Verification, error) {
	v, err := content.Verify(ctx)
	if asked := obj.Plan().Verify + rev.Verify; err == nil && asked != "" && v == (source.Verification{}) {
		err = fmt.Errorf("the spec asks for verification, but this origin has nothing to verify: %w", source.ErrVerification)
	}
	return v, err
}

// A kindError is the error about objects of a kind that has no origin.
type kindError string

func (kind kindError) Error() string {
	return string(kind) + " objects are published by other programs: headgate reads their status, and fetches nothing for them"
}

// Is makes the error one that wraps [source.ErrInvalid], without its text.
func (kind kindError) Is(target error) bool { return target == source.ErrInvalid }
