package source

import (
	"cmp"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

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
	dec := d.Decoder(partRules)
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
