package source_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

const fullGit = `apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata: {name: x}
spec:
  url: https://h/x
  interval: 1m
  provider: generic
  proxySecretRef: {name: p}
  sparseCheckout: [a]
  include: [{repository: {kind: Bucket, name: b}}, {repository: {name: c}}]
status:
  sourceVerificationMode: HEAD
  observedSparseCheckout: [a]
  observedIgnore: x
`

func TestConvertDown(t *testing.T) {
	obj := decodeOne(t, fullGit)
	out, warnings, err := source.Convert(obj, source.V1Beta2, source.ReferenceGroup)
	must(t, err)
	want := []string{
		"GitRepository/default/x: spec.proxySecretRef: does not exist in that version and was dropped",
		"GitRepository/default/x: spec.sparseCheckout: does not exist in that version and was dropped",
		"GitRepository/default/x: spec.include[0].repository.kind: is headgate's extension: the reference implementation does not know it",
	}
	testenv.Equal(t, strings.TrimSpace(lines(warnings)), strings.Join(want, "\n"), "warnings")
	g := out.(*source.GitRepository)
	if g.APIVersion != "source.toolkit.fluxcd.io/v1beta2" || g.Spec.SparseCheckout != nil || g.Spec.Provider != "" ||
		g.Status.SourceVerificationMode != "" || g.Status.ObservedSparseCheckout != nil || g.Status.ObservedIgnore == nil {
		t.Errorf("%+v", g)
	}
	if obj.(*source.GitRepository).Spec.SparseCheckout == nil {
		t.Error("the original was changed")
	}
	text, err := source.EncodeYAML(out)
	must(t, err)
	decodeOne(t, string(text))
}

func TestConvertSpelling(t *testing.T) {
	chart := `apiVersion: source.toolkit.fluxcd.io/v1beta2
kind: HelmChart
metadata: {name: x}
spec: {chart: x, interval: 1m, sourceRef: {apiVersion: source.toolkit.fluxcd.io/v1beta2, kind: HelmRepository, name: a}}
`
	out, warnings, err := source.Convert(decodeOne(t, chart), "v1", source.Group)
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	text, err := source.EncodeYAML(out)
	must(t, err)
	for _, want := range []string{"apiVersion: source.headgate.dev/v1\nkind: PkgChart\n", "    apiVersion: source.headgate.dev/v1\n    kind: PkgRepository\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	back, _, err := source.Convert(out, "", source.ReferenceGroup)
	must(t, err)
	if text, _ = source.EncodeYAML(back); !strings.Contains(string(text), "kind: HelmChart\n") || !strings.Contains(string(text), "kind: HelmRepository\n") {
		t.Errorf("%s", text)
	}
	oci := decodeOne(t, strings.Replace(chart, "HelmRepository", "OCIRepository", 1))
	if _, warnings, err = source.Convert(oci, "", ""); err != nil || len(warnings) != 1 {
		t.Error(warnings, err)
	}
	oci.(*source.PkgChart).Spec.ValuesFiles = []string{"a", "source:app/a"}
	if _, warnings, err = source.Convert(oci, "", ""); err != nil || len(warnings) != 2 || !strings.Contains(warnings[1].Error(), "spec.valuesFiles[1]: source: is headgate's extension") {
		t.Error(warnings, err)
	}
}

// TestConvertUp converts an old object with a status to v1: the replacements of the deprecated
// fields have their values, and the deprecated fields are gone.
func TestConvertUp(t *testing.T) {
	old := `apiVersion: source.toolkit.fluxcd.io/v1beta2
kind: GitRepository
metadata: {name: x}
spec: {url: "https://h/x", interval: 1m, gitImplementation: libgit2, accessFrom: {namespaceSelectors: []}, verify: {mode: head, secretRef: {name: k}}}
status:
  observedGeneration: 2
  url: http://h/latest.tar.gz
  contentConfigChecksum: sha256:00
  artifact: {path: a, url: "http://h/a", revision: main/0123456789abcdef0123456789abcdef01234567, checksum: "11", lastUpdateTime: "2026-07-22T10:00:01Z"}
`
	out, warnings, err := source.Convert(decodeOne(t, old), "v1", source.Group)
	if err != nil || len(warnings) != 0 {
		t.Fatal(warnings, err)
	}
	text, err := source.EncodeYAML(out)
	must(t, err)
	want := `apiVersion: source.headgate.dev/v1
kind: GitRepository
metadata:
  name: x
  namespace: default
spec:
  url: https://h/x
  provider: generic
  interval: 1m0s
  timeout: 1m0s
  verify:
    mode: HEAD
    secretRef:
      name: k
status:
  observedGeneration: 2
  artifact:
    path: a
    url: http://h/a
    revision: main@sha1:0123456789abcdef0123456789abcdef01234567
    digest: sha256:11
    lastUpdateTime: "2026-07-22T10:00:01Z"
`
	testenv.Equal(t, string(text), want)
}

// TestConvertMode checks that the verification mode is spelled as in the version.
func TestConvertMode(t *testing.T) {
	for _, test := range []struct{ mode, to, want, warning string }{
		{"HEAD", "v1beta2", "head", ""},
		{"head", "v1beta2", "head", ""},
		{"head", "v1", "HEAD", ""},
		{"Tag", "v1", "Tag", ""},
		{"TagAndHEAD", "v1beta2", "TagAndHEAD", "spec.verify.mode: TagAndHEAD does not exist in that version"},
	} {
		g := &source.GitRepository{Spec: source.GitRepositorySpec{Verify: &source.GitRepositoryVerification{Mode: test.mode}}}
		source.Default(g)
		out, warnings, err := source.Convert(g, test.to, "")
		must(t, err)
		if got := out.(*source.GitRepository).Spec.Verify.Mode; got != test.want || g.Spec.Verify.Mode != test.mode {
			t.Errorf("%+v: mode %s", test, got)
		}
		if got := lines(warnings); (got == "") != (test.warning == "") || !strings.Contains(got, test.warning) {
			t.Errorf("%+v: warnings %s", test, got)
		}
	}
}

func TestConvertImpossible(t *testing.T) {
	git := decodeOne(t, fullGit)
	external := &source.ExternalArtifact{}
	source.Default(external)
	for _, test := range []struct {
		obj                  source.Object
		version, group, want string
	}{
		{git, "v1beta1", "", `unknown version "v1beta1"`},
		{git, "", "example.org", `unknown group "example.org"`},
		{external, "v1beta2", "", "does not exist in v1beta2"},
		{&source.Bucket{}, "v1", source.Group, "unknown kind"},
	} {
		out, _, err := source.Convert(test.obj, test.version, test.group)
		if out != nil || err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, %v, want %s", out, err, test.want)
		}
	}
}

