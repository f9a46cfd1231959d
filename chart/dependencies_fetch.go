package chart

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// A remote is a chart of a repository that is needed, by how many charts ever.
type remote struct {
	remoteKey
	subject string          // for errors, of the first that needs it
	archive *bundle.Archive // once it is fetched
}

type remoteKey struct{ repository, name, version string }

// remote returns what d asks a repository for.
func (p *plan) remote(subject string, d *chart.Dependency) *remote {
	key := remoteKey{d.Repository, d.Name, d.Version}
	r, ok := p.remotes[key]
	if !ok {
		r = &remote{remoteKey: key, subject: subject}
		p.remotes[key] = r
		p.fetches = append(p.fetches, r)
	}
	return r
}

// fetchAll fetches what list needs, several at a time. The error is that of the
// first in list that fails, whichever fails first: it ends those behind it; but
// what budget does not allow ends all.
func (s *supply) fetchAll(ctx context.Context, list []*remote, budget *bundle.Budget) error {
	f := &fetching{supply: s, budget: budget, desks: map[string]*desk{}}
	f.ctx, f.cancel = context.WithCancel(ctx)
	defer f.close()
	errs := make([]error, len(list))
	contexts, cancels := make([]context.Context, len(list)), make([]context.CancelFunc, len(list))
	for i := range list {
		contexts[i], cancels[i] = context.WithCancel(f.ctx)
		defer cancels[i]()
	}
	var group errgroup.Group
	group.SetLimit(parallelFetches)
	for i, r := range list {
		group.Go(func() error {
			if errs[i] = f.fetch(contexts[i], r); errs[i] != nil {
				for _, cancel := range cancels[i+1:] {
					cancel()
				}
			}
			return nil
		})
	}
	_ = group.Wait() // nothing returns an error
	if err := f.tooMuch.Load(); err != nil {
		return fmt.Errorf("dependencies: %w", *err)
	}
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%s: %w", list[i].subject, err)
		}
	}
	return nil
}

// A fetching is one call of fetchAll.
type fetching struct {
	*supply
	ctx    context.Context // of what several remotes share
	cancel context.CancelFunc

	budget  *bundle.Budget
	tooMuch atomic.Pointer[error] // of budget

	mu    sync.Mutex
	desks map[string]*desk
}

// A desk is a repository that is asked for charts. It is opened once.
type desk struct {
	opened   chan struct{} // closed when the following are set
	upstream upstream
	index    *snapshot // nil for a registry
	err      error
}

// fetch fetches one chart.
func (f *fetching) fetch(ctx context.Context, r *remote) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	up, err := f.upstream(ctx, r.repository)
	if err != nil {
		return err
	}
	o, err := up.find(ctx, r.name, r.version)
	if err != nil {
		return err
	}
	if _, err := up.verify(ctx, o, nil); err != nil {
		return err
	}
	a, err := up.fetch(ctx, o)
	if err != nil {
		return err
	}
	r.archive = a
	if got := a.Metadata; got.Name != r.name || !admits(r.version, got.Version) {
		return fmt.Errorf("chart %q %q came", got.Name, got.Version)
	}
	if err := f.budget.Spend(a); err != nil {
		f.tooMuch.Store(&err)
		f.cancel()
	}
	return nil
}

// upstream returns the upstream of a repository as a dependency names it.
func (f *fetching) upstream(ctx context.Context, repository string) (upstream, error) {
	repo, err := f.meant(ctx, repository)
	if err != nil {
		return nil, err
	}
	key := "@" + repo.Metadata.Name
	if repo.Metadata.Name == "" {
		if key, err = normalise(repo.Spec.URL); err != nil {
			return nil, err
		}
	}
	d := f.desk(key, repo)
	select {
	case <-d.opened:
		return d.upstream, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// desk returns the desk of a repository, which is being opened.
func (f *fetching) desk(key string, repo *source.PkgRepository) *desk {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, ok := f.desks[key]
	if !ok {
		d = &desk{opened: make(chan struct{})}
		f.desks[key] = d
		go func() {
			defer close(d.opened)
			d.err = d.open(f.ctx, f.supply, repo)
		}()
	}
	return d
}

// open opens repo, and fetches its index if it has one: for all charts at once,
// so that they are of one state of the repository.
func (d *desk) open(ctx context.Context, s *supply, repo *source.PkgRepository) (err error) {
	if inRegistry(repo) {
		d.upstream, err = s.open(ctx, repo, nil)
		return err
	}
	if d.index, err = s.fetchIndex(ctx, repo); err != nil {
		return err
	}
	d.upstream, err = s.open(ctx, repo, func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(io.NewSectionReader(d.index, 0, d.index.Size())), nil
	})
	return err
}

func (d *desk) close() {
	if d.upstream != nil {
		d.upstream.close()
	}
	if d.index != nil {
		d.index.Close()
	}
}

// close ends what is still being opened, and closes the rest.
func (f *fetching) close() {
	f.cancel()
	for _, d := range f.desks {
		<-d.opened
		d.close()
	}
}

// meant returns the PkgRepository that a dependency names by its URL or, as @NAME
// and alias:NAME, by its name. Of an object it reads the spec alone.
func (s *supply) meant(ctx context.Context, text string) (*source.PkgRepository, error) {
	name, ok := aliasOf(text)
	if !ok {
		return s.named(ctx, text)
	}
	ref := source.Reference{Kind: "PkgRepository", Namespace: s.vault.Namespace, Name: name}
	if s.env.Sources == nil {
		return nil, fmt.Errorf("%s: %w", ref, fs.ErrNotExist)
	}
	obj, err := s.env.Sources.Source(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ref, err)
	}
	p, ok := obj.(*source.PkgRepository)
	if !ok {
		return nil, fmt.Errorf("%s is no PkgRepository", ref)
	}
	repo := &source.PkgRepository{Spec: p.Spec}
	repo.Metadata.Namespace, repo.Metadata.Name = ref.Namespace, ref.Name
	return repo, nil
}
