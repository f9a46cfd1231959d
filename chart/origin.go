package chart

import (
	"context"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/oci"
	"github.com/headgate-io/headgate/source"
)

// An Origin is the upstream of one PkgChart. It is safe for concurrent use.
type Origin struct {
	chart        *source.PkgChart
	env          source.Env
	technologies map[string]oci.Technology
	vault        transport.Vault
}

// New returns the origin of c. technologies are what signatures of charts in
// registries can be verified with, by spec.verify.provider. It does no I/O; what
// is wrong with c surfaces from [Origin.Resolve].
func New(c *source.PkgChart, env source.Env, technologies map[string]oci.Technology) *Origin {
	return &Origin{chart: c, env: env, technologies: technologies,
		vault: transport.Vault{Namespace: c.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin].
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, errTODO
}

// Open implements [source.Origin].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	return nil, errTODO
}

// Secrets returns the credentials that were given to the origin so far.
func (o *Origin) Secrets() []string { return o.vault.Values() }
