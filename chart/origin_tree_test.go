package chart_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// The versions of reference A4.
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
			w.tree(new(source.GitRepository), "src", row.revision, simple("charts/app", "app", row.version, "prod.yaml", "a: 2\n"))
			c := made("GitRepository/src", "charts/app", func(s *source.PkgChartSpec) {
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
			if w.opened != opened {
				t.Errorf("an unchanged source was read %d times", w.opened-opened)
			}
		})
	}
}

// Which values there are in the end (reference A14).
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
			w.tree(new(source.GitRepository), "lib", rev2, files("v/x.yaml", "a: x\n"))
			w.tree(new(source.Bucket), "data", "sha256:11", files("y.yaml", "\"y\": 1\n"))
			w.tree(new(source.GitRepository), "src", rev1, simple("app", "app", "1.0.0",
				"p.yaml", "a: 2\nb: {c: 9}\nl: [1, 2]\n", "deep/q.yaml", "b: {d: null}\nl: [3]\n", "values.yaml", "root: true\n"))
			c := made("GitRepository/src", "app", func(s *source.PkgChartSpec) {
				s.ValuesFiles, s.IgnoreMissingValuesFiles = row.values, row.ignore
			})
			w.run(c, source.Stored)
			if got := w.Contents(c.Artifact())["app/values.yaml"]; got != row.want {
				t.Errorf("values\n%s\nwant\n%s", got, row.want)
			}
			want := row.used
			if got := strings.Join(c.Status.ObservedValuesFiles, " "); got != want {
				t.Errorf("observed %q, want %q", got, want)
			}
			w.run(c, source.Unchanged)
		})
	}
}

// What makes a chart anew, and what does not.
func TestWhatRenewsCharts(t *testing.T) {
	bump := func(w *chartSetup, version, revision string, further ...string) {
		w.tree(new(source.GitRepository), "src", revision, simple("app", "app", version, further...))
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
				w.tree(new(source.GitRepository), "lib", rev2, files("x.yaml", "a: 8\n"))
			},
			source.Stored, "changed: values file source:lib/x.yaml"},
		{"something beside the values of another source", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:lib/x.yaml"} },
			func(w *chartSetup, _ *source.PkgChart) {
				w.tree(new(source.GitRepository), "lib", rev2, files("x.yaml", "a: 7\n", "z", "z"))
			}, source.Unchanged, "revision, spec and inputs"},
		{"values that were missing", func(s *source.PkgChartSpec) {
			s.ValuesFiles, s.IgnoreMissingValuesFiles = []string{"source:lib/late.yaml"}, true
		}, func(w *chartSetup, _ *source.PkgChart) {
			w.tree(new(source.GitRepository), "lib", rev2, files("late.yaml", "a: 8\n"))
		}, source.Stored, "changed: values file source:lib/late.yaml"},
		{"another list of values files, by a document with a generation of its own", func(s *source.PkgChartSpec) { s.IgnoreMissingValuesFiles = true },
			func(_ *chartSetup, c *source.PkgChart) { c.Spec.ValuesFiles = []string{"values.yaml"} }, source.Stored, "changed: spec.valuesFiles"},
		{"another generation, with values", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:lib/x.yaml"} },
			func(_ *chartSetup, c *source.PkgChart) { c.Metadata.Generation = 4 }, source.Stored, "the revision changed from 1.0.0+3 to 1.0.0+4"},
		{"another generation, without", nil, func(_ *chartSetup, c *source.PkgChart) { c.Metadata.Generation = 4 }, source.Unchanged, "revision, spec"},
		{"another source", nil, func(w *chartSetup, c *source.PkgChart) {
			w.tree(new(source.Bucket), "src", rev2, simple("app", "app", "1.0.0", "x", "y"))
			c.Spec.SourceRef.Kind = "Bucket"
		}, source.Stored, "version 1.0.0 is another chart: it was that of GitRepository/apps/src:app, is that of Bucket/apps/src:app"},
		{"another path", nil, func(w *chartSetup, c *source.PkgChart) {
			bump(w, "1.0.0", rev1, "other/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.0.0\n")
			c.Spec.Chart = "other"
		}, source.Stored, "version 1.0.0 is another chart: it was that of GitRepository/apps/src:app, is that of GitRepository/apps/src:other"},
		{"another name", nil, func(w *chartSetup, _ *source.PkgChart) {
			w.tree(new(source.GitRepository), "src", rev2, simple("app", "other", "1.0.0"))
		}, source.Stored, "changed: spec.chart"},
		{"a lost artifact", nil, func(w *chartSetup, c *source.PkgChart) {
			if err := w.Store.Remove("pkgchart/apps/app"); err != nil {
				t.Fatal(err)
			}
		}, source.Stored, "the artifact disappeared from storage"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			bump(w, "1.0.0", rev1)
			w.tree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 7\n"))
			c := made("GitRepository/src", "app", row.edit)
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
			if got := c.Status.ObservedSourceArtifactRevision; got != want {
				t.Errorf("observedSourceArtifactRevision %s, want %s", got, want)
			}
			why := result.Why
			if again := w.run(c, source.Unchanged); row.outcome == source.Unchanged && again.Why != why {
				t.Errorf("the next run because %q", again.Why)
			}
		})
	}
}

