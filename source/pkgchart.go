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

// PkgChartSpec is the spec of a PkgChart.
type PkgChartSpec struct {
	Chart                    string                     `json:"chart"`             // name, or path in a GitRepository or Bucket
	Version                  string                     `json:"version,omitempty"` // default *, the newest stable version
	SourceRef                LocalChartSourceReference  `json:"sourceRef"`
	Interval                 Duration                   `json:"interval"`
	ReconcileStrategy        string                     `json:"reconcileStrategy,omitempty"`
	ValuesFiles              []string                   `json:"valuesFiles,omitempty"` // merged in order, later files take precedence; see [PkgChart.Values]
	IgnoreMissingValuesFiles bool                       `json:"ignoreMissingValuesFiles,omitempty"`
	Suspend                  bool                       `json:"suspend,omitempty"`
	Verify                   *OCIRepositoryVerification `json:"verify,omitempty"` // with a PkgRepository only
}

// The values of spec.reconcileStrategy, which selects the changes that make a new artifact.
const (
	StrategyChartVersion = "ChartVersion"
	StrategyRevision     = "Revision"
)

// LocalChartSourceReference names the source that has the chart.
type LocalChartSourceReference struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"` // PkgRepository, GitRepository, Bucket; OCIRepository is headgate's extension
	Name       string `json:"name"`
}

// PkgChartStatus is the observed state of a PkgChart.
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

// Plan implements [Object]. A chart has no timeout of its own: the origin applies that of the
// source to each of its steps.
func (c *PkgChart) Plan() Plan {
	return Plan{
		Suspend: c.Spec.Suspend,
		Verify:  c.Spec.Verify.provider(),
		Needs:   c.needs(),
		Words:   kindBySpelling("PkgChart").words,
	}
}

// Drift implements [Object]. A new revision of the source alone is not a drift: reconcileStrategy
// decides whether it makes a new chart, which then has a different revision (reference A4, A14).
func (c *PkgChart) Drift(rev Revision) string {
	return drift(
		difference{"spec.chart", c.Status.ObservedChartName != chartName(rev)},
		difference{"spec.valuesFiles", !slices.Equal(c.values(rev), c.Status.ObservedValuesFiles)},
	)
}

// Observe implements [Object].
func (c *PkgChart) Observe(rev Revision) {
	c.Status.ObservedSourceArtifactRevision = ""
	c.observeInputs(rev.Inputs)
	c.Status.ObservedChartName = chartName(rev)
	c.Status.ObservedValuesFiles = slices.Clone(c.values(rev))
}

// observeInputs records the artifact of the source as soon as it is known, even if no chart is made from it
// (reference A14).
func (c *PkgChart) observeInputs(inputs []artifact.Artifact) {
	if len(inputs) > 0 {
		c.Status.ObservedSourceArtifactRevision = inputs[0].Revision
	}
}

// values returns the values files used for the chart.
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

// chartSources are the kinds that can have a chart.
var chartSources = []string{"PkgRepository", "GitRepository", "Bucket", "OCIRepository"}

// valuesSources are the kinds whose artifacts can have values files. PkgChart is not one of them,
// because charts could then need each other.
var valuesSources = []string{"GitRepository", "Bucket", "OCIRepository", "ExternalArtifact"}

// A ValuesFile is one parsed element of spec.valuesFiles.
type ValuesFile struct {
	Text   string    // as in the spec
	Source Reference // source whose artifact has the file; zero for the chart's own source
	Path   string    // of the file in the source, as in fs.ValidPath
}

// Values returns the parsed spec.valuesFiles, in order. An element is a path or, as headgate's
// extension, a file in the artifact of another source in the same namespace: source:NAME/PATH for a
// GitRepository, or source:KIND/NAME/PATH. A KIND begins with a capital letter, a name never does.
// A leading slash of a path means the root of the chart's own source. A path that begins with
// source: must be written ./source:…
//
// The error names the first invalid element and wraps [ErrInvalid].
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

// valuesFile parses one element.
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
		err = errSourceForm // the root is not a file; for a chart's own source, the build reports it
	}
	return v, err
}

var errSourceForm = errors.New("must be source:NAME/PATH, the path of a file in a GitRepository, or source:KIND/NAME/PATH")

// valuesSource parses [KIND/]NAME/PATH.
func (c *PkgChart) valuesSource(text string) (ref Reference, within string, err error) {
	kind := "GitRepository"
	if text != "" && 'A' <= text[0] && text[0] <= 'Z' {
		kind, text, _ = strings.Cut(text, "/")
	}
	name, within, found := strings.Cut(text, "/")
	k := kindBySpelling(kind)
	switch {
	case k == nil || !slices.Contains(valuesSources, k.name):
		return ref, "", fmt.Errorf("names a source of kind %s: values come from %s", quote(kind), strings.Join(valuesSources, ", "))
	case !found:
		return ref, "", errSourceForm
	}
	if err := document.CheckName(name); err != nil {
		return ref, "", fmt.Errorf("names a source of which %w", err)
	}
	return Reference{k.name, c.Metadata.namespace(), name}, within, nil
}

// Source returns the source that has the chart; ok is false if its kind cannot have charts.
func (c *PkgChart) Source() (ref Reference, ok bool) {
	k := kindBySpelling(c.Spec.SourceRef.Kind)
	if k == nil || !slices.Contains(chartSources, k.name) {
		return ref, false
	}
	return Reference{k.name, c.Metadata.namespace(), c.Spec.SourceRef.Name}, true
}

// needs returns the sources of the chart, each once: first the one that has the chart, then those
// of its values files. It skips invalid references.
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

// inTree reports whether the chart is a directory or file of its source, not a chart in a chart
// repository.
func (s *PkgChartSpec) inTree() bool {
	k := kindBySpelling(s.SourceRef.Kind)
	return k != nil && k.name != "PkgRepository"
}

// releaseGroup is the API group of HelmRelease documents.
const releaseGroup = "helm.toolkit.fluxcd.io"

// addRelease adds the PkgChart that a cluster makes from spec.chart of a HelmRelease: in the namespace
// of its source, with the name NAMESPACE-NAME of the release.
func (d *streamDecoder) addRelease(o document.Object) {
	template := o.At("spec", "chart", "spec")
	if template == nil { // with spec.chartRef, the chart has its own document
		d.Skip(o)
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
	setDefault(&obj.Spec.Interval, r.Spec.Interval)
	obj.Spec.Suspend = r.Spec.Suspend
	space := cmp.Or(r.Metadata.Namespace, DefaultNamespace)
	from := template.StringAt("sourceRef", "namespace")
	obj.Metadata = Metadata{Name: space + "-" + r.Metadata.Name, Namespace: cmp.Or(from, space), Labels: r.Metadata.Labels}
	Default(obj)
	rules := check(obj)
	for _, e := range rules.Errors { // use the position in the release
		e.Field = strings.Replace(e.Field, "spec.", "spec.chart.spec.", 1)
	}
	if d.register(o, ReferenceTo(obj).String(), dec, rules) {
		d.set.Objects = append(d.set.Objects, obj)
	}
}
