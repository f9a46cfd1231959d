package rollout

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// A DocumentError says where a canary is wrong and which rule it breaks:
//
//	File     string // name of the file, "-" for standard input; "" for a canary made in Go
//	Document int    // 1-based, 0 when it is not about one document
//	Line     int    // of the file, 1-based; 0 when unknown
//	Object   string // Canary/NAMESPACE/NAME as far as known
//	Field    string // path of the field, for example spec.analysis.webhooks[0].url
//	Err      error  // the rule, which Unwrap returns
//
// Its text is FILE:LINE: document N: OBJECT: FIELD: RULE, without the parts
// that are not known, and with control characters replaced.
type DocumentError = document.Error

// Decode reads the Canary manifests of a stream of YAML documents or JSON
// values, those in lists among them: kind Canary of [Group] in version v1beta1,
// or of [ReferenceGroup] in version v1beta1 or v1alpha3. Documents of other
// kinds are skipped, unless apiVersion or kind differ from one of a rollout in
// two letters, or the group is missing: these are defects.
//
// spec.analysis, or spec.canaryAnalysis as it was once called, is read strictly:
// unknown fields, fields given twice and values of another type are defects.
// Other fields that [CanarySpec] has must have its types; those that it has not
// and a cluster knows are ignored, others at the top and of spec are defects.
//
// The error joins one [*DocumentError] for each defect; a canary with one is
// left out, the others are returned all the same. Warnings are
// [*DocumentError] as well: what [Canary.Check] refuses, and what is read and
// has no effect or another one than it seems.
//
// A stream has at most 64 MiB, a document 3 MiB.
func Decode(file string, r io.Reader) (canaries []*Canary, warnings []error, err error) {
	stream, err := document.Open(file, r)
	if err != nil {
		return nil, nil, err
	}
	d := &decoding{Stream: stream, places: make(map[string]string)}
	for o := range stream.Objects() {
		if served[o.Group] != nil && strings.EqualFold(o.Type, kindCanary) {
			d.object(o)
		} else if meant := document.Suggest(o, known); meant != "" {
			d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "%s %s is not known: did you mean %s?", document.Quote(o.APIVersion()), document.Quote(o.Type), meant)
		} else if served[o.Group] != nil && !slices.Contains(known[0].Kinds, o.Type) {
			d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "unknown kind %s of group %s", document.Quote(o.Type), o.Group)
		}
	}
	return d.canaries, d.warnings, stream.Err()
}

// served holds the versions of each group, the current one first.
var served = map[string][]string{
	Group:          {"v1beta1"},
	ReferenceGroup: {"v1beta1", "v1alpha3"},
}

// known are the documents of a rollout; those that are no canaries are for other packages.
var known = []document.Known{
	{Group: ReferenceGroup, Version: "v1beta1", Kinds: []string{kindCanary, "MetricTemplate", "AlertProvider"}},
	{Group: Group, Version: "v1beta1", Kinds: []string{kindCanary, "MetricTemplate", "AlertProvider"}},
}

// decoding is the reading of one stream.
type decoding struct {
	*document.Stream
	canaries []*Canary
	warnings []error
	places   map[string]string // of each canary
}

// object reads one canary.
func (d *decoding) object(o document.Object) {
	name := o.Name(kindCanary, DefaultNamespace)
	switch {
	case o.Type != kindCanary:
		d.Fail(o.Node, name, "unknown kind %s: did you mean Canary?", document.Quote(o.Type))
		return
	case !slices.Contains(served[o.Group], o.Version):
		d.Fail(o.Node, name, "version %s is not read: set apiVersion to %s/%s", document.Quote(o.Version), o.Group, served[o.Group][0])
		return
	}
	c, dec := new(Canary), &document.Decoder{Rules: fieldRule}
	n, old := modern(o.Node)
	dec.Decode(n, c, "")
	found := examine(c)
	dec.Adopt(&found[invalid])
	for _, e := range append(found[broken].Errors, found[advice].Errors...) {
		dec.Warnings.Note(e)
	}
	if old {
		dec.Warnings.Add(analysisPath, "is an old name: write spec.analysis")
		spellOld(&dec.Findings)
		spellOld(&dec.Warnings)
	}
	d.Note(d.Locate(&dec.Findings, o.Node, name)...)
	if len(dec.Errors) > 0 {
		return
	}
	if there := d.places[name]; there != "" {
		d.Fail(o.Node, name, "is in %s already: remove one of the two", there)
		return
	}
	d.places[name] = fmt.Sprintf("%s:%d (document %d)", d.File, o.Node.Line, d.Number)
	d.warnings = append(d.warnings, d.Warn(&dec.Warnings, o.Node, name)...)
	d.canaries = append(d.canaries, c)
}