// The same tree makes the same archive, whoever builds it and when.
func TestSameTreeSameArchive(t *testing.T) {
	var digests []string
	for range 2 {
		w := newChartSetup(t)
		w.tree(new(source.GitRepository), "src", rev1, simple("app", "app", "1.0.0", "app/.helmignore", "*.md\n", "app/x.md", "x", "p.yaml", "a: 3\nz: 1\nk: 1\n"))
		c := made("GitRepository/src", "app", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"p.yaml", "app/values.yaml"} })
		w.run(c, source.Stored)
		digests = append(digests, c.Artifact().Digest)
		if names := strings.Join(w.Names(c.Artifact()), " "); names != "app/.helmignore app/Chart.yaml app/templates/all.yaml app/values.yaml" {
			t.Errorf("files %s", names)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("digests %v", digests)
	}
}

// An archive that nothing changes stays as it is.
func TestArchivesInTrees(t *testing.T) {
	w := newChartSetup(t)
	archive := tgz(t, map[string]string{
		"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 2.0.0\ndescription:   odd   spacing\n", "app/values.yaml": "a: 1\n", "app/templates/x": "x"})
	w.tree(new(source.GitRepository), "src", rev1, files("charts/app-2.0.0.tgz", string(archive), "p.yaml", "a: 2\n"))
	c := made("GitRepository/src", "/charts/app-2.0.0.tgz", nil)
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
	if got := c.Status.Condition("Ready").Reason; got != "ChartPackageSucceeded" {
		t.Errorf("reason %s", got)
	}
}

// The layer of a chart, copied from a registry, is the chart.
func TestCopiedLayers(t *testing.T) {
	archive := tgz(t, map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 2.0.0\n", "app/values.yaml": "a: 1\n", "app/prod.yaml": "a: 2\n"})
	for _, row := range []struct {
		name, operation, in string
		values              []string
		verbatim            bool
	}{
		{"copied", source.LayerCopy, "app", nil, true},
		{"extracted", "", "app", nil, false},
		{"copied, with values", source.LayerCopy, "app", []string{"app/prod.yaml"}, false},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			repository := new(source.OCIRepository)
			repository.Spec.LayerSelector = &source.OCILayerSelector{Operation: row.operation}
			w.put(repository, "src", "2.0.0@sha256:0123456789abcdef", writes(archive))
			c := made("OCIRepository/src", row.in, func(s *source.PkgChartSpec) { s.ValuesFiles = row.values })
			w.run(c, source.Stored)
			if got := w.bytes(c.Artifact()) == string(archive); got != row.verbatim {
				t.Errorf("verbatim: %v", got)
			}
			want := map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion: 2.0.0\n", "app/values.yaml": "a: 1\n", "app/prod.yaml": "a: 2\n"}
			if row.values != nil {
				want["app/Chart.yaml"], want["app/values.yaml"] = "apiVersion: v2\nname: app\nversion: 2.0.0+3\n", "a: 2\n"
			}
			if got := w.Contents(c.Artifact()); !maps.Equal(got, want) {
				t.Errorf("%v", got)
			}
		})
	}
}

