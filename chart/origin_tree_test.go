package chart_test

import (
	"context"
	"fmt"
	"log"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// TestVersionsFromTrees checks the versions of reference A4.
func TestVersionsFromTrees(t *testing.T) {
	for _, row := range []struct {
		name, strategy, version, want string
		values                        []string
		revision                      string
	}{
		{"no values, by version", "", "1.2.3", "1.2.3", nil, rev1},
		{"no values, by revision", source.StrategyRevision, "1.2.3", "1.2.3+0123456789ab", nil, rev1},
		{"values, by version", source.StrategyChartVersion, "1.2.3", "1.2.3+3", []string{"prod.yaml"}, rev1},
		{"values, by revision", source.StrategyRevision, "1.2.3", "1.2.3+0123456789ab.3", []string{"prod.yaml"}, rev1},
		{"its own values alone", "", "1.2.3", "1.2.3", []string{"values.yaml"}, rev1},
		{"its own values alone, spelled otherwise", "", "1.2.3", "1.2.3", []string{"./values.yaml"}, rev1},
		{"a leading v stays", "", "v1.2.3", "v1.2.3", nil, rev1},
		{"a leading v is lost when it is stamped", source.StrategyRevision, "v1.2.3", "1.2.3+0123456789ab", nil, rev1},
		{"build metadata are replaced", source.StrategyRevision, "1.2.3-rc.1+x.y", "1.2.3-rc.1+abcdef012345", nil, "sha256:abcdef0123456789"},
		{"build metadata stay", "", "1.2.3+x.y", "1.2.3+x.y", nil, rev1},
		{"a revision that is only a commit", source.StrategyRevision, "1.2.3", "1.2.3+0123456789ab", nil, "sha1:0123456789abcdef0123456789abcdef01234567"},
		{"a revision in an old spelling", source.StrategyRevision, "1.2.3", "1.2.3+0123456789ab", nil, "main/0123456789abcdef0123456789abcdef01234567"},
		{"a tag and a digest", source.StrategyRevision, "1.2.3", "1.2.3+fedcba987654", nil, "v1@sha256:fedcba9876543210"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			w.putTree(new(source.GitRepository), "src", row.revision, simpleChart("charts/app", "app", row.version, "prod.yaml", "a: 2\n"))
			c := newPkgChart("GitRepository/src", "charts/app", func(s *source.PkgChartSpec) {
				s.ReconcileStrategy, s.ValuesFiles = row.strategy, row.values
			})
			w.run(c, source.Stored)
			a := c.Artifact()
			if a.Revision != row.want || !strings.HasSuffix(a.Path, "/app-"+row.want+".tgz") {
				t.Errorf("revision %s at %s, want %s", a.Revision, a.Path, row.want)
			}
			if text := w.Contents(a)["app/Chart.yaml"]; !strings.Contains(text, "version: "+row.want+"\n") {
				t.Errorf("Chart.yaml:\n%s", text)
			}
			opened := w.opened
			w.run(c, source.Unchanged)
			testenv.Equal(t, w.opened, opened, "readings of an unchanged source")
		})
	}
}

