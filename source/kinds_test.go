package source

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/document"
)

// settled returns obj after it has observed rev.
func settled(obj Object, rev Revision) Object {
	obj.Observe(rev)
	return obj
}

func ptr[T any](v T) *T { return &v }

// TestDrift changes one property at a time in a settled object.
func TestDrift(t *testing.T) {
	inputs := []artifact.Artifact{{Path: "p", URL: "u", Revision: "main@sha1:1", Digest: "sha256:1", Size: 1}}
	rev := Revision{ID: "1.2.3+a", File: "app-1.2.3+a.tgz", Inputs: inputs}
	git := func() *GitRepository {
		g := &GitRepository{Spec: GitRepositorySpec{
			Ignore:            ptr("*.md"),
			RecurseSubmodules: true,
			Include:           []GitRepositoryInclude{{Repository: IncludeReference{Name: "a"}}},
			SparseCheckout:    []string{"./a", "b"},
			Verify:            &GitRepositoryVerification{Mode: VerifyTagAndHEAD},
		}}
		g.Observe(rev)
		return g
	}
	oci := func() *OCIRepository {
		o := &OCIRepository{Spec: OCIRepositorySpec{Ignore: ptr("x"), LayerSelector: &OCILayerSelector{MediaType: "m"}}}
		o.Observe(rev)
		return o
	}
	chart := func() *PkgChart {
		c := &PkgChart{Spec: PkgChartSpec{ValuesFiles: []string{"a", "b"}}}
		c.Observe(rev)
		return c
	}
	bucket := func() *Bucket {
		b := &Bucket{Spec: BucketSpec{Ignore: ptr("x")}}
		b.Observe(rev)
		return b
	}
	with := func(edit func(*Revision)) Revision {
		r := rev
		r.Inputs = append([]artifact.Artifact(nil), rev.Inputs...)
		edit(&r)
		return r
	}
	edit := func(g *GitRepository, f func(*GitRepository)) Object { f(g); return g }
	tests := []struct {
		name string
		obj  Object
		rev  Revision
		want bool
	}{
		{"git settled", git(), rev, false},
		{"git observedIgnore changed", edit(git(), func(g *GitRepository) { g.Spec.Ignore = ptr("y") }), rev, true},
		{"git observedIgnore empty is not none", edit(git(), func(g *GitRepository) { g.Spec.Ignore = nil; g.Status.ObservedIgnore = ptr("") }), rev, true},
		{"git observedRecurseSubmodules", edit(git(), func(g *GitRepository) { g.Spec.RecurseSubmodules = false }), rev, true},
		{"git observedInclude", edit(git(), func(g *GitRepository) { g.Spec.Include[0].ToPath = "x" }), rev, true},
		{"git includedArtifacts revision", git(), with(func(r *Revision) { r.Inputs[0].Revision = "main@sha1:2" }), true},
		{"git includedArtifacts digest", git(), with(func(r *Revision) { r.Inputs[0].Digest = "sha256:2" }), true},
		{"git includedArtifacts count", git(), with(func(r *Revision) { r.Inputs = nil }), true},
		{"git includedArtifacts moved", git(), with(func(r *Revision) { r.Inputs[0].URL = "elsewhere" }), false},
		{"git observedSparseCheckout", edit(git(), func(g *GitRepository) { g.Spec.SparseCheckout = []string{"b", "a"} }), rev, true},
		{"git observedSparseCheckout dots", edit(git(), func(g *GitRepository) { g.Spec.SparseCheckout = []string{"a", "./b"} }), rev, false},
		{"git observedSparseCheckout case", edit(git(), func(g *GitRepository) { g.Spec.SparseCheckout = []string{"A", "b"} }), rev, true},
		{"git mode HEAD is covered", edit(git(), func(g *GitRepository) { g.Spec.Verify.Mode = VerifyHEAD }), rev, false},
		{"git mode Tag is covered", edit(git(), func(g *GitRepository) { g.Spec.Verify.Mode = VerifyTag }), rev, false},
		{"git mode removed", edit(git(), func(g *GitRepository) { g.Spec.Verify = nil }), rev, false},
		{"git mode added", edit(git(), func(g *GitRepository) { g.Status.SourceVerificationMode = "" }), rev, true},
		{"git mode HEAD does not cover Tag", edit(git(), func(g *GitRepository) {
			g.Spec.Verify.Mode, g.Status.SourceVerificationMode = VerifyTag, VerifyHEAD
		}), rev, true},
		{"git mode HEAD does not cover both", edit(git(), func(g *GitRepository) { g.Status.SourceVerificationMode = VerifyHEAD }), rev, true},
		{"git mode head is HEAD", edit(git(), func(g *GitRepository) {
			g.Spec.Verify.Mode, g.Status.SourceVerificationMode = VerifyHEAD, VerifyHead
		}), rev, false},
		{"bucket settled", bucket(), rev, false},
		{"bucket observedIgnore", func() Object { b := bucket(); b.Spec.Ignore = nil; return b }(), rev, true},
		{"oci settled", oci(), rev, false},
		{"oci observedIgnore", func() Object { o := oci(); o.Spec.Ignore = ptr("y"); return o }(), rev, true},
		{"oci observedLayerSelector", func() Object { o := oci(); o.Spec.LayerSelector.Operation = LayerCopy; return o }(), rev, true},
		{"oci observedLayerSelector default", func() Object { o := oci(); o.Spec.LayerSelector.Operation = LayerExtract; return o }(), rev, false},
		{"oci observedLayerSelector none", func() Object { o := oci(); o.Spec.LayerSelector = nil; return o }(), rev, true},
		{"oci no selector", settled(&OCIRepository{}, rev), rev, false},
		{"chart settled", chart(), rev, false},
		{"chart observedChartName", chart(), with(func(r *Revision) { r.File = "other-1.2.3+a.tgz" }), true},
		{"chart observedSourceArtifactRevision alone", chart(), with(func(r *Revision) { r.Inputs[0].Revision = "x" }), false},
		{"chart observedValuesFiles", func() Object { c := chart(); c.Spec.ValuesFiles = []string{"b", "a"}; return c }(), rev, true},
		{"chart observedValuesFiles found", func() Object { c := chart(); c.Spec.IgnoreMissingValuesFiles = true; return c }(),
			with(func(r *Revision) { r.Found = []string{"b"} }), true},
		{"repository", settled(&PkgRepository{}, rev), with(func(r *Revision) { r.ID = "x" }), false},
		{"external", settled(&ExternalArtifact{}, rev), rev, false},
	}
	for _, test := range tests {
		if got := test.obj.Drift(test.rev); (got != "") != test.want {
			t.Errorf("%s: drift %q, want any: %v", test.name, got, test.want)
		}
	}
}

