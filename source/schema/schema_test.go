package schema_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/tools/txtar"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

var update = flag.Bool("update", false, "write docs/schemas anew")

// compiled returns the schema of each kind and version, by KIND/VERSION, and that of
// all kinds by /VERSION.
func compiled(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	all := map[string]*jsonschema.Schema{}
	for name, text := range texts(t) {
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

// texts returns the schemas by KIND/VERSION.
func texts(t *testing.T) map[string][]byte {
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

// TestFiles compares docs/schemas with what the package makes.
func TestFiles(t *testing.T) {
	const dir = "../../docs/schemas"
	files := map[string]bool{}
	for name, text := range texts(t) {
		kind, version, _ := strings.Cut(name, "/")
		if kind == "" {
			kind = "all"
		}
		file := filepath.Join(dir, strings.ToLower(kind)+"_"+version+".json")
		files[file] = true
		if *update {
			if err := os.WriteFile(file, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if there, err := os.ReadFile(file); err != nil || !bytes.Equal(there, text) {
			t.Errorf("%s is not what the package makes (%v): run this test with -update", file, err)
		}
	}
	there, _ := filepath.Glob(dir + "/*")
	for _, file := range there {
		if !files[file] {
			t.Errorf("%s is no schema of a kind", file)
		}
	}
	for _, name := range []string{"Secret", "ExternalArtifact"} {
		if _, err := schema.JSON(name, source.V1Beta2); err == nil {
			t.Errorf("a schema of %s in v1beta2", name)
		}
	}
}

// A judge compares what source and the schemas say of documents.
type judge struct {
	schemas     map[string]*jsonschema.Schema
	good, wrong int
}

// object judges an object, as JSON, of one of the groups.
func (j *judge) object(t *testing.T, text []byte, apiVersion, spelling string) {
	t.Helper()
	kind, known := source.ParseKind(spelling)
	_, version, _ := strings.Cut(apiVersion, "/")
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiled := j.schemas[kind+"/"+version]
	if !known || compiled == nil {
		compiled = j.schemas["/"+source.V1]
	}
	refused := compiled.Validate(value)
	var set source.Set
	wrong := set.Decode("-", bytes.NewReader(text))
	switch {
	case refused != nil && wrong == nil:
		t.Errorf("valid, and refused by the schema: %v\n%s", refused, text)
	case refused == nil:
		for _, err := range split(wrong) {
			if !goOnly(kind, text, err) {
				t.Errorf("%v, and taken by the schema\n%s", err, text)
			}
		}
		fallthrough
	default:
		if general := j.schemas["/"+version]; general != nil && (general.Validate(value) == nil) != (refused == nil) {
			t.Errorf("the schema of all kinds says something else: %v\n%s", refused, text)
		}
	}
	if wrong == nil {
		j.good++
	} else {
		j.wrong++
	}
}

func split(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err != nil {
		return []error{err}
	}
	return nil
}

// bounds are the ends of errors about values that their Go types cannot hold.
var bounds = []string{"is too long: the limit is 292 years", "is no time: write it as 2006-01-02T15:04:05Z", "must be an integer of 64 bits"}

// goOnly reports whether an error about an object comes of a fact that no schema can
// say, or of the bounds of a Go type.
func goOnly(kind string, text []byte, err error) bool {
	if slices.ContainsFunc(bounds, func(end string) bool { return strings.HasSuffix(err.Error(), end) }) {
		return true
	}
	obj := source.New(source.Reference{Kind: kind})
	if json.Unmarshal(text, obj) != nil {
		return false
	}
	if c, ok := obj.(*source.PkgChart); ok { // as Decode reads what valuesFiles replaced
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
		f.Must = slices.DeleteFunc(slices.Clone(f.Must), func(m document.Must) bool { return m.Schema != nil || m.Required || m.Refused })
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

// stream judges the objects of a stream that belong to one of the groups.
func (j *judge) stream(t *testing.T, file string, text []byte) {
	t.Helper()
	s, err := document.Open(file, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for o := range s.Objects() {
		if o.Group != source.Group && o.Group != source.ReferenceGroup && o.Type != "ArtifactGenerator" {
			continue
		}
		var raw json.RawMessage
		s.Decoder(nil).Decode(o.Node, &raw, "")
		j.object(t, raw, o.APIVersion(), o.Type)
	}
}

// TestDocuments judges the documents that tests, documents and examples have.
func TestDocuments(t *testing.T) {
	j := judge{schemas: compiled(t)}
	for _, pattern := range []string{"../../testdata/sources/*.yaml", "../../testdata/sources/*/*.yaml", "../testdata/documents/*.txtar"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			archive := &txtar.Archive{}
			if strings.HasSuffix(file, ".txtar") {
				archive, err = txtar.ParseFile(file)
			} else {
				archive.Files = []txtar.File{{Name: file}}
				archive.Files[0].Data, err = os.ReadFile(file)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range archive.Files {
				j.stream(t, f.Name, f.Data)
			}
		}
	}
	if j.good < 50 || j.wrong < 10 {
		t.Errorf("%d good and %d wrong objects", j.good, j.wrong)
	}
}

// A pool is what random documents have for a field: mostly one of the good texts.
type pool struct{ good, bad []string }

func words(good, bad string) pool { return pool{strings.Fields(good), append(strings.Fields(bad), "")} }

// pools are the texts of fields by the ends of their paths.
var pools = map[string]pool{
	"url":                  {[]string{"https://h/x", "oci://h/x", "ssh://git@h:22/x", "https://h"}, []string{"", "ftp://h/x", "oci://h/x:v1", "https:///x", "https://h/x\ny", "https://u:p@h/"}},
	"provider":             words("generic aws gcp azure generic generic", "github x"),
	"sts.provider":         words("aws ldap webidentity", "x"),
	"verify.provider":      words("cosign notation cosign", "gpg"),
	"verify.mode":          words("head HEAD Tag TagAndHEAD", "Commit"),
	"kind":                 words("HelmRepository PkgRepository GitRepository Bucket OCIRepository PkgChart HelmChart ExternalArtifact", "Cat"),
	"name":                 words("a a.b 0-1", "A -a a_b ../x"),
	"namespace":            words("default a", "a.b A"),
	"serviceAccountName":   words("sa", "S_A"),
	"interval":             words("1m 1h30m 1.5h", "1d -1s 1us"),
	"timeout":              words("1m 90s 1.5m", "1h 1d"),
	"type":                 words("default oci", "git"),
	"operation":            words("copy extract", "untar"),
	"reconcileStrategy":    words("ChartVersion Revision", "Always"),
	"branch":               words("main feature/x a@b", "-x /a a..b a.lock a^ @{ a//b .a a/.b a. a/ a.lock/b"),
	"ref.name":             words("refs/heads/main HEAD refs/tags/v1^{} refs/heads/@", "@ a..b a^b ^{} a^{}^{} a.lock^{} a/^{} @^{} a^"),
	"commit":               {[]string{strings.Repeat("a", 40), strings.Repeat("B", 64)}, []string{"0123abcd", strings.Repeat("a", 41)}},
	"semver":               words(">=1.0.0 1.x *", "latest"),
	"version":              words(">=1.0.0 1.x *", "latest"),
	"semverFilter":         words("^v .*", "("),
	"issuer":               words("^https .*", "["),
	"subject":              words("^repo .*", "["),
	"tag":                  words("v1 1.0", "a/b a..b -a"),
	"digest":               {[]string{"sha256:" + strings.Repeat("0", 64)}, []string{"sha256:0", "sha256", "SHA256:00"}},
	"chart":                words("app charts/app", "../x a/../../b"),
	"endpoint":             words("minio:9000 h https://h", "h/b h? http://h"),
	"bucketName":           words("b b.c $web", `a/b a\b .. a?b`),
	"valuesFiles[]":        words("values.yaml ./a source:app/a", "../a source:app source:Cat/a/b"),
	"sparseCheckout[]":     words("a ./a a/b.. .", `/a ../b a\b a/../b`),
	"fromPath":             words("a ./a/../b /x", `../a a\b`),
	"gitImplementation":    words("go-git libgit2", "gogit"),
	"creationTimestamp":    words("2026-01-02T03:04:05Z", "now"),
	"lastUpdateTime":       words("2026-01-02T03:04:05Z", "now"),
	"lastTransitionTime":   words("2026-01-02T03:04:05Z", "now"),
	"deletionTimestamp":    words("2026-01-02T03:04:05Z", "now"),
	"metadata.labels[]":    words("a A_b.c", "-a a/b"),
	"generateName":         words("a-", ""),
	"controller":           words("a", ""),
	"alias":                words("a a a b c_1", "A a- -a"),
	"sources[].kind":       words("GitRepository Bucket HelmChart ExternalArtifact", "HelmRepository"),
	"sources[].namespace":  words("a default", "A a.b"),
	"revision":             words("@a", "a @ @A"),
	"originRevision":       words("@a", "a @ @A"),
	"from":                 words("@a/x @a/** @a/{x,y}/*", "a/x @a @a/../x @a/[ @a/{x"),
	"to":                   words("@artifact/ @artifact/x", `artifact/ @artifact @artifact/../x @artifact/a\b`),
	"exclude[]":            words("*.md x/**", "[ ../x"),
	"strategy":             words("Overwrite Merge Extract", "Join"),
	"labels":               words("a a.b/c", "A.B/c -a a/b/c"), // its keys
	"labels[]":             words("a A_b.c", "-a a/b"),
	"annotations":          words("a a.b/c", "-a a/b/c"),
	"":                     {[]string{"a", "x y", ""}, []string{"a\x00b", "ü", "-"}},
	"metadata.labels":      words("a a.b/c", "A.B/c -a a/b/c"), // its keys
	"metadata.annotations": words("a a.b/c A.B/c", "-a a/b/c"),
}

func poolOf(path string) pool {
	best := ""
	for end := range pools {
		if len(end) > len(best) && (path == end || strings.HasSuffix(path, "."+end)) {
			best = end
		}
	}
	return pools[best]
}

// random makes documents.
type random struct{ *rand.Rand }

func (r random) one(texts []string) string { return texts[r.IntN(len(texts))] }

func (r random) text(path string) string {
	p := poolOf(path)
	if r.IntN(40) == 0 {
		return r.one(p.bad)
	}
	return r.one(p.good)
}

// value returns a value of a type, or sometimes one of another.
func (r random) value(t reflect.Type, path string) any {
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
		if slices.Contains([]string{"spec.sources", "spec.artifacts", "spec.artifacts[].copy"}, path) && r.IntN(20) > 0 { // which have one
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

func (r random) structure(t reflect.Type, path string) map[string]any {
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

// TestRandom judges random documents of each kind and version.
func TestRandom(t *testing.T) {
	schemas := compiled(t)
	for _, k := range slices.Concat(source.Kinds(source.ReferenceGroup), source.Kinds(source.GeneratorGroup)) {
		groups := []string{source.Group, source.ReferenceGroup}
		if k.Versions[0] == source.GeneratorVersion {
			groups = []string{source.GeneratorGroup}
		}
		for i, version := range k.Versions {
			t.Run(k.Name+"/"+version, func(t *testing.T) {
				j := judge{schemas: schemas}
				r := random{rand.New(rand.NewPCG(uint64(len(k.Name)), uint64(i)))}
				typ := reflect.TypeOf(source.New(source.Reference{Kind: k.Name})).Elem()
				retired := retiredOf(k.Name)
				paths := slices.Sorted(maps.Keys(retired)) // so that a seed gives one document
				for range 200 {
					doc := r.structure(typ, "")
					doc["apiVersion"] = r.one(groups) + "/" + version
					doc["kind"] = r.one([]string{k.Name, k.Spelling})
					for _, path := range paths {
						parent, name, _ := strings.Cut(path, ".")
						if at, ok := doc[parent].(map[string]any); ok && version == source.V1Beta2 && r.IntN(8) == 0 {
							at[name] = r.value(retired[path], path)
						}
					}
					text, err := json.Marshal(doc)
					if err != nil {
						t.Fatal(err)
					}
					if j.object(t, text, fmt.Sprint(doc["apiVersion"]), k.Name); t.Failed() {
						return
					}
				}
				if j.good < 20 || j.wrong < 20 {
					t.Errorf("%d good and %d wrong documents", j.good, j.wrong)
				}
			})
		}
	}
}

// retiredOf returns the deprecated fields of spec and status that have no Go field.
func retiredOf(kind string) map[string]reflect.Type {
	all := map[string]reflect.Type{}
	for _, f := range source.Facts(kind) {
		if f.Shape != nil && strings.Count(f.At, ".") == 1 {
			all[f.At] = f.Shape
		}
	}
	return all
}

// TestDefinitions checks what a cluster shows of the kinds.
func TestDefinitions(t *testing.T) {
	all, err := schema.Definitions(source.ReferenceGroup, true)
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]string{ // as source-controller v1.9.5 has them
		"Age": "date .metadata.creationTimestamp", "Ready": `string .status.conditions[?(@.type=="Ready")].status`, "Status": `string .status.conditions[?(@.type=="Ready")].message`,
		"URL": "string .spec.url", "Endpoint": "string .spec.endpoint", "Chart": "string .spec.chart", "Version": "string .spec.version",
		"Source Kind": "string .spec.sourceRef.kind", "Source Name": "string .spec.sourceRef.name", "Source": "string .spec.sourceRef.name",
	}
	var got []string
	for _, d := range all {
		spec := d["spec"].(map[string]any)
		names := spec["names"].(map[string]any)
		if !slices.Equal(names["categories"].([]string), []string{"all", "fluxcd", "fluxcd-sources"}) {
			t.Errorf("%s: categories %v", names["kind"], names["categories"])
		}
		versions := spec["versions"].([]map[string]any)
		for _, v := range versions {
			if !reflect.DeepEqual(v["schema"], versions[0]["schema"]) { // nothing converts between them
				t.Errorf("%s: version %s has another schema", names["kind"], v["name"])
			}
			var columns []string
			for _, c := range v["additionalPrinterColumns"].([]map[string]any) {
				columns = append(columns, fmt.Sprint(c["name"]))
				if text := fmt.Sprint(c["type"], " ", c["jsonPath"]); text != shown[fmt.Sprint(c["name"])] {
					t.Errorf("column %s: %s", c["name"], text)
				}
			}
			got = append(got, fmt.Sprint(names["kind"], " ", d["metadata"].(map[string]any)["name"], " ", names["shortNames"], " ", v["name"], " ", v["storage"], " ", strings.Join(columns, ",")))
		}
	}
	want := []string{
		"Bucket buckets.source.toolkit.fluxcd.io [] v1 true Endpoint,Age,Ready,Status",
		"Bucket buckets.source.toolkit.fluxcd.io [] v1beta2 false Endpoint,Age,Ready,Status",
		"GitRepository gitrepositories.source.toolkit.fluxcd.io [gitrepo] v1 true URL,Age,Ready,Status",
		"GitRepository gitrepositories.source.toolkit.fluxcd.io [gitrepo] v1beta2 false URL,Age,Ready,Status",
		"OCIRepository ocirepositories.source.toolkit.fluxcd.io [ocirepo] v1 true URL,Ready,Status,Age",
		"OCIRepository ocirepositories.source.toolkit.fluxcd.io [ocirepo] v1beta2 false URL,Ready,Status,Age",
		"HelmRepository helmrepositories.source.toolkit.fluxcd.io [helmrepo] v1 true URL,Age,Ready,Status",
		"HelmRepository helmrepositories.source.toolkit.fluxcd.io [helmrepo] v1beta2 false URL,Age,Ready,Status",
		"HelmChart helmcharts.source.toolkit.fluxcd.io [hc] v1 true Chart,Version,Source Kind,Source Name,Age,Ready,Status",
		"HelmChart helmcharts.source.toolkit.fluxcd.io [hc] v1beta2 false Chart,Version,Source Kind,Source Name,Age,Ready,Status",
		"ExternalArtifact externalartifacts.source.toolkit.fluxcd.io [ea] v1 true Age,Ready,Status,Source",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	text, err := schema.YAML(source.Group, false)
	for _, want := range []string{
		"name: pkgcharts.source.headgate.dev\n", "kind: PkgRepository\n", "default: generic\n",
		"message: spec.serviceAccountName goes with provider azure or aws only\n",
		"rule: has(self.provider) && self.provider in ['azure', 'aws'] || !(has(self.serviceAccountName) && size(self.serviceAccountName) > 0)\n",
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("no %q, %v", want, err)
		}
	}
	if strings.Contains(string(text), "v1beta2") || strings.Count(string(text), "---\n") != 5 {
		t.Errorf("%d separators, or v1beta2", strings.Count(string(text), "---\n"))
	}
	if _, err := schema.YAML("example.org", false); err == nil {
		t.Error("definitions of another group")
	}
}
