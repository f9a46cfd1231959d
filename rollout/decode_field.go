package rollout

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/internal/document"
)

// fieldRule says of a field of a manifest what Go types do not. Some fields
// without a Go field, and all within metadata, status and service, are the cluster's.
func fieldRule(path string) document.Rule {
	if rule, found := fieldRules[path]; found {
		return rule
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

	"spec.analysis.match[].sourceLabels":    meshOnly,
	"spec.analysis.match[].sourceNamespace": meshOnly,
	"spec.analysis.match[].gateways":        meshOnly,
	"spec.analysis.match[].name":            meshOnly,
	"spec.analysis.match[].uri":             meshOnly,
	"spec.analysis.match[].ignoreUriCase":   meshOnly,
	"spec.analysis.match[].scheme":          meshOnly,
	"spec.analysis.match[].method":          meshOnly,
	"spec.analysis.match[].authority":       meshOnly,
	"spec.analysis.match[].port":            meshOnly,
	"spec.analysis.match[].queryParams":     meshOnly,
	"spec.analysis.match[].withoutHeaders":  meshOnly,
	"spec.analysis.match[].statPrefix":      meshOnly,
}

var (
	anything = reflect.TypeFor[json.RawMessage]()
	mapping  = reflect.TypeFor[map[string]json.RawMessage]()
)

// meshOnly is the rule of a condition that a mesh knows.
var meshOnly = document.Rule{Shape: anything, Warning: "has no effect: outside of a mesh requests are matched by headers only"}

// positive refuses a time span of nothing, which the reference takes for one
// without an end.
func positive(text string) error {
	if d, err := document.ParseDuration(text); err == nil && d == 0 {
		return errors.New("must be longer than " + document.Quote(text))
	}
	return nil
}
