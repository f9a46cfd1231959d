package chart

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// Limits of the dependencies of one chart, including those of the charts in other
// directories of its source.
const (
	maxDependencies = 200 // added charts; a chart counts each time it is added
	maxDepth        = 20  // directories in a chain of file:// dependencies
	maxListed       = 500 // dependencies of one chart, including those already in charts/
	parallelFetches = 8
)

// complete returns the charts that c, the directory dir of tree, depends on and lacks. The
// charts stay readable until the caller calls end (reference A14).
//
//   - A dependency is present if charts/ has a chart of its name with a version that it
//     admits. A chart in charts/ of the right name that no dependency admits is an error,
//     because consumers would use it anyway.
//   - A missing chart is taken in the version and from the repository that the lock names,
//     if there is a lock. A lock that does not match Chart.yaml is an error; if no chart is
//     missing, the lock is ignored.
//   - file:// names a directory of tree or an archive (.tgz) in it, relative to the chart.
//     The dependencies of a directory are completed in the same way.
//   - http(s):// and oci:// are looked up in the PkgRepository of the namespace with that
//     URL, or without credentials if there is none. @NAME and alias:NAME name the
//     PkgRepository NAME.
//   - Conditions and tags are ignored: they are evaluated when the chart is rendered.
//
// The charts are in the order of Chart.yaml. The first failure cancels the rest. The error
// is a *[source.StepError] with reason DependencyBuildError, and never wraps
// [source.ErrInvalid]. The pins of charts from repositories are appended to added.
func (o *opener) complete(ctx context.Context, tree fs.FS, dir string, c *bundle.Chart, added *[]source.ChartPin) (charts []*bundle.Chart, end func() error, err error) {
	limits := bundle.Limits(o.env.Limits)
	p := &plan{tree: tree, limits: limits, budget: bundle.NewBudget(limits), members: map[string]*member{}}
	root, err := p.complete(ctx, dir, c)
	if err == nil {
		err = o.fetchAll(ctx, p)
	}
	if err == nil {
		charts, err = root.additions()
	}
	for _, m := range p.fetches {
		*added = append(*added, m.pin)
	}
	if err != nil {
		return nil, nil, dependencyError(errors.Join(err, p.close()))
	}
	return charts, p.close, nil
}

// dependencyError returns err with the reason of dependency failures and without
// [source.ErrInvalid], so that the build is always retried.
func dependencyError(err error) error {
	if errors.Is(err, source.ErrInvalid) {
		err = retriableError{err}
	}
	return &source.StepError{Step: source.StepBuild, Reason: "DependencyBuildError", Err: err}
}

// retriableError hides the [source.ErrInvalid] of an error that may disappear without a change of
// the object.
type retriableError struct{ error }

func (e retriableError) Is(target error) bool {
	return target != source.ErrInvalid && errors.Is(e.error, target)
}
func (e retriableError) As(target any) bool { return errors.As(e.error, target) }

// A member is a chart in the dependency graph: one of the source, with the dependencies
// that it lacks, or one from a repository.
type member struct {
	chart     *bundle.Chart // of a repository: nil until it is fetched
	needs     []need
	size      int           // charts in it, itself included
	completed *bundle.Chart // with all charts that it lacked; nil until computed

	// For a chart from a repository:
	dependency *chart.Dependency
	subject    string          // for errors
	pin        source.ChartPin // set once the chart is fetched
}

// A need is a dependency that a chart lacks, with the member that satisfies it.
type need struct {
	subject string // for errors
	*member
}

// additions returns the charts that m lacks, each with its own dependencies added.
func (m *member) additions() ([]*bundle.Chart, error) {
	var charts []*bundle.Chart
	seen := map[[2]string]*member{} // by name and version
	for _, n := range m.needs {
		c, err := n.complete()
		if err != nil {
			return nil, err
		}
		key := [2]string{c.Metadata.Name, c.Metadata.Version}
		other := seen[key]
		switch {
		case other == nil:
			seen[key] = n.member
			charts = append(charts, c)
		case other != n.member && (c.Digest == "" || c.Digest != other.chart.Digest):
			return nil, fmt.Errorf("%s: chart %s %s is another one with the same name and version: only one can be in charts/", n.subject, key[0], key[1])
		}
	}
	return charts, nil
}

