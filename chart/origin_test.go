package chart_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// addIndexRepository adds the PkgRepository src, which follows a server.
func (w *chartSetup) addIndexRepository(server *testenv.Charts) *source.PkgRepository {
	w.Helper()
	repo := &source.PkgRepository{
		Header: source.Header{APIVersion: "source.headgate.dev/v1", Kind: "PkgRepository"},
		Spec:   source.PkgRepositorySpec{URL: server.URL()},
	}
	w.add(repo, "src")
	w.refresh(repo, source.Stored)
	return repo
}

// refresh updates the index of a repository.
func (w *chartSetup) refresh(repo *source.PkgRepository, want source.Outcome) {
	w.Helper()
	env := w.env()
	env.Sources = nil
	result, err := w.Reconcile(repo, chart.NewRepository(repo, env))
	if result.Outcome != want {
		w.Fatalf("repository: outcome %q, error %v; want %q", result.Outcome, err, want)
	}
}

// addOCIRepository adds the PkgRepository src for the charts below HOST/team of a registry.
func (w *chartSetup) addOCIRepository(g *testenv.Registry) *source.PkgRepository {
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

// appArchive returns the archive of a version of app.
func appArchive(t *testing.T, version string, further ...string) []byte {
	all := map[string]string{"app/Chart.yaml": "apiVersion: v2\nname: app\nversion:   " + version + " # odd\n", "app/values.yaml": "a: 1\nb: {c: 2}\n", "app/prod.yaml": "b: {d: 3}\n"}
	for i := 0; i < len(further); i += 2 {
		all["app/"+further[i]] = further[i+1]
	}
	return testenv.ChartArchive(t, all)
}

// TestVersionsFromRepositories checks the versions of reference A4, and that the archive
// stays unchanged if nothing changes it.
func TestVersionsFromRepositories(t *testing.T) {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	archives := map[string][]byte{}
	for _, v := range []string{"1.2.3", "2.0.0-rc.1", "3.0.0+b.1"} {
		archives[v] = appArchive(t, v)
		server.Put(testenv.ChartVersion{Name: "app", Version: v, Archive: archives[v]})
		push(registry, v, archives[v])
	}
	for _, row := range []struct {
		name, want, strategy, version string
		values                        []string
		own                           string // values.yaml, "" if it is that of the archive
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
				w := newChartSetup(t)
				w.putTree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 7\n"))
				observed := ""
				if kind == "index" {
					observed = w.addIndexRepository(server).Artifact().Revision
				} else {
					w.addOCIRepository(registry)
				}
				c := newPkgChart("HelmRepository/src", "app", func(s *source.PkgChartSpec) {
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

// TestPublishedAgain notices a version that is published again, in an index and in a
// registry.
func TestPublishedAgain(t *testing.T) {
	first, second := appArchive(t, "1.0.0"), appArchive(t, "1.0.0", "new.yaml", "x")
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: first})
	push(registry, "1.0.0", first)
	t.Run("registry", func(t *testing.T) {
		w := newChartSetup(t)
		w.addOCIRepository(registry)
		c := newPkgChart("PkgRepository/src", "app", nil)
		w.run(c, source.Stored)
		push(registry, "1.0.0", second)
		result := w.run(c, source.Stored)
		if !strings.HasPrefix(result.Why, "version 1.0.0 was published again: its digest was sha256:") || w.bytes(c.Artifact()) != string(second) {
			t.Errorf("%+v", result)
		}
		w.run(c, source.Unchanged)
	})
	t.Run("from an index to a registry", func(t *testing.T) {
		w := newChartSetup(t)
		server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: second})
		w.addIndexRepository(server)
		c := newPkgChart("PkgRepository/src", "app", nil)
		w.run(c, source.Stored)
		digest := c.Artifact().Digest
		w.addOCIRepository(registry)
		if result := w.run(c, source.Stored); result.Changed || c.Artifact().Digest != digest || c.Status.ObservedSourceArtifactRevision != "" {
			t.Errorf("%+v, observed %q", result, c.Status.ObservedSourceArtifactRevision)
		}
	})
}

// serveUndigested publishes version 1.0.0 of app in an index without digests, at a URL relative
// to the repository, and returns the server.
func serveUndigested(t *testing.T, archive []byte) *testenv.Charts {
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: archive,
		Entry: map[string]any{"digest": nil, "created": "2026-01-02T03:04:05Z"}})
	return server
}

