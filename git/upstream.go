package git

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/lfs"
	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// An upstream is a repository on a server or on this machine.
type upstream interface {
	// refs returns the refs with the given names, or if exact is false those whose
	// names begin with one of them.
	refs(ctx context.Context, exact bool, names ...string) ([]object.Ref, error)
	// history returns the commits of tips down to depth (1: only the tips, 0:
	// everything), with as few other objects as the repository supports.
	history(ctx context.Context, tips []object.ID, depth int) (database, error)
	// fetchCommit returns commit, or a tag with its commit, and the whole tree, with
	// notes. With lean it may leave out the blobs if that saves a transfer: then the
	// database is a *partialDatabase. via is the branch or tag that led to commit, "" if none
	// did: some servers send only what a ref leads to.
	fetchCommit(ctx context.Context, commit object.ID, via string, lean bool) (database, []string, error)
	// fetchLFS fetches LFS objects of the repository into spool. configured is lfs.url
	// in its .lfsconfig, or "".
	fetchLFS(ctx context.Context, configured string, objects []lfs.Object, spool *lfs.Spool) error
	Close() error
}

// A database must be closed when its objects are no longer needed.
type database interface {
	object.Database
	io.Closer
}

// directoryOrigin returns an origin for the plain directory that replaces spec.url; ok is
// false if a repository or nothing replaces it.
func (o *Origin) directoryOrigin() (dir source.Origin, ok bool, err error) {
	path, ok := o.env.Local[o.repo.Spec.URL]
	if !ok {
		return nil, false, nil
	}
	repo, err := local.Open(path, 0)
	if errors.Is(err, local.ErrNotRepository) {
		view := source.DirView{Ignore: ignoreOf(o.repo), Select: o.sparseView}
		if len(o.repo.Spec.Include) > 0 {
			view.Mount = o.mount
		}
		return source.Dir(o.repo, path, view), true, nil
	}
	if err != nil {
		return nil, false, err
	}
	return nil, false, repo.Close()
}

// ignoreOf returns the ignore rules of a GitRepository.
func ignoreOf(g *source.GitRepository) artifact.Ignore {
	ignore := artifact.DefaultIgnore()
	if g.Spec.Ignore != nil {
		ignore.Extra = *g.Spec.Ignore
	}
	return ignore
}

// A localUpstream is an upstream on this machine that replaces the one at a URL.
type localUpstream struct {
	path string
	repo *local.Repo // nil after content has returned it
}

func openLocal(path string, limits artifact.Limits) (upstream, error) {
	repo, err := local.Open(path, limits.FileBytes)
	if err != nil {
		return nil, err
	}
	return &localUpstream{path, repo}, nil
}

func (s *localUpstream) refs(_ context.Context, exact bool, names ...string) ([]object.Ref, error) {
	refs, err := s.repo.Refs(exact, names...)
	if err != nil {
		return nil, fmt.Errorf("local repository %s: %w", s.path, err)
	}
	return refs, nil
}

func (s *localUpstream) history(context.Context, []object.ID, int) (database, error) {
	return unclosedDatabase{s.repo}, nil
}

func (s *localUpstream) fetchCommit(context.Context, object.ID, string, bool) (database, []string, error) {
	repo := s.repo
	s.repo = nil
	return repo, nil, nil
}

func (s *localUpstream) fetchLFS(ctx context.Context, _ string, objects []lfs.Object, spool *lfs.Spool) error {
	return lfs.FromRepository(ctx, s.path, s.repo.LFS(), objects, spool)
}

func (s *localUpstream) Close() error {
	if s.repo == nil {
		return nil
	}
	return s.repo.Close()
}

// An unclosedDatabase is a database that its upstream closes.
type unclosedDatabase struct{ object.Database }

func (unclosedDatabase) Close() error { return nil }