// wholeYAML is the Chart.yaml of a chart that depends on others: a list of
// YAML flow maps.
func wholeYAML(dependencies ...string) string {
	return "apiVersion: v2\nname: whole\nversion: 1.0.0\ndependencies:\n- " + strings.Join(dependencies, "\n- ") + "\n"
}

// An umbrellaTest is a chartSetup with two repositories and a registry, each with its
// own credentials.
type umbrellaTest struct {
	*chartSetup
	a, b     *testenv.Charts
	registry *testenv.Registry
}

const (
	keyOfA = "cAnArY-of-a/+1"
	keyOfB = "cAnArY-of-b/+2"
	keyOfC = "cAnArY-of-c/+3"
)

func newUmbrellaTest(t *testing.T) *umbrellaTest {
	e := &umbrellaTest{chartSetup: newChartSetup(t, keyOfA, keyOfB, keyOfC),
		a:        testenv.StartCharts(t, testenv.ChartsConfig{Username: "ann", Password: keyOfA}),
		b:        testenv.StartCharts(t, testenv.ChartsConfig{Username: "bob", Password: keyOfB}),
		registry: testenv.StartRegistry(t, testenv.RegistryConfig{Username: "eve", Password: keyOfC}),
	}
	e.a.Put(testenv.ChartVersion{Name: "web", Version: "1.2.0"})
	e.b.Put(testenv.ChartVersion{Name: "db", Version: "0.3.1"})
	push(e.registry, "2.0.0+b.1", archived(t, "2.0.0+b.1"))
	for _, r := range []struct{ name, url, kind, user, password string }{
		{"a", e.a.URL(), "", "ann", keyOfA}, {"b", e.b.URL() + "/", "", "bob", keyOfB}, {"c", e.registry.URL("team"), source.RepositoryOCI, "eve", keyOfC},
	} {
		e.add(&source.PkgRepository{Spec: source.PkgRepositorySpec{
			URL: r.url, Type: r.kind, Insecure: r.kind != "", SecretRef: &source.LocalReference{Name: r.name},
		}}, r.name)
		e.secrets["apps/"+r.name] = source.Secret{Data: map[string][]byte{"username": []byte(r.user), "password": []byte(r.password)}}
	}
	return e
}

// files returns a source with chart whole, which needs a chart of each kind.
func (e *umbrellaTest) files() fstest.MapFS {
	tree := simple("deploy/lib", "lib", "0.1.0", "deploy/whole/Chart.yaml", wholeYAML(
		fmt.Sprintf("{name: web, version: ^1, repository: %q, alias: front, condition: front.enabled}", e.a.URL()),
		`{name: db, version: 0.x, repository: "@b"}`,
		fmt.Sprintf("{name: app, version: 2.x, repository: %q}", e.registry.URL("team")),
		`{name: lib, version: "*", repository: "file://../lib"}`,
	))
	tree["deploy/whole/values.yaml"] = &fstest.MapFile{Data: []byte("a: 1\n"), Mode: 0o644}
	return tree
}

// holds lists NAME VERSION of the charts within the artifact of c, as the
// package manager loads it.
func (e *umbrellaTest) holds(c *source.PkgChart) (list []string) {
	e.Helper()
	in, err := e.Store.Open(*c.Artifact())
	if err != nil {
		e.Fatal(err)
	}
	defer in.Close()
	text, err := io.ReadAll(in)
	if err != nil {
		e.Fatal(err)
	}
	whole, err := loader.LoadArchive(bytes.NewReader(text))
	if err != nil {
		e.Fatal(err)
	}
	for _, d := range whole.Dependencies() {
		list = append(list, d.Name()+" "+d.Metadata.Version)
	}
	slices.Sort(list)
	return list
}

