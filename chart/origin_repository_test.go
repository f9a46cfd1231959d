package chart_test

import (
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// indexed makes the PkgRepository src follow a server.
func (w *workshop) indexed(server *testenv.Charts) *source.PkgRepository {
	w.Helper()
	repo := &source.PkgRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgRepository"},
		Spec:   source.PkgRepositorySpec{URL: server.URL()},
	}
	w.add(repo, "src")
	w.refresh(repo, source.Stored)
	return repo
}

// refresh brings the index of a repository up to date.
func (w *workshop) refresh(repo *source.PkgRepository, want source.Outcome) {
	w.Helper()
	env := w.env()
	env.Sources = nil
	result, err := w.Reconcile(repo, chart.NewRepository(repo, env))
	if result.Outcome != want {
		w.Fatalf("repository: outcome %q, error %v; want %q", result.Outcome, err, want)
	}
}

// pushed makes the PkgRepository src the charts below HOST/team of a registry.
func (w *workshop) pushed(g *testenv.Registry) *source.PkgRepository {
	repo := &source.PkgRepository{Spec: source.PkgRepositorySpec{URL: g.URL("team"), Type: source.RepositoryOCI, Insecure: true}}
	w.add(repo, "src")
	return repo
}

// push pushes an archive as a version of team/app.
func push(g *testenv.Registry, version string, archive []byte) ocispec.Descriptor {
	return g.Push("team/app", strings.ReplaceAll(version, "+", "_"), testenv.Manifest{
		Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: []byte("{}")},
		Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: archive}},
	})
}

// archived returns the archive of a version of app.
func archived(t *testing.T, version string, further ...string) []byte {
	all := map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion:   " + version + " # odd\n", "app/values.yaml": "a: 1\nb: {c: 2}\n", "app/prod.yaml": "b: {d: 3}\n"}
	for i := 0; i < len(further); i += 2 {
		all["app/"+further[i]] = further[i+1]
	}
	return testenv.ChartArchive(t, all)
}

// The versions of reference A4, and the archive as it came where nothing
// changes it.
func TestVersionsFromRepositories(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	archives := map[string][]byte{}
	for _, v := range []string{"1.2.3", "2.0.0-rc.1", "3.0.0+b.1"} {
		archives[v] = archived(t, v)
		server.Put(testenv.ChartVersion{Name: "app", Version: v, Archive: archives[v]})
		push(registry, v, archives[v])
	}
	for _, row := range []struct {
		name, want, strategy, version string
		values                        []string
		own                           string // values.yaml, "" where it is that of the archive
	}{
		{"the newest stable one", "", "", "3.0.0+b.1", nil, ""},
		{"by its name", "1.2.3", "", "1.2.3", nil, ""},
		{"a range", "^1", "", "1.2.3", nil, ""},
		{"a pre-release", ">=2.0.0-0 <3", "", "2.0.0-rc.1", nil, ""},
		{"by revision, which is the same", "^1", source.StrategyRevision, "1.2.3", nil, ""},
		{"its own values alone", "^1", "", "1.2.3", []string{"values.yaml"}, ""},
		{"values", "^1", "", "1.2.3+3", []string{"prod.yaml"}, "b:\n  d: 3\n"},
		{"values on top of its own", "^3", source.StrategyRevision, "3.0.0+3", []string{"values.yaml", "prod.yaml"}, "a: 1\nb:\n  c: 2\n  d: 3\n"},
		{"values of another source", "^1", "", "1.2.3+3", []string{"values.yaml", "source:lib/x.yaml"}, "a: 7\nb:\n  c: 2\n"},
	} {
		for _, kind := range []string{"index", "registry"} {
			t.Run(kind+": "+row.name, func(t *testing.T) {
				w := newWorkshop(t)
				w.tree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 7\n"))
				observed := ""
				if kind == "index" {
					observed = w.indexed(server).Artifact().Revision
				} else {
					w.pushed(registry)
				}
				c := made("HelmRepository/src", "app", func(s *source.PkgChartSpec) {
					s.Version, s.ReconcileStrategy, s.ValuesFiles = row.want, row.strategy, row.values
				})
				w.run(c, source.Stored)
				a := c.Artifact()
				if a.Revision != row.version || !strings.HasSuffix(a.Path, "/app-"+row.version+".tgz") || c.Status.ObservedSourceArtifactRevision != observed {
					t.Errorf("revision %s at %s, want %s; observed %q", a.Revision, a.Path, row.version, c.Status.ObservedSourceArtifactRevision)
				}
				upstream := archives[row.version]
				if row.own == "" && w.bytes(a) != string(upstream) {
					t.Errorf("the archive is not that of the repository")
				}
				if got := w.Contents(a); row.own != "" && (got["app/values.yaml"] != row.own || got["app/Chart.yaml"] != "apiVersion: v2\nname: app\nversion:   "+row.version+" # odd\n") {
					t.Errorf("%v", got)
				}
				reason := map[bool]string{true: "ChartPullSucceeded", false: "ChartPackageSucceeded"}[row.own == ""]
				if got := c.Status.Condition("Ready"); got.Reason != reason || !strings.HasPrefix(got.Message, map[bool]string{true: "pulled", false: "packaged"}[row.own == ""]+" 'app' chart with version '"+row.version+"'") {
					t.Errorf("%+v", got)
				}
				server.Reset()
				registry.Reset()
				opened := w.opened
				w.run(c, source.Unchanged)
				if w.opened != opened || server.Count() != 0 || registry.Count(testenv.GetManifest)+registry.Count(testenv.GetBlob) != 0 {
					t.Errorf("unchanged: %d artifacts read, %d requests to the server", w.opened-opened, server.Count())
				}
				if kind == "registry" && row.want == "1.2.3" && registry.Count() != 1 {
					t.Errorf("unchanged: %d requests to the registry", registry.Count())
				}
			})
		}
	}
}

