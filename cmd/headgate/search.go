package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"path"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/headgate-io/headgate/chart/index"
)

// A search looks for charts in an index.
type search struct {
	names             []string                   // names and patterns; empty for all charts, each with its newest version
	within, withDevel func(*semver.Version) bool // whether a version is wanted, and would be with pre-releases

	found  map[string][]candidate  // versions by name
	hidden map[string]int          // of versions that are pre-releases, by name
	near   map[string][]suggestion // what a name that is not there may have meant
}

// A candidate is a version that was found.
type candidate struct {
	index.Entry
	parsed *semver.Version
}

// compare orders versions, the newest first: what is equal up to build metadata
// by when it was created.
func (c candidate) compare(d candidate) int {
	return cmp.Or(d.parsed.Compare(c.parsed), d.Created.Compare(c.Created), strings.Compare(d.Version, c.Version))
}

// maxCharts bounds how many charts a list holds.
const maxCharts = 100_000

func newSearch(names []string, versions string, devel bool) (*search, error) {
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return nil, usage("%q is neither the name of a chart nor a pattern", name)
		}
	}
	s := &search{names: names, found: map[string][]candidate{}, hidden: map[string]int{}, near: map[string][]suggestion{}}
	var err error
	if s.withDevel, err = within(versions, true); err == nil {
		s.within, err = within(versions, devel)
	}
	return s, err
}

// within returns what tells whether a version is wanted: it is spelled like the
// one that is asked for, or lies in the range.
func within(versions string, devel bool) (func(*semver.Version) bool, error) {
	if versions == "" {
		return func(v *semver.Version) bool { return devel || v.Prerelease() == "" }, nil
	}
	if exact, err := semver.StrictNewVersion(strings.TrimPrefix(versions, "v")); err == nil {
		return func(v *semver.Version) bool {
			return v.Equal(exact) && (exact.Metadata() == "" || exact.Metadata() == v.Metadata())
		}, nil
	}
	c, err := semver.NewConstraint(versions)
	if err != nil {
		return nil, usage("--version %q is neither a version nor a range", versions)
	}
	c.IncludePrerelease = devel
	return c.Check, nil
}

// read reads an index. One name alone is looked up without decoding the rest.
func (s *search) read(ctx context.Context, r io.ReadSeeker) error {
	if len(s.names) == 1 && !isPattern(s.names[0]) {
		if err := s.collect(ctx, index.Entries(r, s.names[0]), func(string) bool { return true }); err != nil {
			return err
		}
	} else if err := s.collect(ctx, index.All(r), s.wanted); err != nil {
		return err
	}
	if len(s.unfound()) == 0 {
		return nil
	}
	if _, err := r.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return s.suggest(ctx, index.All(r))
}

func (s *search) collect(ctx context.Context, entries iter.Seq2[index.Entry, error], wanted func(name string) bool) error {
	for e, err := range entries {
		if err := cmp.Or(err, context.Cause(ctx)); err != nil {
			return err
		}
		if !wanted(e.Name) {
			continue
		}
		v, err := semver.NewVersion(e.Version)
		switch {
		case err != nil: // nobody can ask for it
		case s.within(v):
			s.add(candidate{e, v})
		case s.withDevel(v):
			s.hidden[e.Name]++
		}
		if len(s.found)+len(s.hidden) > maxCharts {
			return fmt.Errorf("more than %d charts: name some", maxCharts)
		}
	}
	return nil
}

// add adds a version; of all charts only the newest ones are kept.
func (s *search) add(c candidate) {
	if have := s.found[c.Name]; len(s.names) > 0 {
		s.found[c.Name] = append(have, c)
	} else if len(have) == 0 || c.compare(have[0]) < 0 {
		s.found[c.Name] = []candidate{c}
	}
}

func isPattern(name string) bool { return strings.ContainsAny(name, `*?[\`) }

// matches reports whether a name that was asked for, or a pattern, means the chart.
func matches(asked, chart string) bool {
	ok, _ := path.Match(asked, chart)
	return ok || asked == chart
}

func (s *search) wanted(chart string) bool {
	return len(s.names) == 0 || slices.ContainsFunc(s.names, func(asked string) bool { return matches(asked, chart) })
}

// unfound returns the names for which no version was found.
func (s *search) unfound() (names []string) {
	for _, asked := range s.names {
		there := false
		for chart := range s.found {
			there = there || matches(asked, chart)
		}
		if !there {
			names = append(names, asked)
		}
	}
	return names
}