// TestValuesFromTrees checks the resulting values (reference A14).
func TestValuesFromTrees(t *testing.T) {
	for _, row := range []struct {
		name   string
		values []string
		ignore bool
		want   string // values.yaml
		used   string
	}{
		{"the chart's own", nil, false, "a: 1\nb: {c: 2, d: 3}\n", ""},
		{"one of the root", []string{"p.yaml"}, false, "a: 2\nb:\n  c: 9\nl:\n- 1\n- 2\n", "p.yaml"},
		{"maps are merged, lists are not, null stays", []string{"p.yaml", "deep/q.yaml"}, false, "a: 2\nb:\n  c: 9\n  d: null\nl:\n- 3\n", "p.yaml deep/q.yaml"},
		{"the last wins", []string{"deep/q.yaml", "p.yaml"}, false, "a: 2\nb:\n  c: 9\n  d: null\nl:\n- 1\n- 2\n", "deep/q.yaml p.yaml"},
		{"values.yaml is that of the root", []string{"values.yaml", "deep/q.yaml"}, false, "b:\n  d: null\nl:\n- 3\nroot: true\n", "values.yaml deep/q.yaml"},
		{"a leading slash is the root", []string{"/values.yaml"}, false, "root: true\n", "/values.yaml"},
		{"the root and below, by leading slashes", []string{"/values.yaml", "/deep/q.yaml"}, false, "b:\n  d: null\nl:\n- 3\nroot: true\n", "/values.yaml /deep/q.yaml"},
		{"missing at the root", []string{"/none.yaml", "deep/q.yaml"}, true, "b:\n  d: null\nl:\n- 3\n", "deep/q.yaml"},
		{"the chart's own by its path", []string{"app/values.yaml", "deep/q.yaml"}, false, "a: 1\nb:\n  c: 2\n  d: null\nl:\n- 3\n", "app/values.yaml deep/q.yaml"},
		{"of other sources", []string{"p.yaml", "source:lib/v/x.yaml", "source:Bucket/data/y.yaml"}, false, "a: x\nb:\n  c: 9\nl:\n- 1\n- 2\n\"y\": 1\n", "p.yaml source:lib/v/x.yaml source:Bucket/data/y.yaml"},
		{"those that are missing do not count", []string{"no.yaml", "p.yaml", "source:lib/no.yaml"}, true, "a: 2\nb:\n  c: 9\nl:\n- 1\n- 2\n", "p.yaml"},
		{"all are missing", []string{"no.yaml"}, true, "a: 1\nb: {c: 2, d: 3}\n", ""},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			w.putTree(new(source.GitRepository), "lib", rev2, files("v/x.yaml", "a: x\n"))
			w.putTree(new(source.Bucket), "data", "sha256:11", files("y.yaml", "\"y\": 1\n"))
			w.putTree(new(source.GitRepository), "src", rev1, simpleChart("app", "app", "1.0.0",
				"p.yaml", "a: 2\nb: {c: 9}\nl: [1, 2]\n", "deep/q.yaml", "b: {d: null}\nl: [3]\n", "values.yaml", "root: true\n"))
			c := newPkgChart("GitRepository/src", "app", func(s *source.PkgChartSpec) {
				s.ValuesFiles, s.IgnoreMissingValuesFiles = row.values, row.ignore
			})
			w.run(c, source.Stored)
			testenv.Equal(t, w.Contents(c.Artifact())["app/values.yaml"], row.want, "values")
			want := row.used
			testenv.Equal(t, strings.Join(c.Status.ObservedValuesFiles, " "), want, "observed")
			w.run(c, source.Unchanged)
		})
	}
}

// TestSameTreeSameArchive builds the same archive from the same tree, on any machine and at
// any time.
func TestSameTreeSameArchive(t *testing.T) {
	build := func() string {
		w := newChartSetup(t)
		w.putTree(new(source.GitRepository), "src", rev1, simpleChart("app", "app", "1.0.0", "app/.helmignore", "*.md\n", "app/x.md", "x", "p.yaml", "a: 3\nz: 1\nk: 1\n"))
		c := newPkgChart("GitRepository/src", "app", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"p.yaml", "app/values.yaml"} })
		w.run(c, source.Stored)
		return c.Artifact().Digest
	}
	testenv.Equal(t, build(), build())
}

