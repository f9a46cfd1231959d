// Package schema expresses the rules of package source for its kinds as schemas: as JSON Schema
// (draft 2020-12) for editors and pipelines, and as custom resource definitions for an API server.
//
// Both are generated from the Go types and from the facts that [source.Validate] checks: Validate
// refuses every document that a schema refuses. Some rules can only be checked in Go, such as
// whether a text is a regular expression or a version range, so Validate may refuse a document that
// a schema accepts.
package schema

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
)

type object = map[string]any

// JSON returns the JSON Schema of a kind in a version, or of all kinds in it if kind is empty, as
// indented text. It accepts documents of both groups and both spellings of the kind.
// ArtifactGenerator has only one version, which is used for any requested version.
func JSON(kind, version string) ([]byte, error) {
	var refs []object
	definitions := object{}
	for _, k := range slices.Concat(source.Kinds(source.Group), source.Kinds(source.GeneratorGroup)) {
		of := version
		if k.Versions[0] == source.GeneratorVersion { // its only version
			of = source.GeneratorVersion
		}
		if slices.Contains(k.Versions, of) && (kind == "" || kind == k.Name) {
			definitions[k.Name] = documents(k.Name, of)
			refs = append(refs, object{"$ref": "#/$defs/" + k.Name})
		}
	}
	if refs == nil {
		return nil, fmt.Errorf("there is no kind %q in version %q", kind, version)
	}
	properties := object{"apiVersion": object{"enum": []string{"v1"}}, "kind": object{"enum": []string{"Secret", "ServiceAccount"}}} // may be in a file with sources
	definitions["Secrets"] = object{"type": "object", "required": []string{"apiVersion", "kind"}, "properties": properties}
	refs = append(refs, object{"$ref": "#/$defs/Secrets"})
	out := object{"title": "Sources of headgate, " + version, "oneOf": refs, "$defs": definitions}
	if kind != "" {
		out = definitions[kind].(object)
	}
	out["$id"] = URL(kind, version)
	out["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(out)
	return text.Bytes(), err
}

// URL returns the URL at which the result of [JSON] is published, which is also its $id.
func URL(kind, version string) string {
	return "https://raw.githubusercontent.com/headgate-io/headgate/main/docs/schemas/" + strings.ToLower(cmp.Or(kind, "all")) + "_" + version + ".json"
}

// documents returns the JSON Schema for the documents of a kind.
func documents(kind, version string) object {
	g := generator{facts: source.Facts(kind), version: version, strict: true}
	out := g.valueSchema(typeOf(kind), "")
	properties := out["properties"].(object)
	versions := []string{source.Group + "/" + version, source.ReferenceGroup + "/" + version}
	if version == source.GeneratorVersion {
		versions = []string{source.GeneratorGroup + "/" + version}
	}
	properties["apiVersion"] = object{"type": "string", "enum": versions}
	properties["kind"] = object{"type": "string", "enum": source.Spellings(kind)}
	out["title"] = kind + ", " + version
	var rules []object
	for at, must := range g.conditional(out) {
		conditions := make([]object, len(must.When))
		for i, c := range must.When {
			conditions[i] = condition(c)
		}
		rules = append(rules, object{"$comment": at + " " + must.Message, "if": object{"allOf": conditions}, "then": requirement(at, must)})
	}
	if rules != nil {
		out["allOf"] = rules
	}
	return out
}

func typeOf(kind string) reflect.Type {
	return reflect.TypeOf(source.New(source.Reference{Kind: kind})).Elem()
}

// A generator generates schemas from Go types and facts.
type generator struct {
	facts   []document.Fact
	version string
	strict  bool // JSON Schema, which refuses unknown fields and accepts null for a missing one; else the schema of an API server
}

// factsAt returns the facts about the field at a path.
func (g *generator) factsAt(path string) (facts []document.Fact) {
	for _, f := range g.facts {
		if f.At == path && f.Field == "" {
			facts = append(facts, f)
		}
	}
	return facts
}

// exists reports whether the version has the field at a path. In a cluster, v1beta2 also has the
// fields of v1: a client that reads and writes it must not remove them.
func (g *generator) exists(path string) bool {
	return !slices.ContainsFunc(g.factsAt(path), func(f document.Fact) bool {
		return f.Only != "" && f.Only != g.version && (g.strict || f.Only != source.V1)
	})
}

// valueSchema returns the schema for values of a type at a path.
func (g *generator) valueSchema(t reflect.Type, path string) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	out := g.typeSchema(t, path)
	keywords := object{}
	for _, fact := range g.factsAt(path) {
		if text, ok := fact.Default.(string); ok {
			out["default"] = text
		} else if d, ok := fact.Default.(source.Duration); ok {
			out["default"] = d.String()
		}
		for _, must := range fact.Must {
			if must.When == nil {
				combine(keywords, must.Schema)
			}
		}
	}
	maps.Copy(out, keywords)
	return out
}

// combine adds keywords to a schema. Existing ones stay.
func combine(out, keywords object) {
	for key, value := range keywords {
		if old, found := out[key]; !found {
			out[key] = value
		} else if !reflect.DeepEqual(old, value) {
			all, _ := out["allOf"].([]object)
			out["allOf"] = append(all, object{key: value})
		}
	}
}

