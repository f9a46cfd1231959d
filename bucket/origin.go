package bucket

import (
	"context"
	"errors"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one Bucket. It is safe for concurrent use.
type Origin struct {
	bucket    *source.Bucket
	env       source.Env
	providers map[string]Provider
	vault     transport.Vault
}

// New returns the origin of b. providers are what buckets can be read with, by
// spec.provider. It does no I/O; what is wrong with b surfaces from [Origin.Resolve].
func New(b *source.Bucket, env source.Env, providers map[string]Provider) *Origin {
	return &Origin{bucket: b, env: env, providers: providers,
		vault: transport.Vault{Namespace: b.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin]: it lists the bucket.
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, errors.ErrUnsupported
}

// Open implements [source.Origin].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	return nil, errors.ErrUnsupported
}

// within does one step of fetching within spec.timeout.
func (o *Origin) within(ctx context.Context, step string, do func(context.Context) error) error {
	return source.Within(ctx, time.Duration(o.bucket.Spec.Timeout), step, do)
}

// Secrets returns the credentials that were given to the origin so far, which
// the [source.Reconciler] keeps out of conditions, events and errors.
func (o *Origin) Secrets() []string { return o.vault.Values() }

// A snapshot is what a bucket held when it was listed.
type snapshot struct {
	driver Driver
	access *Access // closed with the snapshot
	list   *listing
	rules  *artifact.Rules
	ignore *Object // the object .sourceignore, nil when there is none
	text   string  // of it
}