// TestSameEntryInAnotherRepository treats a version of an index without digests as a
// different chart if it is in another repository, or if the repository moved, even if the
// entries are equal.
func TestSameEntryInAnotherRepository(t *testing.T) {
	first, second := appArchive(t, "1.0.0"), appArchive(t, "1.0.0", "new.yaml", "x")
	a, b := serveUndigested(t, first), serveUndigested(t, second)
	w := newChartSetup(t)
	repo := w.addIndexRepository(a)
	c := newPkgChart("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)

	repo.Spec.URL = b.URL()
	repo.Metadata.Generation++
	_, err := w.Reconcile(repo, chart.NewRepository(repo, source.Env{Limits: w.limits}))
	must(t, err)
	result := w.run(c, source.Stored)
	if !strings.HasPrefix(result.Why, "version 1.0.0 was published again") || w.bytes(c.Artifact()) != string(second) {
		t.Errorf("because %q", result.Why)
	}
	w.run(c, source.Unchanged)

	other := &source.PkgRepository{Header: source.Header{Kind: "PkgRepository"}, Spec: source.PkgRepositorySpec{URL: a.URL()}}
	w.add(other, "other")
	w.refresh(other, source.Stored)
	c.Spec.SourceRef.Name = "other"
	result = w.run(c, source.Stored)
	if !strings.HasPrefix(result.Why, "version 1.0.0 is another chart: it was that of PkgRepository/apps/src, is that of PkgRepository/apps/other") || w.bytes(c.Artifact()) != string(first) {
		t.Errorf("because %q", result.Why)
	}
	w.run(c, source.Unchanged)
}

// TestLostStateOfCharts builds a chart without a state again only if there is a reason.
func TestLostStateOfCharts(t *testing.T) {
	first, second := appArchive(t, "1.0.0"), appArchive(t, "1.0.0", "new.yaml", "x")
	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: first})
	w := newChartSetup(t)
	w.addIndexRepository(server)
	c := newPkgChart("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)
	w.deleteState(c)
	w.run(c, source.Unchanged)
	w.deleteState(c)
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: second})
	w.addIndexRepository(server)
	w.run(c, source.Stored)
	testenv.Equal(t, w.bytes(c.Artifact()), string(second), "it is the chart of before")
	w.run(c, source.Unchanged)

	w.putTree(new(source.GitRepository), "src", rev1, simpleChart("app", "app", "1.0.0"))
	c.Spec.SourceRef.Kind = "GitRepository"
	c.Metadata.Generation++
	w.deleteState(c)
	w.run(c, source.Stored)
	if got := w.Contents(c.Artifact())["app/templates/all.yaml"]; got == "" {
		t.Error("it is the chart of the repository")
	}
	w.deleteState(c)
	w.run(c, source.Unchanged)
}

// deleteState deletes the state of c, but not its status.
func (w *chartSetup) deleteState(c *source.PkgChart) {
	w.Helper()
	must(w, w.Ledger.Save(w.Context(), c, nil))
}

