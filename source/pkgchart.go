package source

import (
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
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

// Head implements [Object].
func (c *PkgChart) Head() *Header { return &c.Header }

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
		Words:   wordsOf(c.kind()),
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