// TestObserve checks that the recorded values share no memory with the spec, and what a chart
// records about the values files that exist.
func TestObserve(t *testing.T) {
	inputs := []artifact.Artifact{{Revision: "main@sha1:1", Digest: "sha256:1"}}
	g := &GitRepository{Spec: GitRepositorySpec{Ignore: ptr("*.md"), SparseCheckout: []string{"./a"}, Include: []GitRepositoryInclude{{FromPath: "f"}}}}
	g.Observe(Revision{Inputs: inputs})
	inputs[0].Digest, *g.Spec.Ignore, g.Spec.Include[0].FromPath = "changed", "changed", "changed"
	if s := g.Status; s.IncludedArtifacts[0].Digest != "sha256:1" || *s.ObservedIgnore != "*.md" || s.ObservedInclude[0].FromPath != "f" || g.Spec.SparseCheckout[0] != "./a" {
		t.Errorf("git: %+v", s)
	}
	c := &PkgChart{Spec: PkgChartSpec{ValuesFiles: []string{"a", "b"}, IgnoreMissingValuesFiles: true}}
	c.Observe(Revision{ID: "1.0.0", File: "my-app-1.0.0.tgz", Found: []string{"b"}, Inputs: []artifact.Artifact{{Revision: "rev"}}})
	if s := c.Status; s.ObservedChartName != "my-app" || s.ObservedSourceArtifactRevision != "rev" || !slices.Equal(s.ObservedValuesFiles, []string{"b"}) {
		t.Errorf("chart: %+v", s)
	}
	c.Observe(Revision{ID: "1.0.0", File: "my-app-1.0.0.tgz"})
	if s := c.Status; s.ObservedSourceArtifactRevision != "" || len(s.ObservedValuesFiles) != 2 {
		t.Errorf("chart: %+v", s)
	}
}

