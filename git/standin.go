package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/git/internal/local"
	"github.com/headgate-io/headgate/git/internal/object"
	"github.com/headgate-io/headgate/source"
)

// directory returns the origin that reads the plain directory which stands in
// for spec.url; ok is false when a repository does, or nothing.
func (o *Origin) directory() (dir source.Origin, ok bool, err error) {
	path, ok := o.env.Local[o.repo.Spec.URL]
	if !ok {
		return nil, false, nil
	}
	repo, err := local.Open(path, 0)
	if errors.Is(err, local.ErrNotRepository) {
		view := source.DirView{
			Ignore: ignoreOf(o.repo),
			Select: func(ctx context.Context, tree fs.FS) (fs.FS, error) { return sparseView(ctx, &o.repo.Spec, tree) },
		}
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

// resolveDir resolves a directory, which has includes like a repository.
func (o *Origin) resolveDir(ctx context.Context, dir source.Origin) (source.Revision, source.State, error) {
	inputs, err := o.inputs(ctx)
	if err != nil {
		return source.Revision{}, nil, err
	}
	rev, state, err := dir.Resolve(ctx, nil)
	rev.Inputs = inputs
	return rev, state, err
}

// ignoreOf returns the ignore rules of a GitRepository.
func ignoreOf(g *source.GitRepository) artifact.Ignore {
	ignore := artifact.DefaultIgnore()
	if g.Spec.Ignore != nil {
		ignore.Extra = *g.Spec.Ignore
	}
	return ignore
}

// A standin is an upstream on this machine, in the place of the one at spec.url.
type standin struct {
	path string
	repo *local.Repo // nil once its content was handed out
}

func openLocal(path string, limits artifact.Limits) (upstream, error) {
	repo, err := local.Open(path, limits.FileBytes)
	if err != nil {
		return nil, err
	}
	return &standin{path, repo}, nil
}

func (s *standin) refs(_ context.Context, exact bool, names ...string) ([]ref, error) {
	list, err := s.repo.Refs(exact, names...)
	if err != nil {
		return nil, fmt.Errorf("local repository %s: %w", s.path, err)
	}
	refs := make([]ref, len(list))
	for i, l := range list {
		refs[i] = ref(l)
	}
	return refs, nil
}

func (s *standin) history(context.Context, []object.ID, int) (database, error) {
	return borrowed{s.repo}, nil
}

func (s *standin) content(context.Context, object.ID, string, bool) (database, []string, error) {
	repo := s.repo
	s.repo = nil
	return repo, nil, nil
}

func (s *standin) Close() error {
	if s.repo == nil {
		return nil
	}
	return s.repo.Close()
}

// borrowed is a database that somebody else closes.
type borrowed struct{ object.Database }

func (borrowed) Close() error { return nil }
