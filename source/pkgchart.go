package source

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
)

// PkgChart is a chart inside another source (specification, "PkgChart").
type PkgChart struct {
	Header
	Spec   PkgChartSpec   `json:"spec"`
	Status PkgChartStatus `json:"status,omitzero"`
}

// PkgChartSpec is what a PkgChart asks for.
type PkgChartSpec struct {
	Chart                    string                     `json:"chart"`             // name, or path in a GitRepository or Bucket
	Version                  string                     `json:"version,omitempty"` // default *, the newest stable one
	SourceRef                LocalChartSourceReference  `json:"sourceRef"`
	Interval                 Duration                   `json:"interval"`
	ReconcileStrategy        string                     `json:"reconcileStrategy,omitempty"`
	ValuesFiles              []string                   `json:"valuesFiles,omitempty"` // merged in order, the last wins; see [PkgChart.Values]
	IgnoreMissingValuesFiles bool                       `json:"ignoreMissingValuesFiles,omitempty"`
	Suspend                  bool                       `json:"suspend,omitempty"`
	Verify                   *OCIRepositoryVerification `json:"verify,omitempty"` // with a PkgRepository only
}

// The values of spec.reconcileStrategy: what makes a new artifact.
const (
	StrategyChartVersion = "ChartVersion"
	StrategyRevision     = "Revision"
)

// LocalChartSourceReference names the source that holds the chart.
type LocalChartSourceReference struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"` // PkgRepository, GitRepository, Bucket; OCIRepository is headgate's extension
	Name       string `json:"name"`
}

// PkgChartStatus is what was observed.
type PkgChartStatus struct {
	Status
	ObservedSourceArtifactRevision string   `json:"observedSourceArtifactRevision,omitempty"`
	ObservedChartName              string   `json:"observedChartName,omitempty"`
	ObservedValuesFiles            []string `json:"observedValuesFiles,omitempty"`
}

// Common implements [Object].
func (c *PkgChart) Common() *Status { return &c.Status.Status }

// Artifact implements [Source].
func (c *PkgChart) Artifact() *artifact.Artifact { return c.Status.Artifact }

// Interval implements [Source].
func (c *PkgChart) Interval() time.Duration { return time.Duration(c.Spec.Interval) }

// Plan implements [Object]. A chart has no timeout of its own: the origin bounds
// each of its steps by that of the source.
func (c *PkgChart) Plan() Plan {
	return Plan{
		Suspend: c.Spec.Suspend,
		Verify:  c.Spec.Verify.provider(),
		Needs:   c.needs(),
		Words:   spelledKind("PkgChart").words,
	}
}

// Drift implements [Object]. A new revision of the source alone is no drift:
// whether it makes a new chart is what reconcileStrategy says, and then the
// revision of the chart differs (reference A4, A14).
func (c *PkgChart) Drift(rev Revision) string {
	return drift(
		difference{"spec.chart", c.Status.ObservedChartName != chartName(rev)},
		difference{"spec.valuesFiles", !slices.Equal(c.values(rev), c.Status.ObservedValuesFiles)},
	)
}

// Observe implements [Object].
func (c *PkgChart) Observe(rev Revision) {
	c.Status.ObservedSourceArtifactRevision = ""
	c.see(rev.Inputs)
	c.Status.ObservedChartName = chartName(rev)
	c.Status.ObservedValuesFiles = slices.Clone(c.values(rev))
}

// see records the artifact of the source as soon as it is known, whether a chart
// is made of it or not (reference A14).
func (c *PkgChart) see(inputs []artifact.Artifact) {
	if len(inputs) > 0 {
		c.Status.ObservedSourceArtifactRevision = inputs[0].Revision
	}
}

// values returns the values files that shape the chart.
func (c *PkgChart) values(rev Revision) []string {
	if rev.Found != nil && c.Spec.IgnoreMissingValuesFiles {
		return rev.Found
	}
	return c.Spec.ValuesFiles
}

// chartName returns the name of the chart whose file is NAME-VERSION.tgz.
func chartName(rev Revision) string {
	name := strings.TrimSuffix(rev.File, ".tgz")
	return strings.TrimSuffix(strings.TrimSuffix(name, rev.ID), "-")
}

// chartSources are the kinds that can hold a chart.
var chartSources = []string{"PkgRepository", "GitRepository", "Bucket", "OCIRepository"}

// valuesSources are the kinds whose artifacts can hold values files. A PkgChart
// is none: charts could then be made of each other.
var valuesSources = []string{"GitRepository", "Bucket", "OCIRepository", "ExternalArtifact"}

// A ValuesFile is one element of spec.valuesFiles, taken apart.
type ValuesFile struct {
	Text   string    // as the spec spells it
	Source Reference // whose artifact has the file; zero for the chart's own source
	Path   string    // as fs.ValidPath has it, of the file in there
}