func TestPlan(t *testing.T) {
	verify := &OCIRepositoryVerification{}
	tests := []struct {
		obj                      Object
		latest, failed, verified string
	}{
		{&GitRepository{Header: Header{APIVersion: Group + "/v1"}, Spec: GitRepositorySpec{Verify: &GitRepositoryVerification{Mode: "head"}}}, "", "GitOperationFailed", "HEAD"},
		{&GitRepository{Header: Header{APIVersion: ReferenceGroup + "/v1beta2"}}, "latest.tar.gz", "GitOperationFailed", ""},
		{&Bucket{}, "latest.tar.gz", "BucketOperationFailed", ""},
		{&OCIRepository{Spec: OCIRepositorySpec{Verify: verify}}, "latest.tar.gz", "OCIArtifactPullFailed", "cosign"},
		{&PkgRepository{}, "index.yaml", "Failed", ""},
		{&PkgChart{Spec: PkgChartSpec{Verify: &OCIRepositoryVerification{Provider: "notation"}}}, "latest.tar.gz", "ChartPullError", "notation"},
		{&ExternalArtifact{}, "", "Failed", ""},
	}
	for _, test := range tests {
		Default(test.obj)
		plan := test.obj.Plan()
		if plan.Words.Latest != test.latest || plan.Words.Failed != test.failed || plan.Verify != test.verified {
			t.Errorf("%T: %+v", test.obj, plan)
		}
		if strings.Count(plan.Words.Stored, "%s") != 1 {
			t.Errorf("%T: stored message %q", test.obj, plan.Words.Stored)
		}
		want := time.Minute
		switch test.obj.(type) {
		case *ExternalArtifact, *Bucket, *OCIRepository, *PkgChart: // nothing to limit, or limited by the origin
			want = 0
		}
		if plan.Timeout != want {
			t.Errorf("%T: timeout %v, want %v", test.obj, plan.Timeout, want)
		}
	}
	if got := (&PkgRepository{}).Interval(); got != time.Minute {
		t.Errorf("PkgRepository: interval %v", got)
	}
}

func TestDuration(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1m30s": 90 * time.Second, "0s": 0, "1.5h": 90 * time.Minute, "10ms": 10 * time.Millisecond,
		"0.5ms": 500 * time.Microsecond, "0.000001ms": 1, "1h1h": 2 * time.Hour, "100h": 100 * time.Hour,
	} {
		d, err := ParseDuration(text)
		if err != nil || time.Duration(d) != want {
			t.Errorf("%s: %v, %v", text, d, err)
			continue
		}
		if back, err := ParseDuration(d.String()); back != d || err != nil {
			t.Errorf("%s is written %s, which reads as %v, %v", text, d, back, err)
		}
		if back, err := ParseDuration(d.timeout()); back != d || err != nil || checkTimeout(d.timeout()) != nil {
			t.Errorf("%s as a timeout is written %s, which reads as %v, %v", text, d.timeout(), back, err)
		}
	}
	for _, text := range []string{"", "5", "-1s", "+1s", "1us", "1µs", "1d", " 1s", "1s ", "1 s", "1.s", ".5s", "9999999999h"} {
		if d, err := ParseDuration(text); err == nil {
			t.Errorf("%q reads as %v", text, d)
		}
	}
	if checkTimeout("1h") == nil {
		t.Error("a timeout of 1h")
	}
	var d Duration
	if err := json.Unmarshal([]byte(`"1m"`), &d); err != nil || d != Duration(time.Minute) {
		t.Errorf("%v, %v", d, err)
	}
	if got := Duration(-1).String(); got != "-0.000001ms" {
		t.Errorf("negative: %s", got)
	}
}

// TestFacts checks that each row of the tables is about an existing field of the type of its
// checks, or about a deprecated field that does not exist and has a warning.
func TestFacts(t *testing.T) {
	for i := range kinds {
		obj := kinds[i].make()
		fill(reflect.ValueOf(obj).Elem())
		Default(obj)
		check(obj)
		for _, fact := range slices.Concat(tables[kinds[i].name]...) {
			if fact.Shape == nil {
				document.At(reflect.ValueOf(obj), fact.At)
			} else if fact.Warning == "" || fact.Only != V1Beta2 {
				t.Errorf("%s %s: no warning, or of version %q", kinds[i].name, fact.At, fact.Only)
			}
		}
	}
}

// fill sets each pointer and list in v.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		for _, f := range reflect.VisibleFields(v.Type()) {
			if f.IsExported() && len(f.Index) == 1 {
				fill(v.FieldByIndex(f.Index))
			}
		}
	}
}
