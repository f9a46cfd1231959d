package chart

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
	"github.com/headgate-io/headgate/internal/transport"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/sourcetest"
)

// chartYAML returns the text of a Chart.yaml: dependencies are NAME VERSION REPOSITORY and more fields.
func chartYAML(name, version string, dependencies ...string) string {
	text := fmt.Sprintf("apiVersion: v2\nname: %s\nversion: %s\n", name, version)
	if len(dependencies) > 0 {
		text += "dependencies:\n"
	}
	for _, d := range dependencies {
		parts := strings.Fields(d)
		if len(parts) == 2 {
			parts = append(parts, "")
		}
		text += fmt.Sprintf("- name: %s\n  version: %q\n  repository: %q\n", parts[0], parts[1], parts[2])
		for _, field := range parts[3:] {
			key, value, _ := strings.Cut(field, "=")
			text += fmt.Sprintf("  %s: %s\n", key, value)
		}
	}
	return text
}

// newOpener returns the opener of an object in namespace default, which also has the
// objects and Secrets in documents.
func newOpener(t *testing.T, documents string) *opener {
	t.Helper()
	var set source.Set
	must(t, set.Decode("documents.yaml", strings.NewReader(documents)))
	env := source.Env{Secrets: &set, Sources: &source.Inventory{Objects: set.Objects}}
	return &opener{env: env, secretReader: &transport.SecretReader{Namespace: "default", From: env.Secrets}}
}

// completeAndList completes the chart in a directory of tree and returns the charts that it then
// holds, one per line: PATH NAME VERSION.
func completeAndList(t *testing.T, s *opener, tree fs.FS, dir string) (string, error) {
	t.Helper()
	return completeAndListContext(t.Context(), t, s, tree, dir)
}

func completeAndListContext(ctx context.Context, t *testing.T, s *opener, tree fs.FS, dir string) (string, error) {
	t.Helper()
	c, err := bundle.Open(tree, dir, artifact.Limits{})
	must(t, err)
	charts, end, err := s.complete(ctx, tree, dir, c, new([]source.ChartPin))
	if err != nil {
		if charts != nil || end != nil {
			t.Errorf("charts and an end come with error %v", err)
		}
		demandBuildError(t, err)
		return "", err
	}
	completed, err := c.With(bundle.Edit{Charts: charts})
	must(t, err)
	held := vendoredCharts(t, completed)
	if err := end(); err != nil {
		t.Errorf("end: %v", err)
	}
	return held, nil
}

// demandBuildError demands that err has the step and the reason of dependency failures,
// which are retried.
func demandBuildError(t *testing.T, err error) {
	t.Helper()
	var step *source.StepError
	if !errors.As(err, &step) || step.Step != source.StepBuild || step.Reason != "DependencyBuildError" || errors.Is(err, source.ErrInvalid) {
		t.Errorf("%v is no DependencyBuildError that is tried again: %#v", err, step)
	}
}

// vendoredCharts lists the charts in the charts/ of a tree.
func vendoredCharts(t *testing.T, tree fs.FS) string {
	t.Helper()
	var list strings.Builder
	err := fs.WalkDir(tree, ".", func(p string, entry fs.DirEntry, err error) error {
		if err != nil || path.Base(p) != "Chart.yaml" || p == "Chart.yaml" {
			return err
		}
		c, err := bundle.Open(tree, path.Dir(p), artifact.Limits{})
		if err == nil {
			fmt.Fprintln(&list, path.Dir(p), c.Metadata.Name, c.Metadata.Version)
		}
		return err
	})
	if err != nil {
		t.Errorf("what is packed: %v", err)
	}
	return list.String()
}

// demandFailure demands an error that contains every one of texts.
func demandFailure(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, want := range texts {
		testenv.ErrorSays(t, err, want)
	}
}

// archiveOf returns the .tgz of a chart.
func archiveOf(t *testing.T, name, version string) []byte {
	t.Helper()
	return testenv.ChartArchive(t, map[string]string{
		name + "/Chart.yaml": chartYAML(name, version), name + "/values.yaml": "a: 1\n", name + "/templates/a.yaml": "a: {{ .Values.a }}\n",
	})
}

