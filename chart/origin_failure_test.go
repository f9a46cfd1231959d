package chart_test

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// Each reason of reference A2 that a tree can lead to. The artifact of before
// stays, whatever goes wrong.
func TestFailuresOfTrees(t *testing.T) {
	good := func(further ...string) fstest.MapFS { return simple("app", "app", "1.1.0", further...) }
	with := func(file, text string) fstest.MapFS {
		tree := good()
		tree[file] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
		return tree
	}
	values := func(names ...string) func(*source.PkgChart) {
		return func(c *source.PkgChart) { c.Spec.ValuesFiles = names }
	}
	in := func(name string) func(*source.PkgChart) { return func(c *source.PkgChart) { c.Spec.Chart = name } }
	stalled, failed := source.Stalled, source.Failed
	for _, row := range []struct {
		name    string
		tree    fstest.MapFS
		edit    func(*source.PkgChart)
		outcome source.Outcome
		cond    string
		reason  string
		says    string
	}{
		{"no such path", good(), in("no/such"), stalled, "FetchFailed", "InvalidChartReference", "no/such"},
		{"a path that leads out", good(), in("../app"), stalled, "FetchFailed", "InvalidChartReference", "inside the source"},
		{"a path that leads out and back", good(), in("app/../../src/app"), stalled, "FetchFailed", "InvalidChartReference", "inside the source"},
		{"a path with a backslash", good(), in(`app\..`), stalled, "FetchFailed", "InvalidChartReference", "inside the source"},
		{"a path with control characters", good(), in("app\x1b[31m"), stalled, "FetchFailed", "InvalidChartReference", `\x1b`},
		{"a directory that is no chart", good(), in("app/templates"), stalled, "FetchFailed", "InvalidChartReference", "Chart.yaml"},
		{"a file that is no chart", good(), in("app/values.yaml"), stalled, "FetchFailed", "InvalidChartReference", "not a valid chart"},
		{"the root", good(), in("."), stalled, "FetchFailed", "InvalidChartReference", "Chart.yaml"},
		{"a Chart.yaml that is none", with("app/Chart.yaml", "{"), nil, stalled, "FetchFailed", "InvalidChartReference", "Chart.yaml"},
		{"a name that leads out", with("app/Chart.yaml", "apiVersion: v2\nname: ../../evil\nversion: 1.1.0\n"), nil, stalled, "FetchFailed", "InvalidChartReference", "name"},
		{"a name that hides", with("app/Chart.yaml", "apiVersion: v2\nname: .evil\nversion: 1.1.0\n"), nil, stalled, "FetchFailed", "InvalidChartReference", "begins with a dot"},
		{"a version that leads out", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0/../../x\n"), nil, stalled, "FetchFailed", "InvalidChartReference", "version"},
		{"a version with control characters", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: \"1.1.0\\e[31m\"\n"), nil, stalled, "FetchFailed", "InvalidChartReference", "version"},
		{"a file that is too large", with("app/big", strings.Repeat("x", 5<<20+1)), nil, failed, "BuildFailed", "ChartPackageError", "limit"},

		{"values that are missing", good(), values("no.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "no.yaml"`},
		{"values that are a directory", good(), values("app"), stalled, "BuildFailed", "ValuesFilesError", "it is no file"},
		{"values that are no map", with("p.yaml", "- 1\n"), values("app/values.yaml", "p.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "p.yaml": `},
		{"values that are no YAML", with("p.yaml", "{"), values("app/values.yaml", "p.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "p.yaml": `},
		{"values that are too long", with("p.yaml", "a: "+strings.Repeat("x", 1<<20)), values("p.yaml"), stalled, "BuildFailed", "ValuesFilesError", "more than 1048576 bytes"},
		{"values that are too long together", with("p.yaml", "a: "+strings.Repeat("x", 1<<20-3)), values(slices.Repeat([]string{"p.yaml"}, 17)...), stalled, "BuildFailed", "ValuesFilesError", "more than 16777216 bytes"},
		{"values that lead out", good(), values("../x.yaml"), stalled, "BuildFailed", "ValuesFilesError", "must not lead out"},
		{"values of another source that lead out", good(), values("source:lib/../../x.yaml"), stalled, "BuildFailed", "ValuesFilesError", "must not lead out"},
		{"values of another source that are missing", good(), values("source:lib/no.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "source:lib/no.yaml"`},
		{"values of a source that is no archive", good(), values("source:ExternalArtifact/plain/no.yaml"), stalled, "BuildFailed", "ValuesFilesError", "values come from an archive"},
		{"values of a chart", good(), values("source:PkgChart/app/values.yaml"), stalled, "BuildFailed", "ValuesFilesError", "names a source of kind"},
		{"a chart without values to replace", fstest.MapFS{"app/Chart.yaml": {Data: []byte("apiVersion: v2\nname: app\nversion: 1.1.0\n")}, "p.yaml": {Data: []byte("a: 1")}},
			values("p.yaml"), stalled, "BuildFailed", "ValuesFilesError", "has no values.yaml"},

		{"a dependency that is not there", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\ndependencies:\n- {name: lib, version: ^1, repository: \"file://../lib\"}\n"),
			nil, failed, "BuildFailed", "DependencyBuildError", `"lib"`},
		{"a dependency on itself", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\ndependencies:\n- {name: app, version: ^1, repository: \"file://../app\"}\n"),
			nil, failed, "BuildFailed", "DependencyBuildError", "app"},
		{"a dependency that leads out", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\ndependencies:\n- {name: lib, version: ^1, repository: \"file://../../lib\"}\n"),
			nil, failed, "BuildFailed", "DependencyBuildError", "lib"},

		{"verification of what a tree holds", good(), func(c *source.PkgChart) {
			c.Spec.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
		}, stalled, "SourceVerified", "VerificationError", "PkgRepository only"},
		{"a kind that holds no charts", good(), func(c *source.PkgChart) { c.Spec.SourceRef.Kind = "ExternalArtifact" }, stalled, "Stalled", "UnsupportedSourceKind", "PkgRepository"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorkshop(t)
			w.put(new(source.ExternalArtifact), "plain", "1", writes([]byte(strings.Repeat("no archive at all\n", 100))))
			w.tree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 1\n"))
			w.tree(new(source.GitRepository), "src", rev1, simple("app", "app", "1.0.0"))
			settled := made("GitRepository/src", "app", nil)
			w.run(settled, source.Stored)
			before := *settled.Artifact()

			w.tree(new(source.GitRepository), "src", rev2, row.tree)
			c := made("GitRepository/src", "app", nil)
			if row.edit != nil {
				row.edit(c)
			}
			w.fails(c, &before, row.outcome, row.reason, row.says)
			if got := c.Status.Condition(row.cond); got.Reason != row.reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}
			if row.outcome == source.Stalled && c.Status.Condition("Stalled").Reason != row.reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}
			if got := c.Status.Condition("Ready"); got.Status != "False" || got.Reason != row.reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}

			w.tree(new(source.GitRepository), "src", rev2, simple("app", "app", "1.2.0"))
			mended := made("GitRepository/src", "app", nil)
			w.run(mended, source.Stored) // and so a stalled object recovers with its source
			if got := conditionsOf(mended); got != "Ready=True/ChartPackageSucceeded ArtifactInStorage=True/ChartPackageSucceeded" {
				t.Errorf("conditions %s", got)
			}
		})
	}
}

// Links in a source never become part of its artifact, nor of a chart.
func TestLinksInTrees(t *testing.T) {
	w := newWorkshop(t)
	w.tree(new(source.GitRepository), "src", rev1, fstest.MapFS{
		"app/Chart.yaml": {Data: []byte("apiVersion: v2\nname: app\nversion: 1.0.0\n")},
		"app/Chart.lock": {Data: []byte("../../etc/passwd"), Mode: os.ModeSymlink | 0o777},
	})
	c := made("GitRepository/src", "app", nil)
	w.run(c, source.Stored)
	if names := strings.Join(w.Names(c.Artifact()), " "); names != "app/Chart.yaml" {
		t.Errorf("files %s", names)
	}
	archive := linked(t)
	w.tree(new(source.GitRepository), "src", rev2, files("app.tgz", string(archive)))
	before := *c.Artifact()
	c.Spec.Chart = "app.tgz"
	w.fails(c, &before, source.Stalled, "InvalidChartReference", "is a link")
}

// What is not there yet, or cannot be read, has its reason too.
func TestSourcesOfChartsThatFail(t *testing.T) {
	damage := func(w *workshop, a *artifact.Artifact) {
		name := filepath.Join(w.Dir, filepath.FromSlash(a.Path))
		text, err := os.ReadFile(name)
		if err == nil {
			text[len(text)/2] ^= 1
			err = os.WriteFile(name, text, 0o600)
		}
		if err != nil {
			w.Fatal(err)
		}
	}
	for _, row := range []struct {
		name    string
		prepare func(w *workshop, src, lib source.Object)
		outcome source.Outcome
		reason  string
		says    string
	}{
		{"no such source", func(w *workshop, _, _ source.Object) { w.objects = w.objects[1:] }, source.Waiting, "SourceUnavailable", "GitRepository/apps/src"},
		{"no such source of values", func(w *workshop, _, _ source.Object) { w.objects = w.objects[:1] }, source.Waiting, "SourceUnavailable", "Bucket/apps/lib"},
		{"no artifact yet", func(_ *workshop, src, _ source.Object) { src.Common().Artifact = nil }, source.Waiting, "NoSourceArtifact", "GitRepository/apps/src has no artifact yet"},
		{"no artifact of values yet", func(_ *workshop, _, lib source.Object) { lib.Common().Artifact = nil }, source.Waiting, "NoSourceArtifact", "Bucket/apps/lib has no artifact yet"},
		{"an artifact that is gone", func(_ *workshop, src, _ source.Object) { src.Artifact().Path = "gitrepository/apps/src/none.tar.gz" }, source.Waiting, "NoSourceArtifact", "gone"},
		{"an artifact without a digest", func(_ *workshop, src, _ source.Object) { src.Artifact().Digest = "" }, source.Failed, "ChartPullError", "no digest"},
		{"an artifact that was damaged", func(w *workshop, src, _ source.Object) { damage(w, src.Artifact()) }, source.Failed, "", ""},
		{"values that were damaged", func(w *workshop, _, lib source.Object) { damage(w, lib.Artifact()) }, source.Failed, "", ""},
		{"an artifact that is no archive", func(w *workshop, _, _ source.Object) {
			w.put(new(source.GitRepository), "src", rev1, writes([]byte(strings.Repeat("no archive at all\n", 100))))
		}, source.Stalled, "InvalidChartReference", "archive of files"},
		{"a circle", func(w *workshop, src, _ source.Object) {
			src.(*source.GitRepository).Spec.Include = []source.GitRepositoryInclude{{Repository: source.IncludeReference{Kind: "PkgChart", Name: "app"}}}
			w.objects = append(w.objects, made("GitRepository/src", "app", nil))
		}, source.Stalled, "SourceUnavailable", "PkgChart/apps/app → GitRepository/apps/src → PkgChart/apps/app"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorkshop(t)
			src, lib := new(source.GitRepository), new(source.Bucket)
			w.tree(src, "src", rev1, simple("app", "app", "1.0.0"))
			w.tree(lib, "lib", rev1, files("x.yaml", "a: 1\n"))
			row.prepare(w, src, lib)
			c := made("GitRepository/src", "app", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:Bucket/lib/x.yaml"} })
			result, err := w.Reconcile(c, w.origin(c))
			step, ok := errors.AsType[*source.StepError](err)
			if !ok || result.Outcome != row.outcome || row.reason != "" && step.Reason != row.reason || !strings.Contains(err.Error(), row.says) {
				t.Fatalf("outcome %q, error %v (%+v)", result.Outcome, err, step)
			}
			if c.Artifact() != nil || c.Status.Condition("FetchFailed").Reason != step.Reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}
		})
	}
}

// A store that fails is to blame itself.
func TestStoreFails(t *testing.T) {
	w := newWorkshop(t)
	w.tree(new(source.GitRepository), "src", rev1, simple("app", "app", "1.0.0"))
	o := w.origin(made("GitRepository/src", "app", nil))
	rev, _, err := o.Resolve(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	c, err := o.Open(t.Context(), rev)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.WriteTo(t.Context(), full{})
	if step, ok := errors.AsType[*source.StepError](err); ok || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v (%+v)", err, step)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// A source whose last run failed has the artifact of before, which is good enough.
func TestLastGoodArtifact(t *testing.T) {
	w := newWorkshop(t)
	src := new(source.GitRepository)
	w.tree(src, "src", rev1, simple("app", "app", "1.0.0"))
	src.Status.Conditions = []source.Condition{{Type: "Ready", Status: "False", Reason: "GitOperationFailed"}}
	c := made("GitRepository/src", "app", nil)
	w.run(c, source.Stored)
	if got := maps.Keys(w.Contents(c.Artifact())); got == nil {
		t.Error("no files")
	}
}