func TestDependenciesWhateverTheSource(t *testing.T) {
	e := newUmbrellaTest(t)
	var first string
	for _, from := range []struct {
		kind string
		obj  source.Object
	}{{"GitRepository", new(source.GitRepository)}, {"Bucket", new(source.Bucket)}, {"OCIRepository", new(source.OCIRepository)}} {
		e.tree(from.obj, "src", rev1, e.files())
		c := made(from.kind+"/src", "deploy/whole", nil)
		c.Metadata.Name = strings.ToLower(from.kind)
		e.run(c, source.Stored)
		if got, want := e.holds(c), []string{"app 2.0.0+b.1", "db 0.3.1", "lib 0.1.0", "web 1.2.0"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", from.kind, got, want)
		}
		if first == "" {
			first = c.Artifact().Digest
		}
		if c.Artifact().Digest != first {
			t.Errorf("%s: other bytes", from.kind)
		}
		e.a.Reset()
		e.run(c, source.Unchanged)
		if n := e.a.Count(); n != 0 {
			t.Errorf("%s: %d requests for what did not change", from.kind, n)
		}
	}
}

// TestDependenciesThatCannotBeHad: nothing is stored, the run is tried again, and
// once the reason is gone the chart is built.
func TestDependenciesThatCannotBeHad(t *testing.T) {
	const failed = "Ready=False/DependencyBuildError Reconciling=True/ProgressingWithRetry BuildFailed=True/DependencyBuildError"
	for _, row := range []struct {
		name  string
		spoil func(*umbrellaTest) (mend func())
		says  []string
	}{
		{"a refused password", func(e *umbrellaTest) func() {
			good := e.secrets["apps/b"]
			e.secrets["apps/b"] = source.Secret{Data: map[string][]byte{"username": []byte("bob"), "password": []byte(keyOfA)}}
			return func() { e.secrets["apps/b"] = good }
		}, []string{`dependency "db" "0.x" of "whole" from "@b"`, "401"}},
		{"a repository that nobody named", func(e *umbrellaTest) func() {
			all := e.objects
			e.objects = slices.DeleteFunc(slices.Clone(all), func(o source.Object) bool { return o.Head().Metadata.Name == "b" })
			return func() { e.objects = all }
		}, []string{`dependency "db"`, "PkgRepository/apps/b"}},
		{"a stale lock", func(e *umbrellaTest) func() {
			tree := e.files()
			tree["deploy/whole/Chart.lock"] = &fstest.MapFile{Data: []byte("dependencies:\n- {name: lib, version: 0.1.0, repository: \"file://../lib\"}\ndigest: sha256:00\ngenerated: \"2026-01-01T00:00:00Z\"\n"), Mode: 0o644}
			e.tree(new(source.GitRepository), "src", rev2, tree)
			return func() { e.tree(new(source.GitRepository), "src", rev1, e.files()) }
		}, []string{"Chart.lock is out of sync with Chart.yaml: run helm dependency update"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newUmbrellaTest(t)
			e.tree(new(source.GitRepository), "src", rev1, e.files())
			mend := row.spoil(e)
			c := made("GitRepository/src", "deploy/whole", nil)
			e.fails(c, nil, source.Failed, "DependencyBuildError", row.says...)
			if got := conditionsOf(c); !strings.HasPrefix(got, failed) {
				t.Errorf("conditions %s", got)
			}
			mend()
			e.run(c, source.Stored)
			if got := e.holds(c); len(got) != 4 {
				t.Errorf("%q", got)
			}
		})
	}
}

// TestCredentialsInTheURLOfADependency do not show, whatever comes of them.
func TestCredentialsInTheURLOfADependency(t *testing.T) {
	for _, scheme := range []string{"http", "oci", "ftp"} {
		e := newUmbrellaTest(t)
		e.tree(new(source.GitRepository), "src", rev1, simple("lib", "lib", "0.1.0", "whole/Chart.yaml",
			wholeYAML(fmt.Sprintf("{name: none, version: ^1, repository: %q}", strings.Replace(e.a.URL(), "http://", scheme+"://ann:cAnArY-of-a%2F+1@", 1)))))
		c := made("GitRepository/src", "whole", nil)
		e.fails(c, nil, source.Failed, "DependencyBuildError", `"none"`)
		if shown := e.JSON(c.Status) + e.JSON(e.Events); strings.Contains(shown, "cAnArY") {
			t.Errorf("%s: %s", scheme, shown)
		}
	}
}