// push pushes a chart to a registry as the package manager does.
func push(t *testing.T, g *testenv.Registry, repo, name, version string) {
	t.Helper()
	g.Push(repo+"/"+name, tagOf(version), chartImage(archiveOf(t, name, version)))
}

// umbrella returns a tree whose root is a chart with dependencies.
func umbrella(dependencies ...string) fstest.MapFS {
	return localCharts(map[string]string{".": chartYAML("umbrella", "0.1.0", dependencies...)})
}

// withLock gives the chart at the root of tree a lock with the given dependencies.
func withLock(t *testing.T, tree fstest.MapFS, dependencies ...string) fstest.MapFS {
	t.Helper()
	_, list, _ := strings.Cut(chartYAML("lock", "1", dependencies...), "dependencies:")
	tree["Chart.lock"] = &fstest.MapFile{Data: []byte("dependencies:" + list)}
	c := openChart(t, tree)
	tree["Chart.lock"].Data = append(tree["Chart.lock"].Data, "digest: "+lockDigests(c)[0]+"\ngenerated: \"2026-01-01T00:00:00Z\"\n"...)
	return tree
}

// repositoryObject returns the document of a PkgRepository that refers to the user name and
// password in secret, unless secret is "".
func repositoryObject(name, url, secret string) string {
	text := fmt.Sprintf("---\napiVersion: source.toolkit.fluxcd.io/v1\nkind: HelmRepository\nmetadata: {name: %s}\nspec:\n  url: %s\n  interval: 1h\n", name, url)
	if strings.HasPrefix(url, "oci://") {
		text += "  type: oci\n  insecure: true\n"
	}
	if secret != "" {
		text += fmt.Sprintf("  secretRef: {name: %s}\n", secret)
	}
	return text
}

func login(name, username, password string) string {
	return fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: %s}\nstringData: {username: %s, password: %s}\n", name, username, password)
}

func basic(username, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(username+":"+password))
}

func TestChartsOfRepositories(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	for _, v := range []string{"1.0.0", "1.2.3", "2.0.0-rc.1"} {
		site.Put(testenv.ChartVersion{Name: "lib", Version: v})
	}
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	for _, v := range []string{"1.0.0", "1.5.0+build.2"} {
		push(t, registry, "team/charts", "db", v)
	}
	site.Put(testenv.ChartVersion{Name: "Odd_name", Version: "1.0.0"})
	push(t, registry, "team/charts", "odd_name", "1.0.0")
	named := repositoryObject("mine", site.URL(), "") + repositoryObject("registry", registry.URL("team/charts"), "")
	http, oci := site.URL(), registry.URL("team/charts")
	for _, c := range []struct {
		name, documents string
		tree            fstest.MapFS
		want            string
	}{
		{"a range, anonymous", "", umbrella("lib ^1 " + http), "charts/lib lib 1.2.3\n"},
		{"a version", "", umbrella("lib 1.0.0 " + http), "charts/lib lib 1.0.0\n"},
		{"any", "", umbrella("lib * " + http), "charts/lib lib 1.2.3\n"},
		{"a pre-release", "", umbrella("lib >1.2.3-0 " + http), "charts/lib lib 2.0.0-rc.1\n"},
		{"with a slash", "", umbrella("lib ^1 " + http + "/"), "charts/lib lib 1.2.3\n"},
		{"of an object", named, umbrella("lib ^1 " + http), "charts/lib lib 1.2.3\n"},
		{"by name", named, umbrella("lib ^1 @mine"), "charts/lib lib 1.2.3\n"},
		{"by alias", named, umbrella("lib ^1 alias:mine"), "charts/lib lib 1.2.3\n"},
		{"of a registry", named, umbrella("db ^1 " + oci), "charts/db db 1.5.0+build.2\n"},
		{"of a registry, by name", named, umbrella("db 1.0.0 @registry"), "charts/db db 1.0.0\n"},
		{"of all", named, umbrella("lib ^1 "+http, "db ^1 "+oci+" condition=db.enabled"), "charts/db db 1.5.0+build.2\ncharts/lib lib 1.2.3\n"},
		{"names that objects cannot ask for", named, umbrella("Odd_name * "+http, "odd_name * "+oci), "charts/Odd_name Odd_name 1.0.0\ncharts/odd_name odd_name 1.0.0\n"},
		{"twice under aliases", "", umbrella("lib ^1 "+http+" alias=one", "lib ^1 "+http+" alias=two", "lib 1.x "+http+" alias=three"), "charts/lib lib 1.2.3\n"},
		{"two versions under aliases", "", umbrella("lib 1.0.0 "+http+" alias=one", "lib 1.2.3 "+http+" alias=two"), "charts/lib-1.0.0 lib 1.0.0\ncharts/lib-1.2.3 lib 1.2.3\n"},
		{"locked", "", withLock(t, umbrella("lib ^1 "+http), "lib 1.0.0 "+http), "charts/lib lib 1.0.0\n"},
		{"locked, and vendored in another version", "", withLock(t, localCharts(map[string]string{
			".": chartYAML("umbrella", "0.1.0", "lib ^1 "+http), "charts/lib": chartYAML("lib", "1.2.3"),
		}), "lib 1.0.0 "+http), "charts/lib lib 1.2.3\n"},
		{"locked, by name", named, withLock(t, umbrella("lib ^1 @mine"), "lib 1.0.0 "+http), "charts/lib lib 1.0.0\n"},
		{"of a chart beside", named, localCharts(map[string]string{
			".": chartYAML("umbrella", "0.1.0", "sub * file://sub"), "sub": chartYAML("sub", "1.0.0", "lib ^1 "+http, "db ^1 "+oci),
		}), "charts/sub sub 1.0.0\ncharts/sub/charts/db db 1.5.0+build.2\ncharts/sub/charts/lib lib 1.2.3\nsub sub 1.0.0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := completeAndList(t, newOpener(t, c.documents), c.tree, ".")
			if err != nil || got != c.want {
				t.Errorf("%v\n%swant\n%s", err, got, c.want)
			}
		})
	}
}

