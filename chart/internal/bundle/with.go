package bundle

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"

	"helm.sh/helm/v3/pkg/chart"

	"github.com/headgate-io/headgate/artifact"
)

// With returns the files of c as they are with e.
//
// A further chart appears as directory charts/NAME/, or charts/NAME-VERSION/
// when there are several versions of it. The same version twice is one; it may
// also be in charts/ already, which then stays as it is.
//
// Everything in charts/ must be a chart. Errors wrap [ErrChart], or are those of the
// trees.
func (c *Chart) With(e Edit) (fs.FS, error) {
	tree, err := c.with(e)
	if err != nil {
		return nil, fmt.Errorf("edit chart %q: %w", c.Metadata.Name, err)
	}
	return tree, nil
}

func (c *Chart) with(e Edit) (fs.FS, error) {
	tree, err := c.edited(e)
	if err != nil {
		return nil, err
	}
	return c.furnished(tree, e)
}

// edited returns the files of c with the Chart.yaml and the values of e.
func (c *Chart) edited(e Edit) (fs.FS, error) {
	over := memory{}
	text, err := c.Values()
	if err != nil {
		return nil, err
	}
	if e.Values != nil {
		if text == nil {
			return nil, fmt.Errorf("%w: it has no %s that other values could replace", ErrChart, valuesFile)
		}
		text, over[valuesFile] = e.Values, e.Values
	}
	if err := checkValues(text); err != nil {
		return nil, err
	}
	if e.Version != "" {
		text, err := readVerbatim(c.Files, chartFile, textBytes)
		if err != nil {
			return nil, err
		}
		if over[chartFile], err = setVersion(text, e.Version); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrVersion, err)
		}
	}
	if len(over) == 0 {
		return c.Files, nil
	}
	return artifact.Mount(c.Files, ".", over), nil
}

// furnished returns tree, the files of c, with the further charts of e.
func (c *Chart) furnished(tree fs.FS, e Edit) (fs.FS, error) {
	there, err := c.Vendored(e.Limits)
	if err != nil {
		return nil, err
	}
	dirs, err := places(e.Charts, there)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		dir, further := path.Join(chartsDir, name), dirs[name]
		taken, err := has(tree, dir)
		if err != nil {
			return nil, err
		}
		if taken {
			return nil, fmt.Errorf("%w: %s is not %s %s: rename it", ErrChart, dir, further.Metadata.Name, further.Metadata.Version)
		}
		tree = artifact.Mount(tree, dir, further.Files)
	}
	return tree, nil
}

// places returns charts by their directories in charts/, except those that are
// there already.
func places(charts []*Chart, there []*chart.Metadata) (map[string]*Chart, error) {
	all, err := byVersion(charts, there)
	if err != nil {
		return nil, err
	}
	dirs := map[string]*Chart{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, version := range slices.Sorted(maps.Keys(all[name])) {
			c, dir := all[name][version], name
			if c == nil {
				continue
			}
			if len(all[name]) > 1 {
				dir += "-" + version
			}
			if other := dirs[dir]; other != nil {
				return nil, fmt.Errorf("%w: %s/%s would be two charts, %s and %s", ErrChart, chartsDir, dir, other.Metadata.Name, name)
			}
			dirs[dir] = c
		}
	}
	return dirs, nil
}

// byVersion returns charts by name and version, the first of each; nil for those
// that are there already.
func byVersion(charts []*Chart, there []*chart.Metadata) (map[string]map[string]*Chart, error) {
	all := map[string]map[string]*Chart{}
	add := func(m *chart.Metadata, c *Chart) {
		if all[m.Name] == nil {
			all[m.Name] = map[string]*Chart{}
		}
		if _, ok := all[m.Name][m.Version]; !ok {
			all[m.Name][m.Version] = c
		}
	}
	for _, m := range there {
		add(m, nil)
	}
	for _, c := range charts {
		if name := c.Metadata.Name; passedOver(name) || path.Ext(name) == ".tgz" {
			return nil, fmt.Errorf("%w: the package manager finds no chart named %q in %s/", ErrChart, name, chartsDir)
		}
		add(c.Metadata, c)
	}
	return all, nil
}
