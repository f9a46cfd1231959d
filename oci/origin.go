package oci

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one OCIRepository. It is safe for concurrent use.
type Origin struct {
	repo         *source.OCIRepository
	env          source.Env
	technologies map[string]Technology
	vault        transport.Vault
}

// New returns the origin of r. technologies are what signatures can be
// verified with, by spec.verify.provider. It does no I/O; what is wrong with r
// surfaces from [Origin.Resolve].
func New(r *source.OCIRepository, env source.Env, technologies map[string]Technology) *Origin {
	return &Origin{repo: r, env: env, technologies: technologies,
		vault: transport.Vault{Namespace: r.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin].
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, errors.ErrUnsupported
}

// Open implements [source.Origin].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	return nil, errors.ErrUnsupported
}

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.vault.Values() }

// within does one step of fetching within spec.timeout.
func (o *Origin) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, time.Duration(o.repo.Spec.Timeout), step, do)
}
