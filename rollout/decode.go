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

// A DocumentError describes a defect of a canary: where it is and which rule it breaks:
//
//	File     string // name of the file, "-" for standard input; "" for a canary made in Go
//	Document int    // 1-based, 0 if the error is not about one document
//	Line     int    // of the file, 1-based; 0 if unknown
//	Object   string // Canary/NAMESPACE/NAME as far as known
//	Field    string // path of the field, for example spec.analysis.webhooks[0].url
//	Err      error  // the rule, which Unwrap returns
//
// Its text is FILE:LINE: document N: OBJECT: FIELD: RULE, without unknown parts
// and with control characters replaced.
type DocumentError = document.Error

// Decode reads the Canary manifests from a stream of YAML documents or JSON
// values, including those within lists: kind Canary of [Group] in version v1beta1,
// or of [ReferenceGroup] in version v1beta1 or v1alpha3. Documents of other kinds
// are skipped. If the apiVersion or kind is within two letters of one of a rollout,
// or the group is missing, that is a defect.
//
// spec.analysis, or spec.canaryAnalysis, its old name, is read strictly: unknown
// fields, duplicate fields and values of another type are defects. Fields of
// [CanarySpec] must have the types it declares. Fields that only a cluster uses are
// ignored; other unknown fields of spec and of the top level are defects.
//
// The error joins one [*DocumentError] for each defect. Canaries with defects are
// left out; the others are returned with the error. Warnings are
// [*DocumentError] as well: they report values that [Canary.Check] refuses, and
// fields that have no effect or not the expected one.
//
// A stream has at most 64 MiB, a document 3 MiB.
func Decode(file string, r io.Reader) (canaries []*Canary, warnings []error, err error) {
	stream, err := document.Open(file, r)
	if err != nil {
		return nil, nil, err
	}
	d := &decoding{Stream: stream, positions: make(map[string]string)}
	for o := range stream.Objects() {
		if served[o.Group] != nil && strings.EqualFold(o.Type, kindCanary) {
			d.decodeCanary(o)
		} else if suggestion := document.Suggest(o, known); suggestion != "" {
			d.Fail(o.Node, o.Name(o.Type, DefaultNamespace), "%s %s is not known: did you mean %s?", document.Quote(o.APIVersion()), document.Quote(o.Type), suggestion)
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

// known lists the kinds of documents of a rollout. Other packages read those that are not canaries.
var known = []document.Known{
	{Group: ReferenceGroup, Version: "v1beta1", Kinds: []string{kindCanary, "MetricTemplate", "AlertProvider"}},
	{Group: Group, Version: "v1beta1", Kinds: []string{kindCanary, "MetricTemplate", "AlertProvider"}},
}

// decoding is the state of decoding one stream.
type decoding struct {
	*document.Stream
	canaries  []*Canary
	warnings  []error
	positions map[string]string // where each canary was found, by name
}

// decodeCanary reads one canary.
func (d *decoding) decodeCanary(o document.Object) {
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
	n, old := renameOldAnalysis(o.Node)
	dec.Decode(n, c, "")
	found := examine(c)
	dec.Adopt(&found[invalid])
	for _, e := range append(found[broken].Errors, found[advice].Errors...) {
		dec.Warnings.Note(e)
	}
	if old {
		dec.Warnings.Add(analysisPath, "is an old name: write spec.analysis")
		restoreOldName(&dec.Findings)
		restoreOldName(&dec.Warnings)
	}
	d.Note(d.Locate(&dec.Findings, o.Node, name)...)
	if len(dec.Errors) > 0 {
		return
	}
	if first := d.positions[name]; first != "" {
		d.Fail(o.Node, name, "is in %s already: remove one of the two", first)
		return
	}
	d.positions[name] = fmt.Sprintf("%s:%d (document %d)", d.File, o.Node.Line, d.Number)
	d.warnings = append(d.warnings, d.Warn(&dec.Warnings, o.Node, name)...)
	d.canaries = append(d.canaries, c)
}

// The paths of the analysis.
const (
	analysisPath = "spec.analysis"
	oldAnalysis  = "spec.canaryAnalysis"
)

// renameOldAnalysis returns n with spec.canaryAnalysis renamed to spec.analysis, and whether
// n had the old name. It does not modify n, since aliases may share it.
func renameOldAnalysis(n *document.Node) (*document.Node, bool) {
	if isSet(n.At("spec", "analysis")) || !isSet(n.At("spec", "canaryAnalysis")) {
		return n, false
	}
	top, spec := *n, *n.At("spec")
	top.Fields, spec.Fields = slices.Clone(top.Fields), slices.Clone(spec.Fields)
	spec.Fields = slices.DeleteFunc(spec.Fields, func(f document.Field) bool { return f.Name == "analysis" && !isSet(f.Value) })
	for i := range spec.Fields {
		if spec.Fields[i].Name == "canaryAnalysis" {
			spec.Fields[i].Name = "analysis"
		}
	}
	i := slices.IndexFunc(top.Fields, func(f document.Field) bool { return f.Name == "spec" })
	top.Fields[i].Value = &spec
	return &top, true
}

func isSet(n *document.Node) bool { return n != nil && n.Kind != document.Null }

// restoreOldName changes spec.analysis in findings to the old name, which the document uses.
func restoreOldName(found *document.Findings) {
	for _, e := range found.Errors {
		if rest, inside := strings.CutPrefix(e.Field, analysisPath); inside {
			e.Field = oldAnalysis + rest
		}
	}
}

// fieldRule returns the decoding rule of a field beyond its Go type. It ignores
// fields without a Go field that only a cluster uses, which includes all such
// fields within metadata, status and service.
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

// clusterFields lists the fields of spec that have no meaning without a cluster.
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

// meshFields lists the conditions of a match that only a mesh supports.
var meshFields = []string{
	"sourceLabels", "sourceNamespace", "gateways", "name", "uri", "ignoreUriCase", "scheme", "method", "authority", "port", "queryParams",
	"withoutHeaders", "statPrefix",
}

// positive refuses a time span of zero, which the reference implementation treats
// as unlimited.
func positive(text string) error {
	if d, err := document.ParseDuration(text); err == nil && d == 0 {
		return errors.New("must be longer than " + document.Quote(text))
	}
	return nil
}
