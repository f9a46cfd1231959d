package main

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/internal/redact"
	"github.com/headgate-io/headgate/source"
)

// chartFlags say what the object of a URL is called, and which chart of the
// repository at a URL is meant. Each stands for a field that an object would have.
type chartFlags struct {
	name    string
	chart   string
	version string
	values  []string
	changed func(flag string) bool // whether it was given, be it empty
}

func (f *chartFlags) register(c *cobra.Command) {
	fl := c.Flags()
	fl.StringVar(&f.name, "name", "", "`NAME` of the object that a URL stands for; default made of the URL, with a hash of it")
	fl.StringVar(&f.chart, "chart", "", "`NAME` of a chart in the repository of charts at a URL (https, http or oci), as spec.chart")
	fl.StringVar(&f.version, "version", "", "version or `RANGE` of --chart, as spec.version; default the newest that is no pre-release")
	fl.StringArrayVar(&f.values, "values-file", nil, "`FILE` in --chart with values that replace those of its values.yaml, as one of spec.valuesFiles; repeatable, the last wins")
	f.changed = fl.Changed
}

// flaws refuses flags that go with nothing, or are empty: what should be in
// them may be a variable that is not set, and does not mean the default.
func (f *chartFlags) flaws(adhoc bool) error {
	if f.changed == nil {
		return nil // a command without them
	}
	for _, name := range []string{"name", "chart", "version", "values-file"} {
		switch {
		case !f.changed(name):
		case name == "name" && !adhoc:
			return usage("--name goes with a URL: the objects of -f have names")
		case name == "name":
		case !adhoc:
			return usage("--%s goes with a URL: name the PkgChart objects of -f", name)
		case f.chart == "" && name != "chart":
			return usage("--%s goes with --chart", name)
		}
	}
	if f.changed("name") && f.name == "" || f.changed("chart") && f.chart == "" || f.changed("version") && f.version == "" {
		return usage("--name, --chart and --version must not be empty: say what is wanted, or leave them out")
	}
	return nil
}

// adhocChart returns the PkgChart that --chart means in the repository at a
// URL. Its PkgRepository is among the objects of the session.
func (s *session) adhocChart(arg string) (source.Object, error) {
	repo, err := s.adhocRepository(arg)
	if err != nil {
		return nil, err
	}
	f := &s.flags.chartFlags
	c := &source.PkgChart{Spec: source.PkgChartSpec{
		Chart: f.chart, Version: f.version, ValuesFiles: f.values, Interval: source.Duration(time.Minute),
		SourceRef: source.LocalChartSourceReference{Kind: repo.Kind, Name: repo.Metadata.Name},
	}}
	c.Kind = "PkgChart"
	source.Default(c)
	if err := s.setName(c, f.chart, chartOrigin(s.originOf(repo), f.chart), true); err != nil {
		return nil, err
	}
	if err := source.Validate(c); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	s.set.Objects = append(s.set.Objects, repo, c)
	return c, nil
}

// adhocRepository returns the PkgRepository that a URL stands for.
func (s *session) adhocRepository(arg string) (*source.PkgRepository, error) {
	u, err := url.Parse(arg)
	if err != nil {
		return nil, usage("%q is no URL", redact.String(arg))
	}
	f := &s.flags.accessFlags
	p := &source.PkgRepository{Spec: source.PkgRepositorySpec{
		URL: arg, Type: source.RepositoryIndex, Interval: source.Duration(time.Minute), Timeout: source.Duration(s.flags.timeout),
		SecretRef: reference(f.secret), CertSecretRef: reference(f.cert),
	}}
	fits := []string{"secret-ref", "cert-secret-ref"}
	switch u.Scheme {
	case "http", "https":
	case "oci":
		p.Spec.Type, p.Spec.Provider, p.Spec.Insecure = source.RepositoryOCI, f.provider, f.insecure
		fits = append(fits, "provider", "insecure")
	default:
		return nil, usage("%s: a repository of charts is at https://HOST/PATH, http://HOST/PATH or oci://HOST/PATH; for a chart in another source write objects, and give them with -f", redact.String(arg))
	}
	for _, flag := range f.list() {
		if flag.set && !slices.Contains(fits, flag.name) {
			return nil, usage("--%s does not go with the URL of this repository of charts", flag.name)
		}
	}
	p.Kind = "PkgRepository"
	source.Default(p)
	if err := s.setName(p, u.Hostname()+strings.TrimSuffix(u.Path, "/"), s.originOf(p), false); err != nil {
		return nil, err
	}
	if err := source.Validate(p); err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return p, nil
}