// complete returns the chart of m with all dependencies that it lacked.
func (m *member) complete() (*bundle.Chart, error) {
	if m.completed == nil {
		charts, err := m.additions()
		if err != nil {
			return nil, err
		}
		completed := *m.chart
		if len(charts) > 0 {
			if completed.Files, err = m.chart.With(bundle.Edit{Charts: charts}); err != nil {
				return nil, err
			}
		}
		m.completed = &completed
	}
	return m.completed, nil
}

// subject names a dependency of c in errors.
func subject(c *bundle.Chart, d *chart.Dependency) string {
	from := ""
	if d.Repository != "" {
		from = fmt.Sprintf(" from %.200q", d.Repository)
	}
	return fmt.Sprintf("dependency %q %.100q of %q%s", d.Name, d.Version, c.Metadata.Name, from)
}

// A plan collects the charts that completing a chart requires, before anything is fetched.
type plan struct {
	tree    fs.FS
	limits  artifact.Limits
	budget  *bundle.Budget     // of all archives, in tree and of repositories
	path    []string           // directories that lead to the one being completed
	members map[string]*member // by directory or archive of tree
	fetches []*member          // of repositories, in the order in which they are needed
	count   int                // charts that are added so far
}

// close closes the charts.
func (p *plan) close() (err error) {
	for _, m := range p.members {
		err = errors.Join(err, m.chart.Close())
	}
	for _, m := range p.fetches {
		if m.chart != nil {
			err = errors.Join(err, m.chart.Close())
		}
	}
	return err
}

// complete returns the member for c, the directory dir, with the dependencies that c lacks.
func (p *plan) complete(ctx context.Context, dir string, c *bundle.Chart) (*member, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if len(p.path) == maxDepth {
		return nil, fmt.Errorf("more than %d directories deep: %s", maxDepth, p.chain(dir))
	}
	p.path = append(p.path, dir)
	defer func() { p.path = p.path[:len(p.path)-1] }()
	vendored, err := c.Vendored(p.limits)
	if err != nil {
		return nil, fmt.Errorf("charts/ of %q: %w", c.Metadata.Name, err)
	}
	missing, err := missingDependencies(c, vendored)
	if err != nil {
		return nil, err
	}
	m := &member{chart: c, size: 1}
	for _, d := range missing {
		n := need{subject: subject(c, d)}
		if rel, local := strings.CutPrefix(d.Repository, "file://"); local {
			n.member, err = p.localMember(ctx, dir, rel, d)
		} else {
			n.member = p.remoteMember(n.subject, d)
		}
		if p.count++; err == nil && p.count > maxDependencies {
			err = fmt.Errorf("more than %d charts in all", maxDependencies)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", n.subject, err)
		}
		m.needs, m.size = append(m.needs, n), m.size+n.size
	}
	p.members[dir] = m
	return m, nil
}

// remoteMember returns the member for d, a dependency on a chart of a repository. Equal
// dependencies share a member.
func (p *plan) remoteMember(subject string, d *chart.Dependency) *member {
	for _, m := range p.fetches {
		if sameSource(m.dependency, d) {
			return m
		}
	}
	m := &member{size: 1, dependency: d, subject: subject}
	p.fetches = append(p.fetches, m)
	return m
}

