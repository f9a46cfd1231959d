// Package headgate is the entry point of the library. [Origins] returns the [source.Origin] of any
// object. [Fetch] brings a set of objects up to date once, in the order of their needs.
// [Origins.Write] writes the artifact of one object without a store.
//
// A program passes in what it links: drivers of buckets (packages bucket/s3, bucket/gcs and
// bucket/azure), verifiers of signatures (oci/cosign and oci/notation) and cloud logins (packages
// in source/login). This package imports none of them. It reads no environment variables and does
// not log.
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

// Origins configures what a program can fetch. The zero value reads Git repositories, registries
// and chart repositories, with the credentials in Secrets; it reads no buckets and verifies no
// signatures in registries.
type Origins struct {
	Buckets   map[string]bucket.Provider  // spec.provider of a Bucket → driver
	Verifiers map[string]oci.Technology   // spec.verify.provider of an OCIRepository or PkgChart → technology
	Logins    map[string]source.LoginFunc // spec.provider → login; unused if [source.Env] has a Login
}

// New returns the origin of obj after filling in the defaults of obj (see [source.Default]). It
// does no I/O. The error wraps [source.ErrInvalid] if obj is an ExternalArtifact that no generator
// makes, because another program publishes its artifact.
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

// login implements [source.LoginFunc] with Logins.
func (o Origins) login(ctx context.Context, r source.LoginRequest) (source.Credential, error) {
	login, ok := o.Logins[r.Provider]
	if !ok {
		return source.Credential{}, fmt.Errorf("%w: %w: this version of headgate cannot log in with it", source.ErrInvalid, source.ErrProvider)
	}
	return login(ctx, r)
}

// Write writes the artifact of obj to w, from the current content of its origin. It verifies the
// content first if the spec asks for it, and stores nothing. The includes of a GitRepository and
// the sources of a PkgChart or of a generator come from env.Sources and must have artifacts. The
// spec.timeout of obj bounds the whole call.
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
	if _, err = verifyContent(ctx, obj, rev, content); err == nil {
		report, err = content.WriteTo(ctx, w)
	}
	return rev, report, errors.Join(err, content.Close())
}

// verifyContent verifies content. It refuses content without a signature if the spec asks for one.
func verifyContent(ctx context.Context, obj source.Object, rev source.Revision, content source.Content) (source.Verification, error) {
	v, err := content.Verify(ctx)
	if required := obj.Plan().Verify + rev.Verify; err == nil && required != "" && v == (source.Verification{}) {
		err = fmt.Errorf("the spec asks for verification, but this origin has nothing to verify: %w", source.ErrVerification)
	}
	return v, err
}

// A kindError is the error for objects of a kind that has no origin.
type kindError string

func (kind kindError) Error() string {
	return string(kind) + " objects are published by other programs: headgate reads their status, and fetches nothing for them"
}

// Is makes errors.Is report [source.ErrInvalid] without adding its text.
func (kind kindError) Is(target error) bool { return target == source.ErrInvalid }