// TestVerificationIsNotSkipped gets no charts from a repository that asks for an impossible
// verification, with a state from before that or without a state.
func TestVerificationIsNotSkipped(t *testing.T) {
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	push(registry, "1.0.0", appArchive(t, "1.0.0"))
	w := newChartSetup(t)
	repo := w.addOCIRepository(registry)
	c := newPkgChart("PkgRepository/src", "app", nil)
	w.run(c, source.Stored)
	before := *c.Artifact()
	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "keys"}}
	w.fails(c, &before, source.Failed, "VerificationError", "nothing to verify")
	w.deleteState(c)
	w.fails(c, &before, source.Failed, "VerificationError", "nothing to verify")

	server := testenv.StartCharts(t, testenv.ChartsConfig{})
	server.Put(testenv.ChartVersion{Name: "app", Version: "1.0.0", Archive: appArchive(t, "1.0.0")})
	repo = w.addIndexRepository(server)
	c = newPkgChart("PkgRepository/src", "app", nil)
	c.Metadata.Name = "of-an-index"
	w.run(c, source.Stored)
	before = *c.Artifact()
	repo.Spec.Verify = &source.PkgRepositoryVerification{SecretRef: source.LocalReference{Name: "keys"}}
	for range 2 {
		w.fails(c, &before, source.Failed, "VerificationError", "apps/keys")
		w.deleteState(c)
	}
	repo.Spec.Verify, c.Spec.Verify = nil, &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
	w.fails(c, &before, source.Stalled, "VerificationError", "type oci")
}