// typeSchema returns the schema of the type alone.
func (g *generator) typeSchema(t reflect.Type, path string) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[source.Duration]():
		return object{"type": "string", "pattern": document.DurationForm}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return object{"type": "string"}
	}
	switch t.Kind() {
	case reflect.Struct:
		return g.structSchema(t, path)
	case reflect.Slice:
		return object{"type": "array", "items": g.valueSchema(t.Elem(), path+"[]")}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": g.valueSchema(t.Elem(), path+"[]")}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Int64:
		return object{"type": "integer", "format": "int64"}
	}
	return object{"type": "string"}
}

func (g *generator) structSchema(t reflect.Type, path string) object {
	prefix := strings.TrimPrefix(path+".", ".")
	fields, properties := document.FieldsOf(t), object{}
	for name, index := range fields.Index {
		if g.exists(prefix + name) {
			properties[name] = g.valueSchema(t.FieldByIndex(index).Type, prefix+name)
		}
	}
	required := slices.DeleteFunc(slices.Clone(fields.Required), func(name string) bool {
		return slices.ContainsFunc(g.factsAt(prefix+name), func(f document.Fact) bool { return f.Optional == g.version })
	})
	for _, f := range g.facts {
		name, below := strings.CutPrefix(f.At, prefix)
		switch {
		case !below || strings.ContainsAny(name, ".["):
		case f.Shape != nil && f.Only == g.version:
			retired := g.valueSchema(f.Shape, f.At)
			if retired["description"] = f.Warning; g.strict {
				retired["deprecated"] = true
			}
			properties[name] = retired
		case slices.ContainsFunc(f.Must, func(m document.Requirement) bool { return m.Required && m.When == nil }):
			required = append(required, name)
		}
	}
	out := object{"type": "object", "properties": properties}
	if len(required) > 0 {
		slices.Sort(required)
		out["required"] = required
	}
	if g.strict {
		out["additionalProperties"] = false
		for name, property := range properties {
			if !slices.Contains(required, name) {
				nullable(property.(object))
			}
		}
	}
	return out
}

// nullable makes a schema accept null.
func nullable(schema object) {
	if kind, ok := schema["type"].(string); ok {
		schema["type"] = []string{kind, "null"}
	}
	if texts, ok := schema["enum"].([]string); ok {
		schema["enum"] = values(texts, true)
	}
	if refused, ok := schema["not"].(object); ok { // null does not match the pattern either
		schema["not"] = object{"type": "string", "pattern": refused["pattern"]}
	}
}

// values returns the values of an enumeration of texts, and null.
func values(texts []string, null bool) (all []any) {
	for _, text := range texts {
		all = append(all, text)
	}
	if null {
		all = append(all, nil)
	}
	return all
}

// conditional yields the requirements that have conditions, each with its path, if a schema can
// express them and the schema of the kind has the field.
func (g *generator) conditional(schema object) func(func(string, document.Requirement) bool) {
	return func(yield func(string, document.Requirement) bool) {
		for _, f := range g.facts {
			for _, must := range f.Must {
				if must.When == nil || !must.Required && !must.Refused && must.Schema == nil || f.Field != "" || find(schema, f.At) == nil {
					continue
				}
				if !yield(f.At, must) {
					return
				}
			}
		}
	}
}

// find returns the schema of the field at a path, nil if there is none.
func find(schema object, path string) object {
	for name := range strings.SplitSeq(path, ".") {
		properties, _ := schema["properties"].(object)
		if schema, _ = properties[name].(object); schema == nil {
			return nil
		}
	}
	return schema
}

// nest returns a schema of the object that applies inner to the field at a path. If required, the
// field must exist.
func nest(path string, inner object, required bool) object {
	names := strings.Split(path, ".")
	for _, name := range slices.Backward(names) {
		inner = object{"properties": object{name: inner}}
		if required {
			inner["required"] = []string{name}
		}
	}
	return inner
}

// condition returns a schema that matches the objects for which c holds.
func condition(c document.Condition) (out object) {
	switch {
	case c.Is == nil:
		out = nest(c.At, object{"type": []string{"object", "array", "string"}, "minLength": 1, "minItems": 1}, true)
	default:
		missing := slices.Contains(c.Is, "")
		out = nest(c.At, object{"enum": values(c.Is, missing)}, !missing)
	}
	if c.Not {
		return object{"not": out}
	}
	return out
}

// requirement returns a schema that matches the objects that satisfy must at a path.
func requirement(path string, must document.Requirement) object {
	switch {
	case must.Refused:
		return nest(path, object{"type": []string{"array", "string", "null"}, "maxItems": 0, "maxLength": 0}, false)
	case must.Required:
		i := strings.LastIndexByte(path, '.')
		return nest(path[:i], nest(path[i+1:], object{"type": []string{"object", "array", "string"}, "minItems": 1, "minLength": 1}, true), false)
	}
	return nest(path, must.Schema, false)
}