// TestAliasWithoutObject demands an error if no object has the name of the
// repository.
func TestAliasWithoutObject(t *testing.T) {
	for _, repository := range []string{"@b", "alias:b"} {
		_, err := completeAndList(t, newOpener(t, ""), umbrella("db 0.x "+repository), ".")
		testenv.ErrorSays(t, err, "PkgRepository/default/b", repository)
	}
}

// TestEachServerGetsItsOwnCredentials completes one chart from two repositories and a
// registry, each with its own credentials, and from a repository whose index leads to
// another host.
func TestEachServerGetsItsOwnCredentials(t *testing.T) {
	a := testenv.StartCharts(t, testenv.ChartsConfig{Username: "ann", Password: "secret-of-a"})
	b := testenv.StartCharts(t, testenv.ChartsConfig{Username: "bob", Password: "secret-of-b"})
	open := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "eve", Password: "secret-of-c"})
	a.Put(testenv.ChartVersion{Name: "one", Version: "1.0.0"})
	b.Put(testenv.ChartVersion{Name: "two", Version: "1.0.0"})
	open.Put(testenv.ChartVersion{Name: "four", Version: "1.0.0"})
	a.Put(testenv.ChartVersion{Name: "four", Version: "1.0.0", URLs: []string{open.URLOf("four-1.0.0.tgz")}})
	push(t, registry, "team", "three", "1.0.0")
	documents := repositoryObject("a", a.URL(), "a") + login("a", "ann", "secret-of-a") +
		repositoryObject("b", b.URL(), "b") + login("b", "bob", "secret-of-b") +
		repositoryObject("c", registry.URL("team"), "c") + login("c", "eve", "secret-of-c")

	tree := umbrella("one * "+a.URL(), "two * @b", "three * "+registry.URL("team"), "four * "+a.URL())
	got, err := completeAndList(t, newOpener(t, documents), tree, ".")
	if want := "charts/four four 1.0.0\ncharts/one one 1.0.0\ncharts/three three 1.0.0\ncharts/two two 1.0.0\n"; err != nil || got != want {
		t.Errorf("%v\n%swant\n%s", err, got, want)
	}
	demandOnly(t, "a", a.Requests(), basic("ann", "secret-of-a"))
	demandOnly(t, "b", b.Requests(), basic("bob", "secret-of-b"))
	demandOnly(t, "the open one", open.Requests(), "")
	demandOnly(t, "the registry", registry.Requests(), basic("eve", "secret-of-c"))

	// Requests to a URL that belongs to no object are anonymous.
	_, err = completeAndList(t, newOpener(t, strings.Replace(documents, "url: "+a.URL(), "url: "+a.URL()+"/other", 1)), umbrella("one * "+a.URL()), ".")
	demandFailure(t, err, `"one"`, "401")
}

