package schema

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

// A column is a column in the output of kubectl get.
type column struct{ name, kind, path string }

var (
	age    = column{"Age", "date", ".metadata.creationTimestamp"}
	ready  = column{"Ready", "string", `.status.conditions[?(@.type=="Ready")].status`}
	status = column{"Status", "string", `.status.conditions[?(@.type=="Ready")].message`}
	url    = column{"URL", "string", ".spec.url"}
)

// columns are the columns of the reference's definitions.
var columns = map[string][]column{
	"Bucket":        {{"Endpoint", "string", ".spec.endpoint"}, age, ready, status},
	"GitRepository": {url, age, ready, status},
	"OCIRepository": {url, ready, status, age},
	"PkgRepository": {url, age, ready, status},
	"PkgChart": {
		{"Chart", "string", ".spec.chart"}, {"Version", "string", ".spec.version"},
		{"Source Kind", "string", ".spec.sourceRef.kind"}, {"Source Name", "string", ".spec.sourceRef.name"}, age, ready, status,
	},
	"ExternalArtifact": {age, ready, status, {"Source", "string", ".spec.sourceRef.name"}},
}

// categories are names for all kinds at once, as in kubectl get fluxcd-sources.
var categories = map[string][]string{
	source.Group:          {"all", "headgate", "headgate-sources"},
	source.ReferenceGroup: {"all", "fluxcd", "fluxcd-sources"},
}

// Definitions returns the CustomResourceDefinition of each kind in a group, which must be
// [source.Group] or [source.ReferenceGroup], as objects that package json can encode. Version v1 is
// stored; if beta is true, v1beta2 is served as well. Both versions then have the fields of both,
// because the API server does not convert them, and drops fields that the schema of the requested
// version lacks.
func Definitions(group string, beta bool) ([]map[string]any, error) {
	if group != source.Group && group != source.ReferenceGroup {
		return nil, fmt.Errorf("there is no group %q", group)
	}
	var all []map[string]any
	for _, k := range source.Kinds(group) {
		served := []string{source.V1}
		if beta {
			served = k.Versions
		}
		var versions []object
		for _, name := range served {
			v := version(k.Name, name, served[len(served)-1])
			if name != source.V1 {
				v["deprecated"] = true
			}
			versions = append(versions, v)
		}
		all = append(all, object{
			"apiVersion": "apiextensions.k8s.io/v1",
			"kind":       "CustomResourceDefinition",
			"metadata":   object{"name": k.Plural + "." + group},
			"spec": object{
				"group": group,
				"scope": "Namespaced",
				"names": object{
					"kind": k.Spelling, "listKind": k.Spelling + "List", "singular": strings.ToLower(k.Spelling), "plural": k.Plural, "shortNames": k.Short,
					"categories": categories[group],
				},
				"versions": versions,
			},
		})
	}
	return all, nil
}

// YAML returns the result of [Definitions] as a stream of YAML documents.
func YAML(group string, beta bool) ([]byte, error) {
	all, err := Definitions(group, beta)
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, definition := range all {
		if err == nil {
			err = enc.Encode(definition)
		}
	}
	return out.Bytes(), err
}

// version returns the definition of version name, with the fields of version fields.
func version(kind, name, fields string) object {
	g := generator{facts: source.Facts(kind), version: fields}
	schema := g.valueSchema(typeOf(kind), "")
	properties := schema["properties"].(object)
	for _, field := range []string{"apiVersion", "kind"} {
		properties[field] = object{"type": "string"}
	}
	properties["metadata"] = object{"type": "object"}
	properties["status"].(object)["default"] = object{"observedGeneration": -1}
	schema["required"] = slices.DeleteFunc(schema["required"].([]string), func(name string) bool { return name != "spec" })
	spec := properties["spec"].(object)
	var rules []object
	for at, must := range g.conditional(schema) {
		rules = append(rules, object{"rule": celRule(spec, strings.TrimPrefix(at, "spec."), must), "message": at + " " + must.Message})
	}
	if rules != nil {
		spec["x-kubernetes-validations"] = rules
	}
	printed := make([]object, len(columns[kind]))
	for i, c := range columns[kind] {
		printed[i] = object{"name": c.name, "type": c.kind, "jsonPath": c.path}
	}
	return object{
		"name": name, "served": true, "storage": name == source.V1,
		"schema":                   object{"openAPIV3Schema": schema},
		"subresources":             object{"status": object{}},
		"additionalPrinterColumns": printed,
	}
}

// celRule returns the CEL expression that is true if a spec satisfies must at a path.
func celRule(spec object, path string, must document.Requirement) string {
	var exceptions []string
	for _, c := range must.When {
		at := strings.TrimPrefix(c.At, "spec.")
		holds := isSet(spec, at)
		switch {
		case slices.Contains(c.Is, ""):
			holds = "!(" + has(at) + ") || " + among(at, c.Is)
		case c.Is != nil:
			holds = has(at) + " && " + among(at, c.Is)
		}
		if !c.Not {
			holds = "!(" + holds + ")"
		}
		exceptions = append(exceptions, holds)
	}
	if i := strings.LastIndexByte(path, '.'); i > 0 {
		exceptions = append(exceptions, "!("+has(path[:i])+")")
	}
	wanted := isSet(spec, path)
	switch texts, _ := must.Schema["enum"].([]string); {
	case must.Refused:
		wanted = "!(" + wanted + ")"
	case must.Required:
	case texts != nil:
		wanted = "!(" + has(path) + ") || " + among(path, texts)
	default:
		wanted = fmt.Sprintf("!(%s) || self.%s.matches(%q)", has(path), path, must.Schema["pattern"])
	}
	return strings.Join(append(exceptions, wanted), " || ")
}

// has returns the expression for an existing field.
func has(path string) string {
	terms, names := []string{}, strings.Split(path, ".")
	for i := range names {
		terms = append(terms, "has(self."+strings.Join(names[:i+1], ".")+")")
	}
	return strings.Join(terms, " && ")
}

// isSet returns the expression for an existing field that is not empty.
func isSet(spec object, path string) string {
	if find(spec, path)["type"] == "object" {
		return has(path)
	}
	return has(path) + " && size(self." + path + ") > 0"
}

func among(path string, texts []string) string {
	return "self." + path + " in ['" + strings.Join(texts, "', '") + "']"
}
