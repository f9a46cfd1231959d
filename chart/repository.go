package chart

import (
	"context"
	"io"

	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
)

// A Repository is the origin of one PkgRepository. It is safe for concurrent use.
type Repository struct {
	repo  *source.PkgRepository
	env   source.Env
	vault transport.Vault
}

// NewRepository returns the origin of p. It does no I/O; what is wrong with p
// surfaces from [Repository.Resolve].
func NewRepository(p *source.PkgRepository, env source.Env) *Repository {
	return &Repository{repo: p, env: env, vault: transport.Vault{Namespace: p.Metadata.Namespace, From: env.Secrets}}
}

// Resolve implements [source.Origin].
func (r *Repository) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, errTODO
}

// Open implements [source.Origin].
func (r *Repository) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	return nil, errTODO
}

// Secrets returns the credentials that were given to the origin so far.
func (r *Repository) Secrets() []string { return r.vault.Values() }

// fetchIndex opens the index of a repository that no object holds the artifact
// of: kept in env.Cache by URL and credentials, and asked for conditionally.
func (s *supply) fetchIndex(ctx context.Context, repo *source.PkgRepository) (io.ReadCloser, error) {
	return nil, errTODO
}