// demandOnly demands that there were requests, and that their Authorization was empty or
// want.
func demandOnly(t *testing.T, server string, requests []testenv.Request, want string) {
	t.Helper()
	if len(requests) == 0 {
		t.Errorf("%s was not asked", server)
	}
	for _, r := range requests {
		if r.Authorization != "" && r.Authorization != want {
			t.Errorf("%s got %q with %s %s", server, r.Authorization, r.Method, r.Path)
		}
	}
}

// TestDependenciesAreVerified verifies dependencies if their PkgRepository names a keyring,
// and does not fetch them without a signature.
func TestDependenciesAreVerified(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann, other := newKey(t, now, 0), newKey(t, now, 0)
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0"})
	documents := repositoryObject("strict", site.URL(), "") + "  verify: {secretRef: {name: ring}}\n" +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: ring}\ndata: {ann.asc: " + base64.StdEncoding.EncodeToString(publicKeyring(t, ann, true)) + "}\n"
	for _, c := range []struct {
		name string
		by   *openpgp.Entity
		says string
	}{{"signed", ann, ""}, {"signed by another", other, "none of the trusted keys"}, {"unsigned", nil, "there is no provenance file"}} {
		t.Run(c.name, func(t *testing.T) {
			if site.RemoveFile("lib-1.0.0.tgz.prov"); c.by != nil {
				site.PutFile("lib-1.0.0.tgz.prov", signText(t, c.by, now, statement("lib", "1.0.0", archive)))
			}
			for _, repository := range []string{site.URL(), "@strict"} {
				got, err := completeAndList(t, newOpener(t, documents), umbrella("lib ^1 "+repository), ".")
				if c.says != "" {
					demandFailure(t, err, `dependency "lib"`, c.says)
				} else if err != nil || got != "charts/lib lib 1.0.0\n" {
					t.Errorf("%v\n%s", err, got)
				}
			}
		})
	}
	// Without a keyring the signature is not requested.
	if _, err := completeAndList(t, newOpener(t, ""), umbrella("lib ^1 "+site.URL()), "."); err != nil {
		t.Error(err)
	}
}

// TestDependenciesOffline replaces a repository by a directory, by the URL of the object
// or, without an object, by that of the dependency.
func TestDependenciesOffline(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0"})
	dir := t.TempDir()
	for name, text := range map[string][]byte{"index.yaml": site.Index(), "lib-1.0.0.tgz": archive} {
		must(t, os.WriteFile(filepath.Join(dir, name), text, 0o600))
	}
	object := repositoryObject("named", "https://charts.example/x", "")
	for _, c := range []struct{ documents, local, wanted string }{
		{"", "https://charts.example/x", "https://charts.example/x"},
		{"", "https://charts.example/x", "https://charts.example/x/"},
		{object, "https://charts.example/x", "https://charts.example/x/"},
		{object, "https://charts.example/x", "@named"},
	} {
		s := newOpener(t, c.documents)
		s.env.Local = map[string]string{c.local: dir}
		if got, err := completeAndList(t, s, umbrella("lib ^1 "+c.wanted), "."); err != nil || got != "charts/lib lib 1.0.0\n" {
			t.Errorf("%s for %s: %v\n%s", c.local, c.wanted, err, got)
		}
	}
}