// Values returns spec.valuesFiles, taken apart, in order. An element is a path
// or, headgate's extension, a file of the artifact of another source in the same
// namespace: source:NAME/PATH for a GitRepository, or source:KIND/NAME/PATH. A
// KIND begins with a capital, a name never does. Both are paths in an artifact: a
// leading slash of the former is the root of the chart's own source. One that
// begins with source: is written ./source:…
//
// The error names the first element that is none of these, and wraps [ErrInvalid].
func (c *PkgChart) Values() ([]ValuesFile, error) {
	files := make([]ValuesFile, len(c.Spec.ValuesFiles))
	for i, text := range c.Spec.ValuesFiles {
		var err error
		if files[i], err = c.valuesFile(text); err != nil {
			return nil, fmt.Errorf("%w: spec.valuesFiles[%d] %w", ErrInvalid, i, err)
		}
	}
	return files, nil
}

// valuesFile takes one element apart.
func (c *PkgChart) valuesFile(text string) (v ValuesFile, err error) {
	v.Text = text
	within, elsewhere := strings.CutPrefix(text, "source:")
	if elsewhere {
		if v.Source, within, err = c.valuesSource(within); err != nil {
			return v, err
		}
	}
	v.Path, err = cleanPath(within)
	if elsewhere && (strings.HasPrefix(within, "/") || v.Path == ".") {
		err = errSourceForm // the root itself is no file, as the build tells of a chart's own source
	}
	return v, err
}

var errSourceForm = errors.New("must be source:NAME/PATH, the path of a file in a GitRepository, or source:KIND/NAME/PATH")

// valuesSource takes [KIND/]NAME/PATH apart.
func (c *PkgChart) valuesSource(text string) (ref Reference, within string, err error) {
	kind := "GitRepository"
	if text != "" && 'A' <= text[0] && text[0] <= 'Z' {
		kind, text, _ = strings.Cut(text, "/")
	}
	name, within, found := strings.Cut(text, "/")
	k := spelledKind(kind)
	switch {
	case k == nil || !slices.Contains(valuesSources, k.name):
		return ref, "", fmt.Errorf("names a source of kind %s: values come from %s", quote(kind), strings.Join(valuesSources, ", "))
	case !found:
		return ref, "", errSourceForm
	}
	if err := document.CheckName(name); err != nil {
		return ref, "", fmt.Errorf("names a source of which %w", err)
	}
	return Reference{k.name, c.Metadata.space(), name}, within, nil
}

// Source returns the name of the source that holds the chart; ok is false when
// its kind is one that cannot.
func (c *PkgChart) Source() (ref Reference, ok bool) {
	k := spelledKind(c.Spec.SourceRef.Kind)
	if k == nil || !slices.Contains(chartSources, k.name) {
		return ref, false
	}
	return Reference{k.name, c.Metadata.space(), c.Spec.SourceRef.Name}, true
}

// needs returns the sources that the chart is made of, each once: the one that
// holds it, then those of its values. What is no reference is left out.
func (c *PkgChart) needs() []Reference {
	var refs []Reference
	if ref, ok := c.Source(); ok {
		refs = append(refs, ref)
	}
	for _, text := range c.Spec.ValuesFiles {
		if v, err := c.valuesFile(text); err == nil && v.Source != (Reference{}) && !slices.Contains(refs, v.Source) {
			refs = append(refs, v.Source)
		}
	}
	return refs
}

// inTree reports whether the chart is a directory or file of its source, and not
// one of a repository of charts.
func (s *PkgChartSpec) inTree() bool {
	k := spelledKind(s.SourceRef.Kind)
	return k != nil && k.name != "PkgRepository"
}

// releaseGroup is the API group of HelmRelease documents.
const releaseGroup = "helm.toolkit.fluxcd.io"

// release files the PkgChart that a cluster makes of spec.chart of a HelmRelease: in
// the namespace of its source, with the name NAMESPACE-NAME of the release.
func (d *decoding) release(o document.Object) {
	template := o.At("spec", "chart", "spec")
	if template == nil { // with spec.chartRef it has an object of its own
		d.Other(o)
		return
	}
	var r struct {
		Metadata struct {
			Name      string            `json:"name,omitempty"`
			Namespace string            `json:"namespace,omitempty"`
			Labels    map[string]string `json:"labels,omitempty"`
		} `json:"metadata,omitempty"`
		Spec struct {
			Interval Duration `json:"interval,omitempty"`
			Suspend  bool     `json:"suspend,omitempty"`
		} `json:"spec,omitempty"`
	}
	obj := &PkgChart{Header: Header{APIVersion: ReferenceGroup + "/" + V1, Kind: "PkgChart", spelled: "HelmChart"}}
	dec := &document.Decoder{Rules: partRules}
	dec.Decode(o.Node, &r, "")
	dec.Decode(template, &obj.Spec, "spec.chart.spec")
	or(&obj.Spec.Interval, r.Spec.Interval)
	obj.Spec.Suspend = r.Spec.Suspend
	space := cmp.Or(r.Metadata.Namespace, DefaultNamespace)
	from := template.StringAt("sourceRef", "namespace")
	obj.Metadata = Metadata{Name: space + "-" + r.Metadata.Name, Namespace: cmp.Or(from, space), Labels: r.Metadata.Labels}
	Default(obj)
	rules := check(obj)
	for _, e := range rules.Errors { // where the release has what they are about
		e.Field = strings.Replace(e.Field, "spec.", "spec.chart.spec.", 1)
	}
	if d.file(o, ReferenceTo(obj).String(), dec, rules) {
		d.set.Objects = append(d.set.Objects, obj)
	}
}
