package chart

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/source"
)

// What one chart may depend on, the charts in other directories of its source
// and what those depend on included.
const (
	maxDependencies = 200 // charts that are added, each time that one is
	maxDepth        = 20  // directories in a chain of file:// dependencies
	maxListed       = 500 // dependencies of one chart, those that are there included
	parallelFetches = 8
)

// complete returns the charts that c, the directory dir of tree, depends on and
// lacks, and what keeps them readable (reference A14).
//
//   - A dependency is there when charts/ has a chart of its name whose version it
//     admits. A chart in charts/ of the right name that no dependency admits is
//     an error: consumers would use it all the same.
//   - What is missing comes in the version and from the repository that the lock
//     tells, if there is one. A lock that does not belong to Chart.yaml is an
//     error; one that decides nothing is not looked at.
//   - file:// is a directory of tree or an archive (.tgz) in it, relative to the
//     chart. The dependencies of a directory are completed likewise.
//   - http(s):// and oci:// are looked up in the PkgRepository of the namespace
//     with that URL, and without credentials when there is none. @NAME and
//     alias:NAME are the PkgRepository of that name.
//   - Conditions and tags do not matter: whoever renders decides about them.
//
// The order of charts is that of Chart.yaml. Of several failures the first in
// that order is returned: a *[source.StepError] with reason
// DependencyBuildError, which never wraps [source.ErrInvalid].
func (s *supply) complete(ctx context.Context, tree fs.FS, dir string, c *bundle.Chart) (charts []*bundle.Chart, end func() error, err error) {
	limits := bundle.Limits(s.env.Limits)
	p := &plan{tree: tree, limits: limits, budget: bundle.NewBudget(limits), members: map[string]*member{}, remotes: map[remoteKey]*remote{}}
	root, err := p.complete(ctx, dir, c)
	if err == nil {
		err = s.fetchAll(ctx, p.fetches, p.budget)
	}
	if err == nil {
		charts, err = root.additions()
	}
	if err != nil {
		return nil, nil, dependencyError(errors.Join(err, p.Close()))
	}
	return charts, p.Close, nil
}

// dependencyError returns err with the reason for failures of dependencies,
// after which the build is tried again whatever they wrap.
func dependencyError(err error) error {
	if errors.Is(err, source.ErrInvalid) {
		err = passing{err}
	}
	return &source.StepError{Step: source.StepBuild, Reason: "DependencyBuildError", Err: err}
}

// A passing is an error without its [source.ErrInvalid]: it may pass without a
// change of the object.
type passing struct{ error }

func (e passing) Is(target error) bool {
	return target != source.ErrInvalid && errors.Is(e.error, target)
}
func (e passing) As(target any) bool { return errors.As(e.error, target) }

// A member is a chart of the source and what it lacks.
type member struct {
	chart *bundle.Chart
	needs []need
	size  int // charts in it, itself included

	whole *bundle.Chart // with all that it lacks, see complete
}

// A need is a dependency that a chart lacks: one of the two is set.
type need struct {
	subject string // for errors
	local   *member
	remote  *remote
}

// additions returns the charts that m lacks, complete.
func (m *member) additions() ([]*bundle.Chart, error) {
	var charts []*bundle.Chart
	taken := map[string]need{} // by name and version
	for _, n := range m.needs {
		c, err := n.chart()
		if err != nil {
			return nil, err
		}
		key := c.Metadata.Name + " " + c.Metadata.Version
		if other, ok := taken[key]; ok {
			if !other.same(n) {
				return nil, fmt.Errorf("%s: chart %s is another one with the same name and version: only one can be in charts/", n.subject, key)
			}
			continue
		}
		taken[key] = n
		charts = append(charts, c)
	}
	return charts, nil
}

// chart returns the chart that is needed, complete.
func (n need) chart() (*bundle.Chart, error) {
	if n.remote != nil {
		return n.remote.archive.Chart, nil
	}
	m := n.local
	if m.whole == nil {
		charts, err := m.additions()
		if err != nil {
			return nil, err
		}
		whole := *m.chart
		if whole.Files, err = m.chart.With(bundle.Edit{Charts: charts}); err != nil {
			return nil, err
		}
		m.whole = &whole
	}
	return m.whole, nil
}

// same reports whether n and other are met by the same chart.
func (n need) same(other need) bool {
	if n.remote != nil && other.remote != nil {
		return n.remote.archive.Digest == other.remote.archive.Digest
	}
	return n.local == other.local && n.remote == other.remote
}

// subject names a dependency of c in errors.
func subject(c *bundle.Chart, d *chart.Dependency) string {
	from := ""
	if d.Repository != "" {
		from = fmt.Sprintf(" from %.200q", d.Repository)
	}
	return fmt.Sprintf("dependency %q %.100q of %q%s", d.Name, d.Version, c.Metadata.Name, from)
}

// A plan is what completing a chart takes, before anything is fetched.
type plan struct {
	tree    fs.FS
	limits  artifact.Limits
	budget  *bundle.Budget // of all archives, in tree and of repositories
	way     []string       // directories that lead to the one being completed
	members map[string]*member
	remotes map[remoteKey]*remote
	fetches []*remote         // in the order in which they were found
	opened  []*bundle.Archive // in tree
	count   int               // charts that are added so far
}

// Close releases what was opened.
func (p *plan) Close() error {
	var err error
	for _, a := range p.opened {
		err = errors.Join(err, a.Close())
	}
	for _, r := range p.fetches {
		if r.archive != nil {
			err = errors.Join(err, r.archive.Close())
		}
	}
	p.opened, p.fetches = nil, nil
	return err
}

// take counts n charts more.
func (p *plan) take(n int) error {
	if p.count += n; p.count > maxDependencies {
		return fmt.Errorf("more than %d charts in all", maxDependencies)
	}
	return nil
}

// complete returns what c, the directory dir, lacks.
func (p *plan) complete(ctx context.Context, dir string, c *bundle.Chart) (*member, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if len(p.way) == maxDepth {
		return nil, fmt.Errorf("more than %d directories deep: %s", maxDepth, p.through(dir))
	}
	p.way = append(p.way, dir)
	defer func() { p.way = slices.Delete(p.way, len(p.way)-1, len(p.way)) }()
	vendored, err := c.Vendored(p.limits)
	if err != nil {
		return nil, fmt.Errorf("charts/ of %q: %w", c.Metadata.Name, err)
	}
	missing, err := lacking(c, vendored)
	if err != nil {
		return nil, err
	}
	m := &member{chart: c, size: 1}
	for _, d := range missing {
		n, err := p.need(ctx, dir, c, d)
		if err != nil {
			return nil, err
		}
		m.needs = append(m.needs, n)
		if m.size++; n.local != nil {
			m.size += n.local.size - 1
		}
	}
	p.members[dir] = m
	return m, nil
}