// TestVersions converts each kind between all its versions, in both directions.
func TestVersions(t *testing.T) {
	for kind, spec := range base {
		text := "apiVersion: source.headgate.dev/v1\nkind: " + kind + "\nmetadata: {name: x}\nspec: {" + spec + "}\n"
		obj := decodeOne(t, text)
		if kind == "ExternalArtifact" {
			testenv.Equal(t, string(source.CanonicalSpec(obj)), "{}", "no spec")
			continue
		}
		down, warnings, err := source.Convert(obj, "v1beta2", "")
		if err != nil || len(warnings) != 0 {
			t.Errorf("%s: %v, %v", kind, warnings, err)
			continue
		}
		up, warnings, err := source.Convert(down, "v1", "")
		if err != nil || len(warnings) != 0 {
			t.Errorf("%s: %v, %v", kind, warnings, err)
			continue
		}
		source.Default(up)
		testenv.Equal(t, string(source.CanonicalSpec(up)), string(source.CanonicalSpec(obj)), kind)
	}
}

// TestEncodeGo encodes objects made in Go: their group determines the spelling.
func TestEncodeGo(t *testing.T) {
	p := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: "https://h/x?a=1&b=<2>"}}
	p.Metadata.Name, p.APIVersion = "x", source.ReferenceGroup+"/v1"
	source.Default(p)
	p.Spec.Timeout = source.Duration(2 * 3600e9)
	text, err := source.EncodeJSON(p)
	must(t, err)
	want := `{
  "apiVersion": "source.toolkit.fluxcd.io/v1",
  "kind": "HelmRepository",
  "metadata": {
    "name": "x",
    "namespace": "default"
  },
  "spec": {
    "interval": "1m0s",
    "provider": "generic",
    "timeout": "120m0s",
    "type": "default",
    "url": "https://h/x?a=1&b=<2>"
  }
}
`
	testenv.Equal(t, string(text), want)
	if obj := decodeOne(t, string(text)); !strings.Contains(obj.Head().String(), "HelmRepository/default/x") {
		t.Error(obj.Head())
	}
	p.Metadata.ManagedFields = []byte("{")
	_, err = source.EncodeJSON(p)
	testenv.ErrorSays(t, err, "encode HelmRepository/default/x")
	if _, err := source.EncodeYAML(p); err == nil {
		t.Error("broken managedFields were encoded")
	}
	if _, _, err := source.Convert(p, "", ""); err == nil {
		t.Error("broken managedFields were converted")
	}
	if got := source.CanonicalSpec(p); got != nil {
		t.Errorf("%s", got)
	}
}
