package chart_test

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/source"
)

// wholeYAML is the Chart.yaml of a chart that depends on others: a list of
// YAML flow maps.
func wholeYAML(dependencies ...string) string {
	return "apiVersion: v2\nname: whole\nversion: 1.0.0\ndependencies:\n- " + strings.Join(dependencies, "\n- ") + "\n"
}

// An estate is a workshop with two repositories and a registry, each with its
// own credentials.
type estate struct {
	*workshop
	a, b     *testenv.Charts
	registry *testenv.Registry
}

const (
	keyOfA = "cAnArY-of-a/+1"
	keyOfB = "cAnArY-of-b/+2"
	keyOfC = "cAnArY-of-c/+3"
)

func newEstate(t *testing.T) *estate {
	e := &estate{workshop: newWorkshop(t, keyOfA, keyOfB, keyOfC),
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
func (e *estate) files() fstest.MapFS {
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
func (e *estate) holds(c *source.PkgChart) (list []string) {
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
	e := newEstate(t)
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
		spoil func(*estate) (mend func())
		says  []string
	}{
		{"a refused password", func(e *estate) func() {
			good := e.secrets["apps/b"]
			e.secrets["apps/b"] = source.Secret{Data: map[string][]byte{"username": []byte("bob"), "password": []byte(keyOfA)}}
			return func() { e.secrets["apps/b"] = good }
		}, []string{`dependency "db" "0.x" of "whole" from "@b"`, "401"}},
		{"a missing Secret", func(e *estate) func() {
			good := e.secrets["apps/a"]
			delete(e.secrets, "apps/a")
			return func() { e.secrets["apps/a"] = good }
		}, []string{`dependency "web"`, "apps/a"}},
		{"a version that is gone", func(e *estate) func() {
			e.registry.Untag("team/app", "2.0.0_b.1")
			return func() { push(e.registry, "2.0.0+b.1", archived(e.T, "2.0.0+b.1")) }
		}, []string{`dependency "app" "2.x" of "whole"`, "team"}},
		{"a repository that nobody named", func(e *estate) func() {
			all := e.objects
			e.objects = slices.DeleteFunc(slices.Clone(all), func(o source.Object) bool { return o.Head().Metadata.Name == "b" })
			return func() { e.objects = all }
		}, []string{`dependency "db"`, "PkgRepository/apps/b"}},
		{"a stale lock", func(e *estate) func() {
			tree := e.files()
			tree["deploy/whole/Chart.lock"] = &fstest.MapFile{Data: []byte("dependencies:\n- {name: lib, version: 0.1.0, repository: \"file://../lib\"}\ndigest: sha256:00\ngenerated: \"2026-01-01T00:00:00Z\"\n"), Mode: 0o644}
			e.tree(new(source.GitRepository), "src", rev2, tree)
			return func() { e.tree(new(source.GitRepository), "src", rev1, e.files()) }
		}, []string{"Chart.lock is out of sync with Chart.yaml: run helm dependency update"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEstate(t)
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
		e := newEstate(t)
		e.tree(new(source.GitRepository), "src", rev1, simple("lib", "lib", "0.1.0", "whole/Chart.yaml",
			wholeYAML(fmt.Sprintf("{name: none, version: ^1, repository: %q}", strings.Replace(e.a.URL(), "http://", scheme+"://ann:cAnArY-of-a%2F+1@", 1)))))
		c := made("GitRepository/src", "whole", nil)
		e.fails(c, nil, source.Failed, "DependencyBuildError", `"none"`)
		if shown := e.JSON(c.Status) + e.JSON(e.Events); strings.Contains(shown, "cAnArY") {
			t.Errorf("%s: %s", scheme, shown)
		}
	}
}
