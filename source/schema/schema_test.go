package schema_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
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
	"github.com/headgate-io/headgate/internal/schematest"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/testenv/measure"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/schema"
)

var update = flag.Bool("update", false, "write docs/schemas anew")

// TestFiles compares docs/schemas with the output of the package.
func TestFiles(t *testing.T) {
	const dir = "../../docs/schemas"
	files := map[string]bool{}
	for name, text := range schematest.SchemaTexts(t) {
		kind, version, _ := strings.Cut(name, "/")
		if kind == "" {
			kind = "all"
		}
		file := filepath.Join(dir, strings.ToLower(kind)+"_"+version+".json")
		files[file] = true
		if *update {
			must(t, os.WriteFile(file, text, 0o644))
		}
		if stored, err := os.ReadFile(file); err != nil || !bytes.Equal(stored, text) {
			t.Errorf("%s is not what the package makes (%v): run this test with -update", file, err)
		}
	}
	paths, _ := filepath.Glob(dir + "/*")
	for _, file := range paths {
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

// TestSeveralKinds uses the published schema of all kinds, as editors do, to validate the documents
// of a file: Secrets are allowed beside sources, other documents are not.
func TestSeveralKinds(t *testing.T) {
	published, err := os.Open("../../docs/schemas/all_v1.json")
	must(t, err)
	defer published.Close()
	value, err := jsonschema.UnmarshalJSON(published)
	must(t, err)
	c := jsonschema.NewCompiler()
	testenv.Equal(t, value.(map[string]any)["$id"], any(schema.URL("", source.V1)), "$id")
	must(t, c.AddResource(schema.URL("", source.V1), value))
	all, err := c.Compile(schema.URL("", source.V1))
	must(t, err)
	const file = `apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: app}
spec: {url: "https://example.org/app", interval: 5m, secretRef: {name: login}}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmRepository
metadata: {name: charts}
spec: {url: "https://charts.example.org", interval: 5m}
---
apiVersion: source.headgate.dev/v1
kind: PkgChart
metadata: {name: web}
spec: {chart: web, interval: 5m, sourceRef: {kind: PkgRepository, name: charts}}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {username: ci}
---
apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: typo}
spec: {uri: "https://example.org/app", interval: 5m}
---
apiVersion: source.headgate.dev/v1
kind: Secret
metadata: {name: wrong}
`
	stream, err := document.Open("sources.yaml", strings.NewReader(file))
	must(t, err)
	var valid []bool
	for o := range stream.Objects() {
		var raw json.RawMessage
		new(document.Decoder).Decode(o.Node, &raw, "")
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
		must(t, err)
		valid = append(valid, all.Validate(value) == nil)
	}
	if want := []bool{true, true, true, true, false, false}; !slices.Equal(valid, want) {
		t.Errorf("valid: %v, want %v", valid, want)
	}
}

// A judge compares the results of source and of the schemas for documents.
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
	must(t, err)
	compiled := j.schemas[kind+"/"+version]
	if !known || compiled == nil {
		compiled = j.schemas["/"+source.V1]
	}
	refused := compiled.Validate(value)
	var set source.Set
	decodeErr := set.Decode("-", bytes.NewReader(text))
	switch {
	case refused != nil && decodeErr == nil:
		t.Errorf("valid, and refused by the schema: %v\n%s", refused, text)
	case refused == nil:
		for _, err := range schematest.ExpressibleErrors(kind, text, decodeErr) {
			t.Errorf("%v, and taken by the schema\n%s", err, text)
		}
		fallthrough
	default:
		if general := j.schemas["/"+version]; general != nil && (general.Validate(value) == nil) != (refused == nil) {
			t.Errorf("the schema of all kinds says something else: %v\n%s", refused, text)
		}
	}
	if decodeErr == nil {
		j.good++
	} else {
		j.wrong++
	}
}

// stream judges the objects of a stream that belong to one of the groups.
func (j *judge) stream(t *testing.T, file string, text []byte) {
	t.Helper()
	s, err := document.Open(file, bytes.NewReader(text))
	must(t, err)
	for o := range s.Objects() {
		if o.Group != source.Group && o.Group != source.ReferenceGroup && o.Type != "ArtifactGenerator" {
			continue
		}
		var raw json.RawMessage
		new(document.Decoder).Decode(o.Node, &raw, "")
		j.object(t, raw, o.APIVersion(), o.Type)
	}
}

// TestDocuments judges the documents in tests, documentation and examples.
func TestDocuments(t *testing.T) {
	j := judge{schemas: schematest.Compile(t)}
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
			must(t, err)
			for _, f := range archive.Files {
				j.stream(t, f.Name, f.Data)
			}
		}
	}
	if j.good < 50 || j.wrong < 10 {
		t.Errorf("%d good and %d wrong objects", j.good, j.wrong)
	}
}

// TestRandom judges random documents of each kind and version.
func TestRandom(t *testing.T) {
	measure.WithoutRace(t)
	schemas := schematest.Compile(t)
	for _, k := range slices.Concat(source.Kinds(source.ReferenceGroup), source.Kinds(source.GeneratorGroup)) {
		for i, version := range k.Versions {
			t.Run(k.Name+"/"+version, func(t *testing.T) {
				j := judge{schemas: schemas}
				r := schematest.Generator{Rand: rand.New(rand.NewPCG(uint64(len(k.Name)), uint64(i)))}
				for range 200 {
					doc := r.Document(k, version)
					text, err := json.Marshal(doc)
					must(t, err)
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

// TestDefinitions checks what a cluster shows about the kinds.
func TestDefinitions(t *testing.T) {
	all, err := schema.Definitions(source.ReferenceGroup, true)
	must(t, err)
	shown := map[string]string{ // as in source-controller v1.9.5
		"Age": "date .metadata.creationTimestamp", "Ready": `string .status.conditions[?(@.type=="Ready")].status`, "Status": `string .status.conditions[?(@.type=="Ready")].message`,
		"URL": "string .spec.url", "Endpoint": "string .spec.endpoint", "Chart": "string .spec.chart", "Version": "string .spec.version",
		"Source Kind": "string .spec.sourceRef.kind", "Source Name": "string .spec.sourceRef.name", "Source": "string .spec.sourceRef.name",
	}
	var got []string
	for _, d := range all {
		spec := d["spec"].(map[string]any)
		names := spec["names"].(map[string]any)
		testenv.Equal(t, names["categories"].([]string), []string{"all", "fluxcd", "fluxcd-sources"}, "%s: categories", names["kind"])
		versions := spec["versions"].([]map[string]any)
		for _, v := range versions {
			if !reflect.DeepEqual(v["schema"], versions[0]["schema"]) { // versions are not converted
				t.Errorf("%s: version %s has another schema", names["kind"], v["name"])
			}
			var columns []string
			for _, c := range v["additionalPrinterColumns"].([]map[string]any) {
				columns = append(columns, fmt.Sprint(c["name"]))
				testenv.Equal(t, fmt.Sprint(c["type"], " ", c["jsonPath"]), shown[fmt.Sprint(c["name"])], "column %s", c["name"])
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
	testenv.Equal(t, got, want, "definitions")
	text, err := schema.YAML(source.Group, false)
	for _, want := range []string{
		"name: pkgcharts.source.headgate.dev\n", "kind: PkgRepository\n", "default: generic\n",
		"message: spec.serviceAccountName requires provider azure or aws\n",
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

var must = testenv.Must
