package git

import (
	"context"
	"errors"

	"github.com/headgate-io/headgate/source"
)

// An Origin fetches a GitRepository.
type Origin struct {
	repo *source.GitRepository
	env  source.Env
}

// New returns the origin of g.
func New(g *source.GitRepository, env source.Env) *Origin { return &Origin{g, env} }

// Resolve implements [source.Origin].
func (o *Origin) Resolve(ctx context.Context, last source.State) (source.Revision, source.State, error) {
	return source.Revision{}, nil, errors.ErrUnsupported
}

// Open implements [source.Origin].
func (o *Origin) Open(ctx context.Context, rev source.Revision) (source.Content, error) {
	return nil, errors.ErrUnsupported
}
