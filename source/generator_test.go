package source_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const generatorDocument = `apiVersion: source.extensions.fluxcd.io/v1beta1
kind: ArtifactGenerator
metadata: {name: app, namespace: apps, labels: {team: web}, annotations: {reconcile.fluxcd.io/requestedAt: "1"}}
spec:
  commonMetadata: {labels: {tier: front}, annotations: {note: made}}
  sources:
  - {alias: repo, kind: GitRepository, name: mono}
  - {alias: chart_1, kind: HelmChart, name: web, namespace: charts}
  artifacts:
  - name: web
    originRevision: "@repo"
    copy:
    - {from: "@repo/web/**", to: "@artifact/", exclude: ["*.md"], strategy: Overwrite}
  - name: whole
    revision: "@chart_1"
    copy:
    - {from: "@chart_1/", to: "@artifact/"}
    - {from: "@repo/values.yaml", to: "@artifact/web/values.yaml", strategy: Merge, optional: true}
`

func decodeAll(t *testing.T, documents ...string) (*source.Set, error) {
	t.Helper()
	set := new(source.Set)
	return set, set.Decode("f.yaml", strings.NewReader(strings.Join(documents, "---\n")))
}

// Decoding a generator adds the ExternalArtifacts that it makes.
func TestGenerator(t *testing.T) {
	set, err := decodeAll(t, generatorDocument)
	if err != nil || len(set.Objects) != 3 || len(set.Warnings) > 0 {
		t.Fatalf("%v, %v, %v", set.Objects, set.Warnings, err)
	}
	g := set.Objects[0].(*source.ArtifactGenerator)
	if got := g.Plan().Needs; len(got) != 2 || got[0].String() != "ExternalArtifact/apps/web" || g.Plan().Suspend {
		t.Errorf("%v", got)
	}
	web, whole := set.Objects[1].(*source.ExternalArtifact), set.Objects[2].(*source.ExternalArtifact)
	if source.External(web) || web.Spec.SourceRef.Kind != "ArtifactGenerator" || web.Spec.SourceRef.Namespace != "apps" || web.APIVersion != "source.toolkit.fluxcd.io/v1" {
		t.Errorf("%+v", web.Spec.SourceRef)
	}
	m := web.Metadata
	if m.Labels["team"] != "web" || m.Labels["tier"] != "front" || m.Annotations["note"] != "made" || m.Annotations["reconcile.fluxcd.io/requestedAt"] != "1" {
		t.Errorf("%+v", m)
	}
	if got := web.Plan().Needs; len(got) != 1 || got[0].String() != "GitRepository/apps/mono" {
		t.Errorf("%v", got)
	}
	if got := whole.Plan().Needs; len(got) != 2 || got[1].String() != "PkgChart/charts/web" {
		t.Errorf("%v", got)
	}
	text, err := source.EncodeYAML(g)
	if err != nil || !strings.Contains(string(text), "kind: HelmChart") {
		t.Errorf("%s %v", text, err)
	}
	if text, err = source.EncodeYAML(web); err != nil || strings.Contains(string(text), "copy") {
		t.Errorf("%s %v", text, err)
	}
	again, _ := decodeAll(t, strings.Replace(generatorDocument, ", strategy: Overwrite", "", 1))
	testenv.Equal(t, string(source.CanonicalSpec(web)), string(source.CanonicalSpec(again.Objects[1])))
	other, _ := decodeAll(t, strings.Replace(generatorDocument, "*.md", "*.txt", 1))
	if a, b := source.CanonicalSpec(web), source.CanonicalSpec(other.Objects[1]); string(a) == string(b) {
		t.Errorf("%s", a)
	}
	suspended, err := decodeAll(t, strings.Replace(generatorDocument, "annotations: {", "annotations: {source.extensions.fluxcd.io/reconcile: Disabled, ", 1))
	if err != nil || !suspended.Objects[0].Plan().Suspend || !suspended.Objects[1].Plan().Suspend {
		t.Errorf("%v", err)
	}
	if groups, err := decodeAll(t, strings.Replace(generatorDocument, "@repo/web/**", "@repo/"+strings.Repeat("{x,y}", 12), 1)); err != nil || len(groups.Objects) != 3 {
		t.Errorf("%v", err)
	}
	converted, _, err := source.Convert(g, source.V1, source.Group)
	if err != nil || converted.Head().APIVersion != "source.extensions.fluxcd.io/v1beta1" {
		t.Errorf("%v, %v", converted, err)
	}
	testenv.Equal(t, source.New(source.ReferenceTo(g)).Head().APIVersion, g.APIVersion)
	if found, err := set.Find("ag/app"); err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
}