// A version that is published again is noticed, whatever published it.
func TestPublishedAgain(t *testing.T) {
	first, second := archived(t, "1.0.0"), archived(t, "1.0.0", "new.yaml", "x")
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: first})
	push(registry, "1.0.0", first)
	t.Run("index", func(t *testing.T) {
		w := newWorkshop(t)
		repo := w.indexed(server)
		c := made("PkgRepository/src", "app", nil)
		w.run(c, source.Stored)
		before := *c.Artifact()
		server.Put(testenv.ChartVersion{Name: "other", Version: "1.0.0"})
		w.refresh(repo, source.Stored)
		w.run(c, source.Unchanged)
		if c.Status.ObservedSourceArtifactRevision != repo.Artifact().Revision {
			t.Errorf("observed %s, the repository is at %s", c.Status.ObservedSourceArtifactRevision, repo.Artifact().Revision)
		}
		server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: second})
		w.refresh(repo, source.Stored)

		server.RemoveFile("app-1.0.0.tgz")
		w.fails(c, &before, source.Failed, "ChartPullError", "404")
		if got := c.Status.Condition("ArtifactOutdated"); got.Reason != "NewChart" || !strings.HasPrefix(got.Message, "version 1.0.0 was published again: its digest was sha256:") {
			t.Errorf("%+v", got)
		}
		server.PutFile("app-1.0.0.tgz", second)
		result := w.run(c, source.Stored)
		if !strings.HasPrefix(result.Why, "version 1.0.0 was published again: its digest was sha256:") || !result.Changed || w.bytes(c.Artifact()) != string(second) {
			t.Errorf("%+v", result)
		}
		w.run(c, source.Unchanged)
	})
	t.Run("registry", func(t *testing.T) {
		w := newWorkshop(t)
		w.pushed(registry)
		c := made("PkgRepository/src", "app", nil)
		w.run(c, source.Stored)
		push(registry, "1.0.0", second)
		result := w.run(c, source.Stored)
		if !strings.HasPrefix(result.Why, "version 1.0.0 was published again: its digest was sha256:") || w.bytes(c.Artifact()) != string(second) {
			t.Errorf("%+v", result)
		}
		w.run(c, source.Unchanged)
	})
	t.Run("from an index to a registry", func(t *testing.T) {
		w := newWorkshop(t)
		w.indexed(server)
		c := made("PkgRepository/src", "app", nil)
		w.run(c, source.Stored)
		digest := c.Artifact().Digest
		w.pushed(registry)
		if result := w.run(c, source.Stored); result.Changed || c.Artifact().Digest != digest || c.Status.ObservedSourceArtifactRevision != "" {
			t.Errorf("%+v, observed %q", result, c.Status.ObservedSourceArtifactRevision)
		}
	})
}

// Which of the values files there are is known once the chart is opened, and
// remembered.
func TestMissingValuesInRepositories(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: archived(t, "1.0.0")})
	w := newWorkshop(t)
	w.indexed(server)
	c := made("PkgRepository/src", "app", func(s *source.PkgChartSpec) {
		s.ValuesFiles, s.IgnoreMissingValuesFiles = []string{"no.yaml", "prod.yaml", "./no/../no.yaml"}, true
	})
	for _, outcome := range []source.Outcome{source.Stored, source.Unchanged, source.Unchanged} {
		w.run(c, outcome)
		if got := strings.Join(c.Status.ObservedValuesFiles, " "); got != "prod.yaml" {
			t.Errorf("observed %q", got)
		}
		if got := c.Status.Condition("Ready").Message; got != "packaged 'app' chart with version '1.0.0+3' and merged values files [prod.yaml]" {
			t.Errorf("message %q", got)
		}
	}
	before := *c.Artifact()
	c.Spec.IgnoreMissingValuesFiles = false
	c.Metadata.Generation++
	w.fails(c, &before, source.Stalled, "ValuesFilesError", `"no.yaml"`)
	if got := conditionsOf(c); got != "Ready=False/ValuesFilesError Stalled=True/ValuesFilesError BuildFailed=True/ValuesFilesError ArtifactOutdated=True/NewChart ArtifactInStorage=True/ChartPackageSucceeded" {
		t.Errorf("conditions %s", got)
	}
	c.Spec.ValuesFiles = []string{"prod.yaml", "values.yaml"}
	w.run(c, source.Stored)
	if got := strings.Join(c.Status.ObservedValuesFiles, " "); got != "prod.yaml values.yaml" {
		t.Errorf("observed %q", got)
	}
}

// A version that an index lacks is stalled, and recovers with the index.
func TestVersionsThatCome(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0"})
	w := newWorkshop(t)
	repo := w.indexed(server)
	c := made("PkgRepository/src", "app", func(s *source.PkgChartSpec) { s.Version = "^2" })
	w.fails(c, nil, source.Stalled, "InvalidChartReference", "^2")
	if c.Status.ObservedSourceArtifactRevision != repo.Artifact().Revision {
		t.Errorf("observed %q", c.Status.ObservedSourceArtifactRevision)
	}
	server.Put(testenv.ChartVersion{Name: "app", Version: "2.0.0"})
	w.refresh(repo, source.Stored)
	w.run(c, source.Stored)
	if got := conditionsOf(c); got != "Ready=True/ChartPullSucceeded ArtifactInStorage=True/ChartPullSucceeded" {
		t.Errorf("conditions %s", got)
	}
}
