package chart

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// need returns what meets d, which c, the directory dir, lacks.
func (p *plan) need(ctx context.Context, dir string, c *bundle.Chart, d *chart.Dependency) (need, error) {
	n := need{subject: subject(c, d)}
	if err := p.take(1); err != nil {
		return need{}, fmt.Errorf("%s: %w", n.subject, err)
	}
	rel, ok := strings.CutPrefix(d.Repository, "file://")
	if !ok {
		n.remote = p.remote(n.subject, d)
		return n, nil
	}
	m, err := p.local(ctx, n.subject, dir, rel)
	if err != nil {
		return need{}, err
	}
	if got := m.chart.Metadata; got.Name != d.Name || !admits(d.Version, got.Version) {
		return need{}, fmt.Errorf("%s: chart %q %q is there", n.subject, got.Name, got.Version)
	}
	n.local = m
	return n, nil
}

// local returns the chart at rel, which a dependency of the chart in dir names.
func (p *plan) local(ctx context.Context, subject, dir, rel string) (*member, error) {
	at := path.Join(dir, rel)
	switch {
	case path.IsAbs(rel) || !fs.ValidPath(at):
		return nil, fmt.Errorf("%s: leads out of the source: give a path relative to the chart", subject)
	case slices.Contains(p.way, at):
		return nil, fmt.Errorf("%s: a cycle: %s", subject, p.through(at))
	}
	if m, ok := p.members[at]; ok {
		if err := p.take(m.size - 1); err != nil {
			return nil, fmt.Errorf("%s: %w", subject, err)
		}
		return m, nil
	}
	c, whole, err := p.open(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", subject, err)
	}
	if !whole {
		return p.complete(ctx, at, c)
	}
	m := &member{chart: c, whole: c, size: 1}
	p.members[at] = m
	return m, nil
}

// open opens the chart at a path of the tree: a directory, or an archive, which
// is whole as it is.
func (p *plan) open(at string) (c *bundle.Chart, whole bool, err error) {
	if path.Ext(at) == ".tgz" {
		if info, err := fs.Stat(p.tree, at); err == nil && info.Mode().IsRegular() {
			return p.archive(at)
		}
	}
	c, err = bundle.OpenDir(p.tree, at)
	return c, false, err
}

func (p *plan) archive(at string) (*bundle.Chart, bool, error) {
	a, err := bundle.OpenArchive(p.tree, at, p.limits)
	if err != nil {
		return nil, false, err
	}
	p.opened = append(p.opened, a)
	return a.Chart, true, p.budget.Spend(a)
}

// through returns the way to dir, from the first time that it leads there.
func (p *plan) through(dir string) string {
	return fmt.Sprintf("%q", strings.Join(append(p.way[max(0, slices.Index(p.way, dir)):], dir), " → "))
}