// TestWhatRenewsCharts checks which changes build a chart again.
func TestWhatRenewsCharts(t *testing.T) {
	bump := func(w *chartSetup, version, revision string, further ...string) {
		w.putTree(new(source.GitRepository), "src", revision, simpleChart("app", "app", version, further...))
	}
	for _, row := range []struct {
		name    string
		edit    func(*source.PkgChartSpec)
		then    func(w *chartSetup, c *source.PkgChart)
		outcome source.Outcome
		why     string
	}{
		{"nothing", nil, func(*chartSetup, *source.PkgChart) {}, source.Unchanged, "revision, spec and inputs are those"},
		{"another version", nil, func(w *chartSetup, _ *source.PkgChart) { bump(w, "1.1.0", rev2) }, source.Stored, "the revision changed from 1.0.0 to 1.1.0"},
		{"a commit without another version", nil, func(w *chartSetup, _ *source.PkgChart) { bump(w, "1.0.0", rev2, "x", "y") }, source.Unchanged,
			"the source is at " + rev2 + ", and the chart's version still 1.0.0: reconcileStrategy ChartVersion makes a new artifact when the version changes"},
		{"a commit, by revision", func(s *source.PkgChartSpec) { s.ReconcileStrategy = source.StrategyRevision },
			func(w *chartSetup, _ *source.PkgChart) { bump(w, "1.0.0", rev2) }, source.Stored, "the revision changed from 1.0.0+0123456789ab to 1.0.0+89abcdef0123"},
		{"an include, by revision", func(s *source.PkgChartSpec) { s.ReconcileStrategy = source.StrategyRevision },
			func(w *chartSetup, _ *source.PkgChart) { bump(w, "1.0.0", rev1, "x", "y") }, source.Stored, "revision " + rev1 + " of GitRepository/apps/src has other content: its digest was sha256:"},
		{"values of another source", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:lib/x.yaml"} },
			func(w *chartSetup, _ *source.PkgChart) {
				w.putTree(new(source.GitRepository), "lib", rev2, files("x.yaml", "a: 8\n"))
			},
			source.Stored, "changed: values file source:lib/x.yaml"},
		{"something beside the values of another source", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:lib/x.yaml"} },
			func(w *chartSetup, _ *source.PkgChart) {
				w.putTree(new(source.GitRepository), "lib", rev2, files("x.yaml", "a: 7\n", "z", "z"))
			}, source.Unchanged, "revision, spec and inputs"},
		{"values that were missing", func(s *source.PkgChartSpec) {
			s.ValuesFiles, s.IgnoreMissingValuesFiles = []string{"source:lib/late.yaml"}, true
		}, func(w *chartSetup, _ *source.PkgChart) {
			w.putTree(new(source.GitRepository), "lib", rev2, files("late.yaml", "a: 8\n"))
		}, source.Stored, "changed: values file source:lib/late.yaml"},
		{"another list of values files, by a document with a generation of its own", func(s *source.PkgChartSpec) { s.IgnoreMissingValuesFiles = true },
			func(_ *chartSetup, c *source.PkgChart) { c.Spec.ValuesFiles = []string{"values.yaml"} }, source.Stored, "changed: spec.valuesFiles"},
		{"another generation, with values", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:lib/x.yaml"} },
			func(_ *chartSetup, c *source.PkgChart) { c.Metadata.Generation = 4 }, source.Stored, "the revision changed from 1.0.0+3 to 1.0.0+4"},
		{"another generation, without", nil, func(_ *chartSetup, c *source.PkgChart) { c.Metadata.Generation = 4 }, source.Unchanged, "revision, spec"},
		{"another source", nil, func(w *chartSetup, c *source.PkgChart) {
			w.putTree(new(source.Bucket), "src", rev2, simpleChart("app", "app", "1.0.0", "x", "y"))
			c.Spec.SourceRef.Kind = "Bucket"
		}, source.Stored, "version 1.0.0 is another chart: it was that of GitRepository/apps/src:app, is that of Bucket/apps/src:app"},
		{"another path", nil, func(w *chartSetup, c *source.PkgChart) {
			bump(w, "1.0.0", rev1, "other/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")
			c.Spec.Chart = "other"
		}, source.Stored, "version 1.0.0 is another chart: it was that of GitRepository/apps/src:app, is that of GitRepository/apps/src:other"},
		{"another name", nil, func(w *chartSetup, _ *source.PkgChart) {
			w.putTree(new(source.GitRepository), "src", rev2, simpleChart("app", "other", "1.0.0"))
		}, source.Stored, "changed: spec.chart"},
		{"a lost artifact", nil, func(w *chartSetup, c *source.PkgChart) {
			must(t, w.Store.Remove("pkgchart/apps/app"))
		}, source.Stored, "the artifact disappeared from storage"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			bump(w, "1.0.0", rev1)
			w.putTree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 7\n"))
			c := newPkgChart("GitRepository/src", "app", row.edit)
			w.run(c, source.Stored)
			row.then(w, c)
			result := w.run(c, row.outcome)
			if !strings.HasPrefix(result.Why, row.why) {
				t.Errorf("because %q, want %q", result.Why, row.why)
			}
			want := ""
			for _, obj := range w.objects {
				if ref, _ := c.Source(); source.ReferenceTo(obj) == ref {
					want = obj.Artifact().Revision
				}
			}
			testenv.Equal(t, c.Status.ObservedSourceArtifactRevision, want, "observedSourceArtifactRevision")
			reason := result.Why
			if again := w.run(c, source.Unchanged); row.outcome == source.Unchanged && again.Why != reason {
				t.Errorf("the next run because %q", again.Why)
			}
		})
	}
}