// localCharts returns a tree of charts: their Chart.yaml by directory.
func localCharts(charts map[string]string) fstest.MapFS {
	tree := fstest.MapFS{}
	for dir, text := range charts {
		tree[strings.TrimPrefix(dir+"/Chart.yaml", "./")] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

func TestChartsOfTheSource(t *testing.T) {
	for _, c := range []struct {
		name   string
		charts map[string]string
		dir    string
		want   string
	}{
		{"beside", map[string]string{
			"deploy/umbrella": chartYAML("umbrella", "0.1.0", "lib ^1 file://../lib"),
			"deploy/lib":      chartYAML("lib", "1.2.3"),
		}, "deploy/umbrella", "charts/lib lib 1.2.3\n"},
		{"at the root", map[string]string{
			".":    chartYAML("umbrella", "0.1.0", "lib ^1 file://libs/lib"),
			"libs": chartYAML("other", "1.0.0"), "libs/lib": chartYAML("lib", "1.2.3"),
		}, ".", "charts/lib lib 1.2.3\nlibs other 1.0.0\nlibs/lib lib 1.2.3\n"},
		{"the root itself", map[string]string{
			".": chartYAML("lib", "1.0.0"), "x/y": chartYAML("umbrella", "0.1.0", "lib ^1 file://../.."),
		}, "x/y", "charts/lib lib 1.0.0\ncharts/lib/x/y umbrella 0.1.0\n"},
		{"odd spellings", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://./../b/", "c * file://..//c"), "b": chartYAML("b", "1.0.0"), "c": chartYAML("c", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/c c 1.0.0\n"},
		{"a chain", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c * file://../c"),
			"c": chartYAML("c", "1.0.0", "d * file://../d"), "d": chartYAML("d", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/b/charts/c c 1.0.0\ncharts/b/charts/c/charts/d d 1.0.0\n"},
		{"a diamond", map[string]string{
			"a": chartYAML("a", "0.1.0", "b * file://../b", "c * file://../c"), "b": chartYAML("b", "1.0.0", "d * file://../d"),
			"c": chartYAML("c", "1.0.0", "d * file://../d"), "d": chartYAML("d", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/b/charts/d d 1.0.0\ncharts/c c 1.0.0\ncharts/c/charts/d d 1.0.0\n"},
		{"aliases", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://../b alias=one", "b 1.x file://../b alias=two condition=two.enabled enabled=false"), "b": chartYAML("b", "1.0.0"),
		}, "a", "charts/b b 1.0.0\n"},
		{"vendored", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://../b", "c ^1"), "b": chartYAML("b", "2.0.0"),
			"a/charts/b": chartYAML("b", "1.0.0"), "a/charts/c": chartYAML("c", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/c c 1.0.0\n"},
		{"vendored with other build metadata", map[string]string{
			"a": chartYAML("a", "0.1.0", "b 1.0.0+x file://../b"), "a/charts/b": chartYAML("b", "1.0.0+y"),
		}, "a", "charts/b b 1.0.0+y\n"},
		{"vendored is another", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://../b"), "b": chartYAML("b", "1.0.0"), "a/charts/c": chartYAML("c", "1.0.0"),
		}, "a", "charts/b b 1.0.0\ncharts/c c 1.0.0\n"},
		{"vendored by name", map[string]string{
			"a": chartYAML("a", "0.1.0", "b ^1 file://charts/b"), "a/charts/b": chartYAML("b", "1.0.0"),
		}, "a", "charts/b b 1.0.0\n"},
		{"two versions", map[string]string{
			"a":  chartYAML("a", "0.1.0", "b ^1 file://../b1 alias=one", "b ^2 file://../b2 alias=two"),
			"b1": chartYAML("b", "1.0.0"), "b2": chartYAML("b", "2.0.0"),
		}, "a", "charts/b-1.0.0 b 1.0.0\ncharts/b-2.0.0 b 2.0.0\n"},
		{"apiVersion v1 without requirements", map[string]string{
			"a": "apiVersion: v1\nname: a\nversion: 0.1.0\n",
		}, "a", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := completeAndList(t, newOpener(t, ""), localCharts(c.charts), c.dir)
			if err != nil || got != c.want {
				t.Errorf("%v\n%swant\n%s", err, got, c.want)
			}
		})
	}
}

func TestLocalChartsThatCannotBeUsed(t *testing.T) {
	chain := map[string]string{}
	for i := range 30 {
		chain[fmt.Sprintf("c%d", i)] = chartYAML(fmt.Sprintf("c%d", i), "1.0.0", fmt.Sprintf("c%d * file://../c%d", i+1, i+1))
	}
	chain["c30"] = chartYAML("c30", "1.0.0")
	// Each level includes the next one twice: 2^15 charts in 16 directories.
	bomb := map[string]string{}
	for i := range 15 {
		next := fmt.Sprintf("c%d", i+1)
		bomb[fmt.Sprintf("c%d", i)] = chartYAML(fmt.Sprintf("c%d", i), "1.0.0", next+" * file://../"+next+" alias=a", next+" >0 file://../"+next+" alias=b")
	}
	bomb["c15"] = chartYAML("c15", "1.0.0")
	var many []string
	for i := range 501 {
		many = append(many, fmt.Sprintf("c%d * https://r.example", i))
	}
	one := func(dependency string) map[string]string {
		return map[string]string{"a": chartYAML("a", "0.1.0", dependency), "lib": chartYAML("lib", "1.0.0"), "empty/x": chartYAML("x", "1.0.0")}
	}
	for _, c := range []struct {
		name   string
		charts map[string]string
		dir    string
		says   []string
	}{
		{"leads out", one("lib * file://../../lib"), "a", []string{`"lib"`, `of "a"`, `"file://../../lib"`, "leads out of the source"}},
		{"leads out and in again", one("lib * file://../../tree/lib"), "a", []string{"leads out of the source"}},
		{"absolute", one("lib * file:///lib"), "a", []string{"leads out of the source"}},
		{"of a host", one("lib * file:////host/lib"), "a", []string{"leads out of the source"}},
		{"backslashes", one(`lib * file://..\..\lib`), "a", []string{"without backslash"}},
		{"percent", one("lib * file://../%6cib"), "a", []string{"file does not exist"}},
		{"missing", one("lib * file://../nowhere"), "a", []string{"file does not exist"}},
		{"no chart", one("lib * file://../empty"), "a", []string{`"lib"`, "Chart.yaml"}},
		{"another name", one("other * file://../lib"), "a", []string{`chart "lib" "1.0.0" is there`}},
		{"another version", one("lib ^2 file://../lib"), "a", []string{`dependency "lib" "^2" of "a" from "file://../lib": chart "lib" "1.0.0" is there`}},
		{"itself", one("a * file://."), "a", []string{`a cycle: "a → a"`}},
		{"itself, by nothing", one("a * file://"), "a", []string{`a cycle: "a → a"`}},
		{"a cycle", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c * file://../c"), "c": chartYAML("c", "1.0.0", "b * file://../b"),
		}, "a", []string{`a cycle: "b → c → b"`, `of "c"`}},
		{"too deep", chain, "c0", []string{"more than 20 directories deep"}},
		{"too many", bomb, "c0", []string{"more than 200 charts in all"}},
		{"too many of a repository", map[string]string{"a": chartYAML("a", "1.0.0", many[:201]...)}, "a", []string{"more than 200 charts in all"}},
		{"too many in one list", map[string]string{"a": chartYAML("a", "1.0.0", many...)}, "a", []string{`chart "a" has 501 dependencies, or charts in charts/: 500 are the limit`}},
		{"two charts of one name and version", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b alias=one", "b * file://../b2 alias=two"), "b": chartYAML("b", "1.0.0"), "b2": chartYAML("b", "1.0.0"),
		}, "a", []string{"only one can be in charts/"}},
		{"vendored in another version", map[string]string{
			"a": chartYAML("a", "1.0.0", "b ^2 file://../b"), "a/charts/b": chartYAML("b", "1.0.0"), "b": chartYAML("b", "2.0.0"),
		}, "a", []string{`charts/ holds version "1.0.0"`}},
		{"neither vendored nor of a repository", map[string]string{"a": chartYAML("a", "1.0.0", "b ^2")}, "a", []string{"charts/b must hold it"}},
		{"a defect further down", map[string]string{
			"a": chartYAML("a", "1.0.0", "b * file://../b"), "b": chartYAML("b", "1.0.0", "c ^2 file://../c"), "c": chartYAML("c", "1.0.0"),
		}, "a", []string{`dependency "c" "^2" of "b" from "file://../c"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := completeAndList(t, newOpener(t, ""), localCharts(c.charts), c.dir)
			demandFailure(t, err, c.says...)
		})
	}
}

// TestArchivesThatAreTooMuchTogether uses archives that are within the limit one by one,
// but not together.
func TestArchivesThatAreTooMuchTogether(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	var list []string
	for i := range 20 {
		name, noise := fmt.Sprintf("c%02d", i), make([]byte, 20<<10)
		for j := range noise {
			noise[j] = "0123456789abcdefghijklmnopqrstuv"[rand.N(32)]
		}
		site.Put(testenv.ChartVersion{Name: name, Version: "1.0.0", Files: map[string]string{"noise.txt": string(noise)}})
		list = append(list, name+" * "+site.URL())
	}
	s, files := newOpener(t, ""), testenv.NewTempFiles(t)
	s.env.Limits.Bytes, s.env.Limits.Temp = 64<<10, files.Create
	_, err := completeAndList(t, s, umbrella(list[:2]...), ".")
	must(t, err)
	site.Reset()
	_, err = completeAndList(t, s, umbrella(list...), ".")
	demandFailure(t, err, "more than 65536 bytes in all archives together")
	if n := site.Count(testenv.GetChart); n > 4+parallelFetches || site.Count(testenv.GetIndex) != 1 {
		t.Errorf("%d charts were asked for, and the index %d times", n, site.Count(testenv.GetIndex))
	}
	files.RequireClosed()
}

// TestArchivesThatUnpackToTooMuchTogether uses small archives in the source that are within
// the limit one by one, but not together once unpacked.
func TestArchivesThatUnpackToTooMuchTogether(t *testing.T) {
	tree := fstest.MapFS{}
	var list []string
	for i := range 10 {
		name := fmt.Sprintf("c%02d", i)
		tree[name+".tgz"] = &fstest.MapFile{Data: testenv.ChartArchive(t, map[string]string{
			name + "/Chart.yaml": chartYAML(name, "1.0.0"), name + "/big.txt": strings.Repeat("0", 20<<10),
		})}
		list = append(list, name+" * file://"+name+".tgz")
	}
	tree["Chart.yaml"] = &fstest.MapFile{Data: []byte(chartYAML("umbrella", "0.1.0", list...))}
	for _, c := range []struct {
		limit int64
		says  string
	}{{-1, ""}, {1 << 20, ""}, {64 << 10, "more than 65536 bytes in all archives together"}} {
		s, spools := newOpener(t, ""), testenv.NewTempFiles(t)
		s.env.Limits.Bytes, s.env.Limits.Temp = c.limit, spools.Create
		_, err := completeAndList(t, s, tree, ".")
		if c.says == "" && err != nil {
			t.Errorf("limit %d: %v", c.limit, err)
		}
		if c.says != "" {
			demandFailure(t, err, `"c02"`, c.says)
		}
		if n := spools.Created(); c.says != "" && n > 10 {
			t.Errorf("%d spools were made", n)
		}
		spools.RequireClosed()
	}
}

// TestTheFirstFailureEndsTheRest cancels the request to a repository that stalls when an
// earlier dependency fails, and leaks nothing.
func TestTheFirstFailureEndsTheRest(t *testing.T) {
	stalls := testenv.StartCharts(t, testenv.ChartsConfig{Defect: &testenv.Defect{Phase: testenv.GetIndex, Do: testenv.Stall}})
	empty := testenv.StartCharts(t, testenv.ChartsConfig{Allow: func(r *http.Request) bool {
		select {
		case <-stalls.Stalled():
		case <-r.Context().Done():
		}
		return true
	}})
	patient := strings.Replace(repositoryObject("stalls", stalls.URL(), ""), "interval: 1h", "timeout: 600m", 1)
	sourcetest.NoLeaks(t, func(ctx context.Context) {
		_, err := completeAndListContext(ctx, t, newOpener(t, patient), umbrella("none * "+empty.URL(), "lib * "+stalls.URL()), ".")
		demandFailure(t, err, `"none"`)
	})
}