// Errors about a generator name the field.
func TestGeneratorErrors(t *testing.T) {
	many := strings.Repeat("{x,y}", 13)
	for _, c := range []struct{ old, new, want string }{
		{"alias: repo", "alias: Repo", `spec.sources[0].alias: must be lower-case letters`},
		{"alias: chart_1", "alias: repo", `spec.artifacts[0].copy[0].from: names @repo, which is the alias of 2 of spec.sources: it must be that of one`},
		{"name: whole", "name: web", `spec.artifacts: must not have two entries with the name "web"`},
		{"alias: repo", "alias: " + strings.Repeat("a", 64), "spec.sources[0].alias: must have at most 63 characters"},
		{"kind: GitRepository", "kind: HelmRepository", "spec.sources[0].kind: must be one of GitRepository, OCIRepository, Bucket, PkgChart, ExternalArtifact"},
		{"namespace: charts", "namespace: Charts", "spec.sources[1].namespace: "},
		{"name: mono", "name: Mono", "spec.sources[0].name: "},
		{"name: whole", "name: Whole", "spec.artifacts[1].name: "},
		{`"@chart_1"`, `"chart_1"`, `spec.artifacts[1].revision: must be @ALIAS`},
		{`"@chart_1"`, `"@other"`, `spec.artifacts[1].revision: names @other, which is the alias of 0 of spec.sources`},
		{`originRevision: "@repo"`, `originRevision: "@other"`, "spec.artifacts[0].originRevision: names @other"},
		{"@repo/web/**", "@other/web/**", "spec.artifacts[0].copy[0].from: names @other"},
		{"@repo/web/**", "repo/web/**", "spec.artifacts[0].copy[0].from: must be @ALIAS/PATTERN"},
		{"@repo/web/**", "@repo/../secret", "spec.artifacts[0].copy[0].from: must not have '..' as a part"},
		{"@repo/web/**", "@repo/[web", "spec.artifacts[0].copy[0].from: "},
		{"@repo/web/**", "@repo/{web", "is no pattern: a bracket or brace is not closed"},
		{"@repo/web/**", "@repo/web}", "is no pattern: a bracket or brace is not closed"},
		{"@repo/web/**", "@repo/" + many, "must have at most 4096 alternatives"},
		{"@repo/web/**", "@repo/" + strings.Repeat("{x,y}", 64), "must have at most 4096 alternatives"},
		{"@repo/web/**", "@repo/" + strings.Repeat("a", 1024), "must have at most 1024 characters"},
		{`to: "@artifact/"`, `to: "@other/"`, "spec.artifacts[0].copy[0].to: must be @artifact/PATH"},
		{`"@artifact/"`, `"@artifact/a/../../b"`, "spec.artifacts[0].copy[0].to: must not have '..' as a part"},
		{`"@artifact/"`, `'@artifact/a\b'`, `spec.artifacts[0].copy[0].to: must use '/'`},
		{`["*.md"]`, `["[x"]`, "spec.artifacts[0].copy[0].exclude[0]: "},
		{`["*.md"]`, `[` + strings.Repeat("a, ", 101) + `]`, "spec.artifacts[0].copy[0].exclude: must have 0 to 100 entries"},
		{"strategy: Merge", "strategy: Join", "spec.artifacts[1].copy[1].strategy: must be one of Overwrite, Merge, Extract"},
		{"optional: true", "optional: 1", "spec.artifacts[1].copy[1].optional: "},
		{"v1beta1", "v1", `ArtifactGenerator does not exist in version "v1": set apiVersion to source.extensions.fluxcd.io/v1beta1`},
		{"source.extensions.fluxcd.io/v1beta1", "source.headgate.dev/v1", "ArtifactGenerator does not exist in group source.headgate.dev: set apiVersion to source.extensions.fluxcd.io/v1beta1"},
		{"kind: ArtifactGenerator", "kind: ArtifactGenerater", "did you mean kind ArtifactGenerator"},
	} {
		set, err := decodeAll(t, strings.Replace(generatorDocument, c.old, c.new, 1))
		if err == nil || !strings.Contains(err.Error(), c.want) || len(set.Objects) > 0 {
			t.Errorf("%s: %v, want %s", c.new, err, c.want)
		}
	}
	for list, want := range map[string]string{"sources: []": "spec.sources: must have 1 to 1000 entries", "artifacts: []": "spec.artifacts: must have 1 to 1000 entries",
		"artifacts: [{name: a, copy: []}]": "spec.artifacts[0].copy: must have 1 to 1000 entries"} {
		_, err := decodeAll(t, strings.Split(generatorDocument, "spec:")[0]+"spec:\n  sources: [{alias: a, kind: Bucket, name: a}]\n  artifacts: [{name: a, copy: [{from: \"@a/x\", to: \"@artifact/\"}]}]\n  "+list+"\n")
		if list = strings.Split(list, ":")[0]; err == nil {
			t.Errorf("%s: no error, want %s", list, want)
		}
	}
	set, err := decodeAll(t, strings.Replace(generatorDocument, `originRevision: "@repo"`, "", 1)+"  - {name: more, copy: [{from: \"@repo/x\", to: \"@artifact/\"}]}\n")
	if err != nil || len(set.Objects) != 4 {
		t.Errorf("%v", err)
	}
}

