// Package schematest compares the errors of package source about documents with those of
// the schemas: it makes random documents, compiles the schemas, and sorts out the errors
// that no schema can find.
package schematest

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

// SchemaTexts returns the JSON Schema of each kind and version by KIND/VERSION, and that of all kinds by /VERSION.
func SchemaTexts(t testing.TB) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	for _, k := range slices.Concat(source.Kinds(source.Group), source.Kinds(source.GeneratorGroup), []source.Kind{{Versions: []string{source.V1, source.V1Beta2}}}) {
		for _, version := range k.Versions {
			text, err := schema.JSON(k.Name, version)
			if err != nil {
				t.Fatal(err)
			}
			all[k.Name+"/"+version] = text
		}
	}
	return all
}

// Compile returns the schemas of [SchemaTexts], compiled.
func Compile(t testing.TB) map[string]*jsonschema.Schema {
	t.Helper()
	all := map[string]*jsonschema.Schema{}
	for name, text := range SchemaTexts(t) {
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err == nil {
			err = c.AddResource(name, value)
		}
		if err == nil {
			all[name], err = c.Compile(name)
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return all
}

// ExpressibleErrors returns the errors in joinedErr that a schema can find as well. joinedErr joins
// errors about an object, and text is the object as JSON.
func ExpressibleErrors(kind string, text []byte, joinedErr error) []error {
	return slices.DeleteFunc(document.Split(joinedErr), func(err error) bool { return goOnly(kind, text, err) })
}

// rangeErrors are the endings of errors about values that their Go types cannot hold.
var rangeErrors = []string{"is too long: the limit is 292 years", "is no time: write it as 2006-01-02T15:04:05Z", "must be an integer of 64 bits"}

// goOnly reports whether an error about an object comes from a fact that no schema can
// express, or from the bounds of a Go type.
func goOnly(kind string, text []byte, err error) bool {
	if slices.ContainsFunc(rangeErrors, func(end string) bool { return strings.HasSuffix(err.Error(), end) }) {
		return true
	}
	obj := source.New(source.Reference{Kind: kind})
	if json.Unmarshal(text, obj) != nil {
		return false
	}
	if c, ok := obj.(*source.PkgChart); ok { // Decode also reads the field that valuesFiles replaced
		var old struct{ Spec struct{ ValuesFile string } }
		json.Unmarshal(text, &old)
		c.Spec.ValuesFiles = append([]string{old.Spec.ValuesFile}, c.Spec.ValuesFiles...)
		if c.Version() != source.V1Beta2 || old.Spec.ValuesFile == "" {
			c.Spec.ValuesFiles = c.Spec.ValuesFiles[1:]
		}
	}
	source.Default(obj)
	var facts []document.Fact
	for _, f := range source.Facts(kind) {
		f.Must = slices.DeleteFunc(slices.Clone(f.Must), func(m document.Requirement) bool { return m.Schema != nil || m.Required || m.Refused })
		if len(f.Must) > 0 {
			facts = append(facts, f)
		}
	}
	var found document.Findings
	found.Examine(obj, facts)
	var at *source.DocumentError
	return errors.As(err, &at) && slices.ContainsFunc(found.Errors, func(e *document.Error) bool {
		return e.Field == at.Field && e.Err.Error() == at.Err.Error()
	})
}

// A pool has the texts that random documents use for a field: mostly a good one.
type pool struct{ good, bad []string }

func newPool(good, bad string) pool {
	return pool{strings.Fields(good), append(strings.Fields(bad), "")}
}

// pools are the texts of fields by the ends of their paths.
var pools = map[string]pool{
	"url":                  {[]string{"https://h/x", "oci://h/x", "ssh://git@h:22/x", "https://h"}, []string{"", "ftp://h/x", "oci://h/x:v1", "https:///x", "https://h/x\ny", "https://u:p@h/"}},
	"provider":             newPool("generic aws gcp azure generic generic", "github x"),
	"sts.provider":         newPool("aws ldap webidentity", "x"),
	"verify.provider":      newPool("cosign notation cosign", "gpg"),
	"verify.mode":          newPool("head HEAD Tag TagAndHEAD", "Commit"),
	"kind":                 newPool("HelmRepository PkgRepository GitRepository Bucket OCIRepository PkgChart HelmChart ExternalArtifact", "Cat"),
	"name":                 newPool("a a.b 0-1", "A -a a_b ../x"),
	"namespace":            newPool("default a", "a.b A"),
	"serviceAccountName":   newPool("sa", "S_A"),
	"interval":             newPool("1m 1h30m 1.5h", "1d -1s 1us"),
	"timeout":              newPool("1m 90s 1.5m", "1h 1d"),
	"type":                 newPool("default oci", "git"),
	"operation":            newPool("copy extract", "untar"),
	"reconcileStrategy":    newPool("ChartVersion Revision", "Always"),
	"branch":               newPool("main feature/x a@b", "-x /a a..b a.lock a^ @{ a//b .a a/.b a. a/ a.lock/b"),
	"ref.name":             newPool("refs/heads/main HEAD refs/tags/v1^{} refs/heads/@", "@ a..b a^b ^{} a^{}^{} a.lock^{} a/^{} @^{} a^"),
	"commit":               {[]string{strings.Repeat("a", 40), strings.Repeat("B", 64)}, []string{"0123abcd", strings.Repeat("a", 41)}},
	"semver":               newPool(">=1.0.0 1.x *", "latest"),
	"version":              newPool(">=1.0.0 1.x *", "latest"),
	"semverFilter":         newPool("^v .*", "("),
	"issuer":               newPool("^https .*", "["),
	"subject":              newPool("^repo .*", "["),
	"tag":                  newPool("v1 1.0", "a/b a..b -a"),
	"digest":               {[]string{"sha256:" + strings.Repeat("0", 64)}, []string{"sha256:0", "sha256", "SHA256:00"}},
	"chart":                newPool("app charts/app", "../x a/../../b"),
	"endpoint":             newPool("minio:9000 h https://h", "h/b h? http://h"),
	"bucketName":           newPool("b b.c $web", `a/b a\b .. a?b`),
	"valuesFiles[]":        newPool("values.yaml ./a source:app/a", "../a source:app source:Cat/a/b"),
	"sparseCheckout[]":     newPool("a ./a a/b.. .", `/a ../b a\b a/../b`),
	"fromPath":             newPool("a ./a/../b /x", `../a a\b`),
	"gitImplementation":    newPool("go-git libgit2", "gogit"),
	"creationTimestamp":    newPool("2026-01-02T03:04:05Z", "now"),
	"lastUpdateTime":       newPool("2026-01-02T03:04:05Z", "now"),
	"lastTransitionTime":   newPool("2026-01-02T03:04:05Z", "now"),
	"deletionTimestamp":    newPool("2026-01-02T03:04:05Z", "now"),
	"metadata.labels[]":    newPool("a A_b.c", "-a a/b"),
	"generateName":         newPool("a-", ""),
	"controller":           newPool("a", ""),
	"alias":                newPool("a a a b c_1", "A a- -a"),
	"sources[].kind":       newPool("GitRepository Bucket HelmChart ExternalArtifact", "HelmRepository"),
	"sources[].namespace":  newPool("a default", "A a.b"),
	"revision":             newPool("@a", "a @ @A"),
	"originRevision":       newPool("@a", "a @ @A"),
	"from":                 newPool("@a/x @a/** @a/{x,y}/*", "a/x @a @a/../x @a/[ @a/{x"),
	"to":                   newPool("@artifact/ @artifact/x", `artifact/ @artifact @artifact/../x @artifact/a\b`),
	"exclude[]":            newPool("*.md x/**", "[ ../x"),
	"strategy":             newPool("Overwrite Merge Extract", "Join"),
	"labels":               newPool("a a.b/c", "A.B/c -a a/b/c"), // its keys
	"labels[]":             newPool("a A_b.c", "-a a/b"),
	"annotations":          newPool("a a.b/c", "-a a/b/c"),
	"":                     {[]string{"a", "x y", ""}, []string{"a\x00b", "ü", "-"}},
	"metadata.labels":      newPool("a a.b/c", "A.B/c -a a/b/c"), // its keys
	"metadata.annotations": newPool("a a.b/c A.B/c", "-a a/b/c"),
}

// poolOf returns the texts of the field at a path.
func poolOf(path string) pool {
	best := ""
	for end := range pools {
		if len(end) > len(best) && (path == end || strings.HasSuffix(path, "."+end)) {
			best = end
		}
	}
	return pools[best]
}

// Generator makes documents. A seed always makes the same ones.
type Generator struct{ *rand.Rand }

func (r Generator) pick(texts []string) string { return texts[r.IntN(len(texts))] }

func (r Generator) text(path string) string {
	p := poolOf(path)
	if r.IntN(40) == 0 {
		return r.pick(p.bad)
	}
	return r.pick(p.good)
}

// value returns a value of a type, or sometimes one of another.
func (r Generator) value(t reflect.Type, path string) any {
	if r.IntN(400) == 0 {
		return []any{nil, 1, 1.5, "text", true, []any{}, map[string]any{}}[r.IntN(7)]
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		return []any{"a", 1}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[interface{ UnmarshalText([]byte) error }]()):
		return r.text(path)
	}
	switch t.Kind() {
	case reflect.Struct:
		return r.structure(t, path)
	case reflect.Slice:
		items := make([]any, r.IntN(3))
		if slices.Contains([]string{"spec.sources", "spec.artifacts", "spec.artifacts[].copy"}, path) && r.IntN(20) > 0 { // these need at least one item
			items = make([]any, 1+r.IntN(2))
		}
		for i := range items {
			items[i] = r.value(t.Elem(), path+"[]")
		}
		return items
	case reflect.Map:
		items := map[string]any{}
		for range r.IntN(3) {
			items[r.text(path)] = r.value(t.Elem(), path+"[]")
		}
		return items
	case reflect.Bool:
		return r.IntN(2) == 0
	case reflect.Int64:
		return r.IntN(100)
	}
	return r.text(path)
}

func (r Generator) structure(t reflect.Type, path string) map[string]any {
	fields, out := document.FieldsOf(t), map[string]any{}
	names := make([]string, 0, len(fields.Index))
	for name := range fields.Index {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		at := strings.TrimPrefix(path+"."+name, ".")
		needed := slices.Contains(fields.Required, name) || at == "metadata.name"
		if needed && r.IntN(60) > 0 || r.IntN(5) == 0 {
			out[name] = r.value(t.FieldByIndex(fields.Index[name]).Type, at)
		}
	}
	if r.IntN(60) == 0 {
		out["colour"] = "red"
	}
	return out
}

// Document returns a document of a kind in a version, of one of its groups, in either spelling of the kind.
func (r Generator) Document(k source.Kind, version string) map[string]any {
	doc := r.structure(reflect.TypeOf(source.New(source.Reference{Kind: k.Name})).Elem(), "")
	groups := []string{source.Group, source.ReferenceGroup}
	if version == source.GeneratorVersion {
		groups = []string{source.GeneratorGroup}
	}
	doc["apiVersion"] = r.pick(groups) + "/" + version
	doc["kind"] = r.pick([]string{k.Name, k.Spelling})
	if version != source.V1Beta2 {
		return doc
	}
	retired := deprecatedFields(k.Name)
	for _, path := range slices.Sorted(maps.Keys(retired)) { // so that a seed gives one document
		parent, name, _ := strings.Cut(path, ".")
		if at, ok := doc[parent].(map[string]any); ok && r.IntN(8) == 0 {
			at[name] = r.value(retired[path], path)
		}
	}
	return doc
}

// deprecatedFields returns the deprecated fields of spec and status that have no Go field.
func deprecatedFields(kind string) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range source.Facts(kind) {
		if f.Shape != nil && strings.Count(f.At, ".") == 1 {
			all[f.At] = f.Shape
		}
	}
	return all
}