// localMember returns the member for the chart at rel, which is relative to dir and named by
// dependency d.
func (p *plan) localMember(ctx context.Context, dir, rel string, d *chart.Dependency) (m *member, err error) {
	at := path.Join(dir, rel)
	switch {
	case path.IsAbs(rel) || !fs.ValidPath(at) || strings.Contains(at, `\`):
		return nil, errors.New("leads out of the source: give a path relative to the chart, without backslash")
	case slices.Contains(p.path, at):
		return nil, fmt.Errorf("a cycle: %s", p.chain(at))
	}
	if m = p.members[at]; m != nil {
		p.count += m.size - 1
	} else {
		c, err := bundle.Open(p.tree, at, p.limits)
		if err != nil {
			return nil, err
		}
		if c.Archived() { // an archive is already complete
			m = &member{chart: c, size: 1}
			p.members[at] = m
			err = p.budget.Spend(c)
		} else {
			m, err = p.complete(ctx, at, c)
		}
		if err != nil {
			return nil, err
		}
	}
	if got := m.chart.Metadata; got.Name != d.Name || !admits(d.Version, got.Version) {
		return nil, fmt.Errorf("chart %q %q is there", got.Name, got.Version)
	}
	return m, nil
}

// chain returns the chain of directories that leads to dir, from the first occurrence of
// dir if there is one.
func (p *plan) chain(dir string) string {
	return fmt.Sprintf("%q", strings.Join(append(p.path[max(0, slices.Index(p.path, dir)):], dir), " → "))
}

// fetchAll fetches the charts from repositories in parallel. The first failure cancels the
// rest.
func (o *opener) fetchAll(ctx context.Context, p *plan) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelFetches)
	u := &upstreams{opener: o, ctx: ctx, open: map[string]func() (upstream, error){}}
	defer u.close()
	for _, m := range p.fetches {
		group.Go(func() error {
			if err := u.fetch(ctx, m, p.budget); err != nil {
				return fmt.Errorf("%s: %w", m.subject, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// upstreams opens the repositories of dependencies. Each is opened once, so that all its
// charts come from the same state of it.
type upstreams struct {
	*opener
	ctx  context.Context
	mu   sync.Mutex
	open map[string]func() (upstream, error)
}

// close closes the open repositories.
func (u *upstreams) close() {
	for _, open := range u.open {
		if up, err := open(); err == nil {
			up.close()
		}
	}
}

// fetch fetches the chart of m.
func (u *upstreams) fetch(ctx context.Context, m *member, budget *bundle.Budget) error {
	d := m.dependency
	if err := context.Cause(ctx); err != nil {
		return err
	}
	up, err := u.upstream(ctx, d.Repository)
	if err != nil {
		return err
	}
	s, err := u.find(ctx, up, d)
	if err != nil {
		return err
	}
	defer s.release()
	if _, err := up.verify(ctx, s, nil); err != nil {
		return err
	}
	if m.chart, err = up.fetch(ctx, s); err != nil {
		return err
	}
	if got := m.chart.Metadata; got.Name != d.Name || !admits(d.Version, got.Version) {
		return fmt.Errorf("chart %q %q came", got.Name, got.Version)
	}
	m.pin = s.pin
	m.pin.Name, m.pin.Range, m.pin.Repository = d.Name, d.Version, withoutCredentials(d.Repository)
	return budget.Spend(m.chart)
}

// withoutCredentials returns the repository of a dependency in the form that locks hold: without user
// information and query, which may be credentials.
func withoutCredentials(repository string) string {
	u, err := url.Parse(repository)
	if err != nil || u.User == nil && u.RawQuery == "" {
		return repository
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// find returns the version that d selects or, if there is a lock, the version that the lock
// pins for d.
func (u *upstreams) find(ctx context.Context, up upstream, d *chart.Dependency) (*selectedVersion, error) {
	if u.env.Pin == nil {
		return up.find(ctx, d.Name, d.Version)
	}
	for _, pin := range u.env.Pin.Dependencies {
		if pin.Name == d.Name && pin.Range == d.Version && pin.Repository == withoutCredentials(d.Repository) {
			return pinnedVersion(d.Name, pin), nil
		}
	}
	return nil, &source.PinError{Problem: "missing", Err: errors.New("the lock has no version for it")}
}

// upstream returns the upstream for the repository that a dependency names.
func (u *upstreams) upstream(ctx context.Context, repository string) (upstream, error) {
	repo, err := u.dependencyRepository(ctx, repository)
	if err != nil {
		return nil, err
	}
	key, err := normalise(repo.Spec.URL)
	if err != nil {
		return nil, err
	}
	key = repo.Metadata.Name + " " + key
	u.mu.Lock()
	open := u.open[key]
	if open == nil {
		var index func(context.Context) (io.ReadCloser, error) // nil: the index is fetched
		if u.env.Pin != nil {
			index = func(context.Context) (io.ReadCloser, error) { return nil, errors.ErrUnsupported } // a lock needs no index
		}
		open = sync.OnceValues(func() (upstream, error) { return u.opener.open(u.ctx, repo, index) })
		u.open[key] = open
	}
	u.mu.Unlock()
	return open()
}