// TestArchivesInTrees keeps an archive unchanged if nothing changes it.
func TestArchivesInTrees(t *testing.T) {
	w := newChartSetup(t)
	archive := tgz(t, map[string]string{
		"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 2.0.0\ndescription:   odd   spacing\n", "app/values.yaml": "a: 1\n", "app/templates/x": "x"})
	w.putTree(new(source.GitRepository), "src", rev1, files("charts/app-2.0.0.tgz", string(archive), "p.yaml", "a: 2\n"))
	c := newPkgChart("GitRepository/src", "/charts/app-2.0.0.tgz", nil)
	w.run(c, source.Stored)
	if got := w.bytes(c.Artifact()); got != string(archive) {
		t.Errorf("the archive has %d bytes, it had %d", len(got), len(archive))
	}
	if got := c.Status.Condition("Ready"); got.Reason != "ChartPullSucceeded" || got.Message != "pulled 'app' chart with version '2.0.0'" {
		t.Errorf("%+v", got)
	}
	c.Spec.ValuesFiles = []string{"p.yaml"}
	w.run(c, source.Stored)
	if got := w.Contents(c.Artifact()); got["app/values.yaml"] != "a: 2\n" || !strings.Contains(got["app/Chart.yaml"], "version: 2.0.0+3\ndescription:   odd   spacing\n") {
		t.Errorf("%v", got)
	}
	testenv.Equal(t, c.Status.Condition("Ready").Reason, "ChartPackageSucceeded", "reason")
}

// TestCredentialsInTheURLOfADependency checks that they appear nowhere, whatever the
// outcome.
func TestCredentialsInTheURLOfADependency(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	for _, scheme := range []string{"http", "oci", "ftp"} {
		w := newChartSetup(t, "cAnArY")
		at := strings.Replace(server.URL(), "http://", scheme+"://ann:cAnArY-of-a%2F+1@", 1)
		w.putTree(new(source.GitRepository), "src", rev1, simpleChart("lib", "lib", "0.1.0", "whole/Chart.yaml",
			fmt.Sprintf("apiVersion: v2\nname: whole\nversion: 1.0.0\ndependencies:\n- {name: none, version: ^1, repository: %q}\n", at)))
		w.fails(newPkgChart("GitRepository/src", "whole", nil), nil, source.Failed, "DependencyBuildError", `"none"`)
	}
}

// A chart in a repository gets values from the repository, whose index is updated first.
func Example() {
	var set source.Set
	if err := set.Decode("charts.yaml", strings.NewReader(`
apiVersion: source.headgate.dev/v1
kind: PkgRepository
metadata: {name: charts}
spec: {url: "https://charts.example.org/stable", interval: 10m}
---
apiVersion: source.headgate.dev/v1
kind: PkgChart
metadata: {name: app}
spec:
  chart: app
  version: ^1.2
  interval: 10m
  sourceRef: {kind: PkgRepository, name: charts}
  valuesFiles: [values.yaml, values-prod.yaml]
`)); err != nil {
		log.Fatal(err)
	}
	store, err := artifact.OpenStore(artifact.StoreConfig{Dir: "store"})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()
	env := source.Env{Sources: &source.Inventory{Objects: set.Objects, Store: store}}
	reconciler := source.Reconciler{Store: store}
	charts, app := set.Objects[0].(*source.PkgRepository), set.Objects[1].(*source.PkgChart)
	if _, err := reconciler.Reconcile(context.Background(), charts, chart.NewRepository(charts, env)); err != nil {
		log.Fatal(err)
	}
	if _, err := reconciler.Reconcile(context.Background(), app, chart.New(app, env, nil)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(app.Status.Artifact.Path)
}