// TestFailuresOfTrees causes each reason of reference A2 that a tree can cause. The
// previous artifact always stays.
func TestFailuresOfTrees(t *testing.T) {
	good := func(further ...string) fstest.MapFS { return simpleChart("app", "app", "1.1.0", further...) }
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
		{"a name that hides", with("app/Chart.yaml", "apiVersion: v2\nname: .evil\nversion: 1.1.0\n"), nil, stalled, "FetchFailed", "InvalidChartReference", "begins with a dot"},
		{"a file that is too large", with("app/big", strings.Repeat("x", 5<<20+1)), nil, failed, "BuildFailed", "ChartPackageError", "limit"},

		{"values that are missing", good(), values("no.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "no.yaml"`},
		{"values that are a directory", good(), values("app"), stalled, "BuildFailed", "ValuesFilesError", "it is no file"},
		{"values that are no map", with("p.yaml", "- 1\n"), values("app/values.yaml", "p.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "p.yaml": `},
		{"values that are too long", with("p.yaml", "a: "+strings.Repeat("x", 1<<20)), values("p.yaml"), stalled, "BuildFailed", "ValuesFilesError", "more than 1048576 bytes"},
		{"values that are too long together", with("p.yaml", "a: 1\n#"+strings.Repeat("x", 1<<20-6)), values(slices.Repeat([]string{"p.yaml"}, 17)...), stalled, "BuildFailed", "ValuesFilesError", "more than 16777216 bytes"},
		{"values that lead out", good(), values("../x.yaml"), stalled, "BuildFailed", "ValuesFilesError", "must not lead out"},
		{"values of another source that lead out", good(), values("source:lib/../../x.yaml"), stalled, "BuildFailed", "ValuesFilesError", "must not lead out"},
		{"values of another source that are missing", good(), values("source:lib/no.yaml"), stalled, "BuildFailed", "ValuesFilesError", `values file "source:lib/no.yaml"`},
		{"values of a source that is no archive", good(), values("source:ExternalArtifact/plain/no.yaml"), stalled, "BuildFailed", "ValuesFilesError", "values come from an archive"},
		{"values of a chart", good(), values("source:PkgChart/app/values.yaml"), stalled, "BuildFailed", "ValuesFilesError", "names a source of kind"},
		{"a chart without values to replace", fstest.MapFS{"app/Chart.yaml": {Data: []byte("apiVersion: v2\nname: app\nversion: 1.1.0\n")}, "p.yaml": {Data: []byte("a: 1")}},
			values("p.yaml"), stalled, "BuildFailed", "ValuesFilesError", "has no values.yaml"},

		{"a dependency that is not there", with("app/Chart.yaml", "apiVersion: v2\nname: app\nversion: 1.1.0\ndependencies:\n- {name: lib, version: ^1, repository: \"file://../lib\"}\n"),
			nil, failed, "BuildFailed", "DependencyBuildError", `"lib"`},

		{"verification of what a tree holds", good(), func(c *source.PkgChart) {
			c.Spec.Verify = &source.OCIRepositoryVerification{Provider: "cosign", SecretRef: &source.LocalReference{Name: "keys"}}
		}, stalled, "SourceVerified", "VerificationError", "charts of a PkgRepository"},
		{"a kind that holds no charts", good(), func(c *source.PkgChart) { c.Spec.SourceRef.Kind = "ExternalArtifact" }, stalled, "Stalled", "UnsupportedSourceKind", "PkgRepository"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			w.put(new(source.ExternalArtifact), "plain", "1", writeText([]byte(strings.Repeat("no archive at all\n", 100))))
			w.putTree(new(source.GitRepository), "lib", rev1, files("x.yaml", "a: 1\n"))
			w.putTree(new(source.GitRepository), "src", rev1, simpleChart("app", "app", "1.0.0"))
			settled := newPkgChart("GitRepository/src", "app", nil)
			w.run(settled, source.Stored)
			before := *settled.Artifact()

			w.putTree(new(source.GitRepository), "src", rev2, row.tree)
			c := newPkgChart("GitRepository/src", "app", nil)
			if row.edit != nil {
				row.edit(c)
			}
			w.fails(c, &before, row.outcome, row.reason, row.says)
			testenv.Equal(t, c.Status.Condition(row.cond).Reason, row.reason, "conditions %s", conditionsOf(c))
			if row.outcome == source.Stalled && c.Status.Condition("Stalled").Reason != row.reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}
			if got := c.Status.Condition("Ready"); got.Status != "False" || got.Reason != row.reason {
				t.Errorf("conditions %s", conditionsOf(c))
			}

			w.putTree(new(source.GitRepository), "src", rev2, simpleChart("app", "app", "1.2.0"))
			mended := newPkgChart("GitRepository/src", "app", nil)
			w.run(mended, source.Stored) // a stalled object recovers with its source
			testenv.Equal(t, conditionsOf(mended), "Ready=True/ChartPackageSucceeded ArtifactInStorage=True/ChartPackageSucceeded", "conditions")
		})
	}
}

// TestLinksInTrees checks that links in a source never become part of its artifact, nor of
// a chart.
func TestLinksInTrees(t *testing.T) {
	w := newChartSetup(t)
	w.putTree(new(source.GitRepository), "src", rev1, fstest.MapFS{
		"app/Chart.yaml": {Data: []byte("apiVersion: v2\nname: app\nversion: 1.0.0\n")},
		"app/Chart.lock": {Data: []byte("../../etc/passwd"), Mode: os.ModeSymlink | 0o777},
	})
	c := newPkgChart("GitRepository/src", "app", nil)
	w.run(c, source.Stored)
	testenv.Equal(t, strings.Join(w.Names(c.Artifact()), " "), "app/Chart.yaml", "files")
	archive := archiveWithLink(t)
	w.putTree(new(source.GitRepository), "src", rev2, files("app.tgz", string(archive)))
	before := *c.Artifact()
	c.Spec.Chart = "app.tgz"
	w.fails(c, &before, source.Stalled, "InvalidChartReference", "is a link")
}

// TestSourcesOfChartsThatFail checks the reasons for sources that do not exist yet or
// cannot be read.
func TestSourcesOfChartsThatFail(t *testing.T) {
	damage := func(w *chartSetup, a *artifact.Artifact) {
		name := filepath.Join(w.Dir, filepath.FromSlash(a.Path))
		text, err := os.ReadFile(name)
		if err == nil {
			text[len(text)/2] ^= 1
			err = os.WriteFile(name, text, 0o600)
		}
		must(w, err)
	}
	for _, row := range []struct {
		name    string
		prepare func(w *chartSetup, src, lib source.Object)
		outcome source.Outcome
		reason  string
		says    string
	}{
		{"no such source", func(w *chartSetup, _, _ source.Object) { w.objects = w.objects[1:] }, source.Waiting, "SourceUnavailable", "GitRepository/apps/src"},
		{"no such source of values", func(w *chartSetup, _, _ source.Object) { w.objects = w.objects[:1] }, source.Waiting, "SourceUnavailable", "Bucket/apps/lib"},
		{"no artifact yet", func(_ *chartSetup, src, _ source.Object) { src.Common().Artifact = nil }, source.Waiting, "NoSourceArtifact", "GitRepository/apps/src has no artifact yet"},
		{"no artifact of values yet", func(_ *chartSetup, _, lib source.Object) { lib.Common().Artifact = nil }, source.Waiting, "NoSourceArtifact", "Bucket/apps/lib has no artifact yet"},
		{"an artifact that is gone", func(_ *chartSetup, src, _ source.Object) { src.Artifact().Path = "gitrepository/apps/src/none.tar.gz" }, source.Waiting, "NoSourceArtifact", "gone"},
		{"an artifact without a digest", func(_ *chartSetup, src, _ source.Object) { src.Artifact().Digest = "" }, source.Failed, "ChartPullError", "no digest"},
		{"an artifact that was damaged", func(w *chartSetup, src, _ source.Object) { damage(w, src.Artifact()) }, source.Failed, "", ""},
		{"values that were damaged", func(w *chartSetup, _, lib source.Object) { damage(w, lib.Artifact()) }, source.Failed, "", ""},
		{"an artifact that is no archive", func(w *chartSetup, _, _ source.Object) {
			w.put(new(source.GitRepository), "src", rev1, writeText([]byte(strings.Repeat("no archive at all\n", 100))))
		}, source.Stalled, "InvalidChartReference", "archive of files"},
		{"a circle", func(w *chartSetup, src, _ source.Object) {
			src.(*source.GitRepository).Spec.Include = []source.GitRepositoryInclude{{Repository: source.IncludeReference{Kind: "PkgChart", Name: "app"}}}
			w.objects = append(w.objects, newPkgChart("GitRepository/src", "app", nil))
		}, source.Stalled, "SourceUnavailable", "PkgChart/apps/app → GitRepository/apps/src → PkgChart/apps/app"},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newChartSetup(t)
			src, lib := new(source.GitRepository), new(source.Bucket)
			w.putTree(src, "src", rev1, simpleChart("app", "app", "1.0.0"))
			w.putTree(lib, "lib", rev1, files("x.yaml", "a: 1\n"))
			row.prepare(w, src, lib)
			c := newPkgChart("GitRepository/src", "app", func(s *source.PkgChartSpec) { s.ValuesFiles = []string{"source:Bucket/lib/x.yaml"} })
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

// TestLastGoodArtifact uses the previous artifact of a source whose last run failed.
func TestLastGoodArtifact(t *testing.T) {
	w := newChartSetup(t)
	src := new(source.GitRepository)
	w.putTree(src, "src", rev1, simpleChart("app", "app", "1.0.0"))
	src.Status.Conditions = []source.Condition{{Type: "Ready", Status: "False", Reason: "GitOperationFailed"}}
	w.run(newPkgChart("GitRepository/src", "app", nil), source.Stored)
}

// TestStoreFails reports a store that fails as the cause.
func TestStoreFails(t *testing.T) {
	w := newChartSetup(t)
	w.putTree(new(source.GitRepository), "src", rev1, simpleChart("app", "app", "1.0.0"))
	o := w.origin(newPkgChart("GitRepository/src", "app", nil))
	rev, _, err := o.Resolve(t.Context(), nil)
	must(t, err)
	c, err := o.Open(t.Context(), rev)
	must(t, err)
	defer c.Close()
	_, err = c.WriteTo(t.Context(), fullDisk{})
	if step, ok := errors.AsType[*source.StepError](err); ok || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("error %v (%+v)", err, step)
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
