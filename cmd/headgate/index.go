package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	prettytext "github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

func (p *program) index() *cobra.Command {
	return group("index", "Search the indexes of chart repositories", p.indexSearch())
}

func (p *program) indexSearch() *cobra.Command {
	f := new(sourceFlags)
	var search search
	c := &cobra.Command{
		Use:   "search [-f FILE|DIR|-] SOURCE [NAME]...",
		Short: "Print the versions of charts, newest first",
		Long: `Search prints the versions of the charts called NAME, or matching NAME as a pattern such as 'app-*', newest first. Without
NAME it lists all charts (at most 100,000), each with its newest version. SOURCE is one of

  https://HOST/PATH      a chart repository (http too); its index is fetched, but not stored
  KIND/NAME              a PkgRepository of -f, which is fetched, or without -f one of the store
  FILE or -              an index; - is standard input
  DIR                    a directory with an index.yaml

Pre-releases are left out unless --devel is given or the range names one, and so are malformed entries.

Exit codes: 0 every NAME was found, 1 one was not found or something failed, 2 usage.`,
		Example: `  headgate index search https://charts.example.org app --version "^1.2"
  headgate index search ./repository 'app-*' --devel`,
		ValidArgsFunction: func(c *cobra.Command, args []string, start string) ([]string, cobra.ShellCompDirective) {
			complete := completeStored(&f.store)
			if len(f.files) > 0 {
				complete = f.completeObjects
			}
			names, directive := complete(c, args, start)
			return slices.DeleteFunc(names, func(name string) bool {
				ref, err := source.ParseReference(name)
				return err != nil || ref.Kind != "PkgRepository" || len(args) > 0
			}), directive
		},
		RunE: func(c *cobra.Command, args []string) error {
			switch {
			case c.Flags().Changed("version") && search.versions == "":
				return usage("--version must not be empty: say what is wanted, or leave it out")
			case len(args) == 0:
				return usage("give an index: the URL of a repository, a file, a directory, or a PkgRepository")
			}
			return p.runSearch(c.Context(), f, args, &search)
		},
	}
	fl := c.Flags()
	f.documentFlags.register(c)
	registerStore(c, &f.store)
	fl.StringVar(&search.versions, "version", "", "only this version, or versions in the `RANGE`")
	fl.BoolVar(&search.devel, "devel", false, "include pre-releases")
	f.registerAccess(c, false)
	registerLimit(c, &f.maxBytes)
	f.outputFlags.register(c, "table", "wide", "json", "yaml", "name")
	f.noTruncate = true
	return c
}

