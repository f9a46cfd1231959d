package rollout_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/rollout"
)

var updateManifests = flag.Bool("update-manifests", false, "rewrite the expectations in testdata/manifests")

// TestManifests decodes the files of each archive and compares the canaries as JSON,
// the errors and the warnings with its want.* files.
func TestManifests(t *testing.T) {
	testenv.Golden(t, "testdata/manifests/*.txtar", *updateManifests, func(t *testing.T, input []txtar.File) []txtar.File {
		var defects, warned, checked, decoded string
		for _, f := range input {
			canaries, warnings, err := rollout.Decode(f.Name, bytes.NewReader(f.Data))
			defects += lines(err)
			warned += lines(errors.Join(warnings...))
			for _, c := range canaries {
				checked += lines(c.Check())
				decoded += encode(t, c)
			}
		}
		return []txtar.File{
			{Name: "want.errors", Data: []byte(defects)},
			{Name: "want.warnings", Data: []byte(warned)},
			{Name: "want.check", Data: []byte(checked)},
			{Name: "want.json", Data: []byte(decoded)},
		}
	})
}

func lines(err error) string {
	if err == nil {
		return ""
	}
	return err.Error() + "\n"
}

func encode(t *testing.T, c *rollout.Canary) string {
	t.Helper()
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	must(t, enc.Encode(c))
	return text.String()
}

// TestDefect checks the parts of an error.
func TestDefect(t *testing.T) {
	_, _, err := rollout.Decode("f.yaml", strings.NewReader("---\n---\na: b\n---\n"+
		"apiVersion: flagger.app/v1beta1\nkind: Canary\nmetadata: {name: a}\nspec:\n  analysis:\n    stepWeight: 1\n    webhooks:\n    - name: x\n      url: h\n"))
	at, ok := errors.AsType[*rollout.DocumentError](err)
	if !ok {
		t.Fatal(err)
	}
	want := rollout.DocumentError{File: "f.yaml", Document: 2, Line: 13, Object: "Canary/default/a", Field: "spec.analysis.webhooks[0].url", Err: at.Err}
	testenv.Equal(t, *at, want)
}

// TestManyWarnings checks that the number of warnings is limited if canaries share
// a body by alias.
func TestManyWarnings(t *testing.T) {
	text := "x: &a {apiVersion: flagger.app/v1beta1, kind: Canary, spec: {analysis: {stepWeight: 1, mirrorWeight: 1, metrics: [" +
		strings.Repeat("{name: a, interval: x}, ", 90) + "]}}}\napiVersion: v1\nkind: List\nitems: [" + numbered(500, "{<<: *a, metadata: {name: x%d}}, ") + "]\n"
	canaries, warnings, err := rollout.Decode("f", strings.NewReader(text))
	if len(canaries) != 500 || len(warnings) != 1001 || err != nil {
		t.Errorf("%d canaries, %d warnings, %v", len(canaries), len(warnings), err)
	}
}

// TestVersionOfList checks that a list of an unsupported version is not skipped
// silently.
func TestVersionOfList(t *testing.T) {
	_, _, err := rollout.Decode("f", strings.NewReader("apiVersion: flagger.app/v2\nkind: CanaryList\nitems:\n- metadata: {name: a}\n  spec: {}\n"))
	testenv.Equal(t, lines(err), `f:4: document 1: Canary/default/a: version "v2" is not read: set apiVersion to flagger.app/v1beta1`+"\n")
}

// TestNullAnalysis checks that a null analysis counts as a missing one.
func TestNullAnalysis(t *testing.T) {
	const text = "apiVersion: flagger.app/v1beta1\nkind: Canary\nmetadata: {name: a}\nspec: {analysis: null, canaryAnalysis: {stepWeight: 7}}\n"
	canaries, _, err := rollout.Decode("f", strings.NewReader(text))
	if err != nil || len(canaries) != 1 || canaries[0].Spec.Analysis.StepWeight != 7 {
		t.Error(err)
	}
}

// TestHostile checks that hostile documents are refused without a panic and with a
// short error.
func TestHostile(t *testing.T) {
	header := "apiVersion: flagger.app/v1beta1\nkind: Canary\nmetadata: {name: a}\nspec: "
	long := strings.Repeat("k", 1<<20)
	for name, spec := range map[string]string{
		"names without end":     "{analysis: {stepWeight: 1, webhooks: [" + strings.Repeat("{name: "+strings.Repeat("x", 20000)+", url: 'http://h'},", 120) + "]}}",
		"unknown fields":        "{analysis: {stepWeight: 1" + numbered(5000, ", x%d: 1") + "}}",
		"a spec by alias":       "&a {analysis: *a}",
		"old analysis, shared":  "{canaryAnalysis: &a {stepWeight: 1, match: [*a]}}",
		"spec is a list":        "[{canaryAnalysis: 1}]",
		"analysis is null":      "{analysis: null, canaryAnalysis: null}",
		"a long regex":          "{analysis: {iterations: 1, match: [{headers: {a: {regex: '" + strings.Repeat("(a{1,1000})", 1000) + "'}}}]}}",
		"a key with much below": "{analysis: {iterations: 1, match: [{headers: {? " + long + "\n : {" + numbered(10000, "x%d: 1, ") + "}}}]}}",
		"text by alias":         "{analysis: {iterations: 1, match: [{headers: {a: {exact: &a " + long + "}}, uri: [" + strings.Repeat("*a ,", 100000) + "]}]}}",
		"a long name":           "{analysis: {stepWeight: 1, metrics: [{name: " + long + "}]}}",
		"a long URL":            "{analysis: {stepWeight: 1, webhooks: [{name: a, url: '" + strings.Repeat("http://", 100000) + "'}]}}",
	} {
		canaries, warnings, err := rollout.Decode("f", strings.NewReader(header+spec+"\n"))
		if len(canaries) == 0 && err == nil {
			t.Errorf("%s: neither a canary nor an error", name)
		}
		if text := lines(err) + lines(errors.Join(warnings...)); len(text) > 100<<10 {
			t.Errorf("%s: %d bytes of errors", name, len(text))
		}
	}
}

func numbered(n int, format string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format, i)
	}
	return b.String()
}
