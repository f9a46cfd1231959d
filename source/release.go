package source

import (
	"cmp"

	"github.com/headgate-io/headgate/internal/document"
)

// releaseGroup is the API group of HelmRelease documents.
const releaseGroup = "helm.toolkit.fluxcd.io"

// release files the PkgChart that a cluster makes of spec.chart of a HelmRelease: in
// the namespace of its source, with the name NAMESPACE-NAME of the release.
func (d *decoding) release(o document.Object) {
	var r struct {
		Header
		Spec struct {
			Interval Duration `json:"interval,omitempty"`
			Suspend  bool     `json:"suspend,omitempty"`
			Chart    struct {
				Spec struct {
					Chart     string `json:"chart,omitempty"`
					Version   string `json:"version,omitempty"`
					SourceRef struct {
						Kind      string `json:"kind,omitempty"`
						Name      string `json:"name,omitempty"`
						Namespace string `json:"namespace,omitempty"`
					} `json:"sourceRef,omitempty"`
					Interval                 Duration                   `json:"interval,omitempty"`
					ReconcileStrategy        string                     `json:"reconcileStrategy,omitempty"`
					ValuesFiles              []string                   `json:"valuesFiles,omitempty"`
					IgnoreMissingValuesFiles bool                       `json:"ignoreMissingValuesFiles,omitempty"`
					Verify                   *OCIRepositoryVerification `json:"verify,omitempty"`
				} `json:"spec,omitempty"`
			} `json:"chart,omitempty"`
		} `json:"spec,omitempty"`
	}
	if o.At("spec", "chart", "spec") == nil { // with spec.chartRef it has an object of its own
		d.Other(o)
		return
	}
	dec := d.Decoder(accountRules)
	dec.Decode(o.Node, &r, "")
	from, space := r.Spec.Chart.Spec, r.Metadata.space()
	obj := &PkgChart{Header: Header{APIVersion: ReferenceGroup + "/" + V1, Kind: "PkgChart", spelled: "HelmChart"}, Spec: PkgChartSpec{
		Chart: from.Chart, Version: from.Version, Interval: cmp.Or(from.Interval, r.Spec.Interval), ReconcileStrategy: from.ReconcileStrategy,
		ValuesFiles: from.ValuesFiles, IgnoreMissingValuesFiles: from.IgnoreMissingValuesFiles, Verify: from.Verify, Suspend: r.Spec.Suspend,
		SourceRef: LocalChartSourceReference{Kind: from.SourceRef.Kind, Name: from.SourceRef.Name},
	}}
	if k := spelledKind(from.SourceRef.Kind); k != nil {
		obj.Spec.SourceRef.Kind = k.name
	}
	obj.Metadata = Metadata{Name: space + "-" + r.Metadata.Name, Namespace: cmp.Or(from.SourceRef.Namespace, space), Labels: r.Metadata.Labels}
	Default(obj)
	dec.Adopt(check(obj))
	d.Note(d.Place(&dec.Findings, o.Node, o.Name(o.Type, DefaultNamespace))...)
	if len(dec.Errors) > 0 {
		return
	}
	if err := d.set.place(ReferenceTo(obj).String(), DocumentError{File: d.File, Document: d.Number, Line: o.Line, Object: obj.String()}); err != nil {
		d.Note(err)
		return
	}
	d.set.Objects = append(d.set.Objects, obj)
}