// If two documents define the same artifact, the set has it once, and the later document is
// reported.
func TestGeneratorsOfOneName(t *testing.T) {
	second := strings.Replace(generatorDocument, "name: app,", "name: second,", 1)
	external := "apiVersion: source.toolkit.fluxcd.io/v1\nkind: ExternalArtifact\nmetadata: {name: web, namespace: apps}\nspec: {}\n"
	set, err := decodeAll(t, generatorDocument, second)
	want := `f.yaml:20: document 2: ArtifactGenerator/apps/second: spec.artifacts[0].name: makes ExternalArtifact/apps/web, which is in f.yaml:1 (document 1) already: remove one of the two`
	if err == nil || !strings.Contains(err.Error(), want) || len(set.Objects) != 3 {
		t.Errorf("%v, %v, want %s", set.Objects, err, want)
	}
	if set, err = decodeAll(t, external, generatorDocument); err == nil || !strings.Contains(err.Error(), "makes ExternalArtifact/apps/web, which is in f.yaml:1") || len(set.Objects) != 1 {
		t.Errorf("%v, %v", set.Objects, err)
	}
	if set, err = decodeAll(t, generatorDocument, external); err == nil || !strings.Contains(err.Error(), "ExternalArtifact/apps/web: is in f.yaml:1") || len(set.Objects) != 3 {
		t.Errorf("%v, %v", set.Objects, err)
	}
	first, _ := decodeAll(t, generatorDocument)
	other, _ := decodeAll(t, second)
	if err := first.Add(other); err == nil || !strings.Contains(err.Error(), "ArtifactGenerator/apps/second: spec.artifacts[0].name: makes ExternalArtifact/apps/web, which is in f.yaml:1") || len(first.Objects) != 3 {
		t.Errorf("%v, %v", first.Objects, err)
	}
	again, _ := decodeAll(t, strings.Replace(generatorDocument, "name: web\n    originRevision", "name: more\n    originRevision", 1))
	if err := first.Add(again); err == nil || strings.Contains(err.Error(), "makes") || len(first.Objects) != 3 {
		t.Errorf("%v, %v", first.Objects, err)
	}
}

// A ledger has separate documents for a generator and its outputs.
func TestGeneratorInLedger(t *testing.T) {
	set, err := decodeAll(t, generatorDocument)
	must(t, err)
	ledger := &source.Ledger{Dir: filepath.Join(t.TempDir(), "ledger")}
	for _, obj := range set.Objects {
		must(t, ledger.Save(t.Context(), obj, nil))
	}
	saved, err := ledger.List()
	if err != nil || len(saved.Objects) != 3 {
		t.Errorf("%v, %v", saved.Objects, err)
	}
	for _, obj := range set.Objects {
		if _, err := ledger.Object(source.ReferenceTo(obj)); err != nil {
			t.Error(err)
		}
	}
	refs, err := ledger.References()
	if err != nil || len(refs) != 3 || !slices.Contains(refs, source.ReferenceTo(set.Objects[0])) {
		t.Errorf("%v, %v", refs, err)
	}
	text, err := os.ReadFile(filepath.Join(ledger.Dir, "externalartifact/apps/web.yaml"))
	if err != nil || strings.Contains(string(text), "copy") {
		t.Errorf("%s %v", text, err)
	}
}