// The names of the analysis.
const (
	analysisPath = "spec.analysis"
	oldAnalysis  = "spec.canaryAnalysis"
)

// modern returns n with its analysis called so, and whether it had the old
// name. Aliases may share n, which stays as it is.
func modern(n *document.Node) (*document.Node, bool) {
	if given(n.At("spec", "analysis")) || !given(n.At("spec", "canaryAnalysis")) {
		return n, false
	}
	top, spec := *n, *n.At("spec")
	top.Fields, spec.Fields = slices.Clone(top.Fields), slices.Clone(spec.Fields)
	spec.Fields = slices.DeleteFunc(spec.Fields, func(f document.Field) bool { return f.Name == "analysis" && !given(f.Value) })
	for i := range spec.Fields {
		if spec.Fields[i].Name == "canaryAnalysis" {
			spec.Fields[i].Name = "analysis"
		}
	}
	i := slices.IndexFunc(top.Fields, func(f document.Field) bool { return f.Name == "spec" })
	top.Fields[i].Value = &spec
	return &top, true
}

func given(n *document.Node) bool { return n != nil && n.Kind != document.Null }

// spellOld names the analysis in findings as the document does.
func spellOld(found *document.Findings) {
	for _, e := range found.Errors {
		if rest, inside := strings.CutPrefix(e.Field, analysisPath); inside {
			e.Field = oldAnalysis + rest
		}
	}
}

// fieldRule says of a field of a manifest what Go types do not. Some fields
// without a Go field, and all within metadata, status and service, are the cluster's.
func fieldRule(path string) document.Rule {
	if rule, found := fieldRules[path]; found {
		return rule
	}
	if name, found := strings.CutPrefix(path, "spec.analysis.match[]."); found && slices.Contains(meshFields, name) {
		return document.Rule{Shape: anything, Warning: "has no effect: outside of a mesh requests are matched by headers only"}
	}
	parent, name := path[:max(0, strings.LastIndexByte(path, '.'))], path[strings.LastIndexByte(path, '.')+1:]
	switch parent {
	case "":
		return document.Rule{Ignored: name == "status"}
	case "spec":
		return document.Rule{Ignored: slices.Contains(clusterFields, name)}
	}
	return document.Rule{Ignored: !strings.HasPrefix(path, analysisPath+".")}
}

// clusterFields are the fields of spec that mean nothing without a cluster.
var clusterFields = []string{"autoscalerRef", "upstreamRef", "revertOnDeletion"}

var fieldRules = map[string]document.Rule{
	oldAnalysis: {Shape: anything, Warning: "has no effect: spec.analysis wins; remove it"},

	"spec.analysis.interval":           {Text: positive, Instead: "the default is used, 60s"},
	"spec.analysis.metrics[].interval": {Text: positive, Instead: "the default is used, 1m"},
	"spec.analysis.webhooks[].timeout": {Text: positive, Instead: "the default is used, 10s"},

	"spec.analysis.sessionAffinity": {Shape: mapping,
		Warning: "has no effect: the requests of one user may go to the primary and to the canary"},
}

var (
	anything = reflect.TypeFor[json.RawMessage]()
	mapping  = reflect.TypeFor[map[string]json.RawMessage]()
)

// meshFields are the conditions of a match that a mesh knows.
var meshFields = []string{
	"sourceLabels", "sourceNamespace", "gateways", "name", "uri", "ignoreUriCase", "scheme", "method", "authority", "port", "queryParams",
	"withoutHeaders", "statPrefix",
}

// positive refuses a time span of nothing, which the reference takes for one
// without an end.
func positive(text string) error {
	if d, err := document.ParseDuration(text); err == nil && d == 0 {
		return errors.New("must be longer than " + document.Quote(text))
	}
	return nil
}