func (p *program) runSearch(ctx context.Context, f *sourceFlags, args []string, search *search) error {
	if err := search.prepare(args[1:]); err != nil {
		return err
	}
	s, err := p.openSession(f)
	if err != nil {
		return err
	}
	r, err := s.openIndex(ctx, args[0])
	if err == nil {
		defer r.Close()
		entries := index.All(r)
		if names := search.names; len(names) == 1 && !strings.ContainsAny(names[0], `*?[\`) { // do not decode the other charts
			entries = index.Entries(r, names[0])
		}
		err = search.collect(ctx, entries)
	}
	if err != nil {
		return s.prefixError(redactArgument(args[0]), err)
	}
	if err := search.print(p, &f.outputFlags); err != nil {
		return err
	}
	return search.checkFound()
}

// openIndex opens the index that arg names. The result can be read repeatedly; the caller closes
// it.
func (s *session) openIndex(ctx context.Context, arg string) (io.ReadSeekCloser, error) {
	isURL, declared := strings.Contains(arg, "://"), len(s.flags.files) > 0
	if !isURL || declared {
		if err := s.flags.checkSort(""); err != nil {
			return nil, err
		}
	}
	var repo *source.PkgRepository
	var err error
	in := io.NopCloser(s.stdin)
	switch {
	case isURL && declared:
		err = usage("-f requires a PkgRepository among its objects: want pkgrepository/NAME")
	case isURL:
		repo, err = s.repositoryOf(arg)
	case declared:
		var found []source.Object
		if found, err = s.selectObjects([]string{arg}); len(found) == 1 {
			repo, _ = found[0].(*source.PkgRepository)
		}
		if err == nil && repo == nil {
			err = usage("names no single PkgRepository: want pkgrepository/NAME or pkgrepository/NAMESPACE/NAME")
		}
	case arg == "-":
	case isDir(arg):
		return os.Open(filepath.Join(arg, "index.yaml"))
	case exists(arg):
		return os.Open(arg)
	default:
		lookup := artifactLookup{store: s.flags.store}
		if in, err = lookup.open(ctx, arg); err == nil && !isIndex(lookup.found) {
			err = errors.Join(usage("is no PkgRepository: want one, or a URL, a file or a directory"), in.Close())
		}
	}
	switch {
	case err != nil:
		return nil, err
	case repo != nil && repo.Spec.Type == source.RepositoryOCI:
		return nil, usage("a registry has no index: its charts are repositories, and their versions tags")
	}
	defer in.Close()
	return newSpool(func(w *os.File) (err error) {
		if repo != nil {
			_, _, err = s.origins.Write(ctx, w, repo, s.env)
		} else {
			_, err = io.Copy(w, in)
		}
		return err
	})
}

// A search selects charts in an index.
type search struct {
	names    []string // names and patterns; if empty, the newest version of every chart
	versions string   // a version or a range
	devel    bool     // include pre-releases
	inRange  func(v *semver.Version, devel bool) bool
	found    map[string]*foundChart // by name
}

// A foundChart holds the versions of a chart in an index.
type foundChart struct {
	versions []candidate
	hidden   int // number of excluded pre-releases
}

// A candidate is a version that the search found.
type candidate struct {
	index.Entry
	parsed *semver.Version
}

// compare orders versions from new to old. Versions that differ in build metadata only are ordered
// by creation time.
func (c candidate) compare(d candidate) int {
	return cmp.Or(d.parsed.Compare(c.parsed), d.Created.Compare(c.Created), strings.Compare(d.Version, c.Version))
}

// maxCharts bounds the number of charts in a result.
const maxCharts = 100_000

// prepare checks the search terms. A version matches if it is equal to the requested version, or
// lies in the requested range.
func (s *search) prepare(names []string) error {
	for _, name := range names {
		if _, err := path.Match(name, ""); err != nil || name == "" {
			return usage("%q is neither the name of a chart nor a pattern", name)
		}
	}
	s.names, s.found = names, map[string]*foundChart{}
	exact, notExact := semver.StrictNewVersion(strings.TrimPrefix(s.versions, "v"))
	among, err := semver.NewConstraint(s.versions)
	switch {
	case s.versions == "":
		s.inRange = func(v *semver.Version, devel bool) bool { return devel || v.Prerelease() == "" }
	case notExact == nil:
		s.inRange = func(v *semver.Version, _ bool) bool {
			return v.Equal(exact) && (exact.Metadata() == "" || exact.Metadata() == v.Metadata())
		}
	case err != nil:
		return usage("--version %q is neither a version nor a range", s.versions)
	default:
		s.inRange = func(v *semver.Version, devel bool) bool {
			among.IncludePrerelease = devel
			return among.Check(v)
		}
	}
	return nil
}

func (s *search) collect(ctx context.Context, entries iter.Seq2[index.Entry, error]) error {
	for e, err := range entries {
		if err := cmp.Or(err, context.Cause(ctx)); err != nil {
			return err
		}
		if len(s.names) > 0 && !slices.ContainsFunc(s.names, func(query string) bool { return matches(query, e.Name) }) {
			continue
		}
		chart := s.found[e.Name]
		if chart == nil {
			chart = new(foundChart)
			s.found[e.Name] = chart
		}
		if len(s.found) > maxCharts {
			return fmt.Errorf("more than %d charts: name some", maxCharts)
		}
		v, err := semver.NewVersion(e.Version)
		switch c := (candidate{e, v}); {
		case err != nil: // no range selects an invalid version
		case !s.inRange(v, s.devel):
			if s.inRange(v, true) {
				chart.hidden++
			}
		case len(s.names) > 0 || len(chart.versions) == 0:
			chart.versions = append(chart.versions, c)
		case c.compare(chart.versions[0]) < 0: // without names only the newest version is kept
			chart.versions[0] = c
		}
	}
	return nil
}

// matches reports whether query is the name of the chart, or a pattern that matches it.
func matches(query, chart string) bool {
	ok, _ := path.Match(query, chart)
	return ok || query == chart
}

// checkFound returns an error for each name that has no result.
func (s *search) checkFound() error {
	var errs []error
	for _, name := range s.names {
		found, known, hidden := false, false, 0
		for chart, has := range s.found {
			if matches(name, chart) {
				found, known, hidden = found || len(has.versions) > 0, true, hidden+has.hidden
			}
		}
		switch {
		case found:
		case hidden > 0:
			errs = append(errs, fmt.Errorf("chart %q: no version fits, pre-releases were left out (%d): --devel", name, hidden))
		case known:
			errs = append(errs, fmt.Errorf("chart %q: no version fits --version", name))
		default:
			errs = append(errs, fmt.Errorf("no chart is called %q", name))
		}
	}
	return errors.Join(errs...)
}

// print prints the results by name, the newest version first. The text of an index is untrusted, so
// control characters are removed.
func (s *search) print(p *program, f *outputFlags) error {
	var all []candidate
	for _, chart := range s.found {
		all = append(all, chart.versions...)
	}
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.compare(b)) })
	wide, list, names := f.output == "wide", []index.Entry{}, []string(nil)
	lines := [][]string{{"NAME", "VERSION", "APP VERSION", "CREATED", "DESCRIPTION"}}
	if wide {
		lines[0] = slices.Insert(lines[0], 4, "DIGEST")
	}
	for _, c := range all {
		v, day := c.Entry, ""
		for _, text := range []*string{&v.Name, &v.Version, &v.AppVersion, &v.Description, &v.Type, &v.Digest} {
			*text = redact.String(*text)
		}
		for i, u := range v.URLs {
			v.URLs[i] = redact.String(u)
		}
		if v.Created = v.Created.UTC().Truncate(time.Second); !v.Created.IsZero() {
			day = v.Created.Format(time.DateOnly)
		}
		remark := v.Description
		if v.Deprecated {
			remark = strings.TrimSpace("(deprecated) " + remark)
		}
		line := []string{v.Name, v.Version, v.AppVersion, day, prettytext.Snip(remark, 60, "…")}
		if wide {
			line = append(line[:4], v.Digest, remark)
		}
		list, names, lines = append(list, v), append(names, v.Name+"@"+v.Version), append(lines, line)
	}
	if len(list) == 0 && !f.machineReadable() {
		return nil
	}
	return p.printResult(f, list, names, lines)
}
