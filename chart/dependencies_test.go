package chart

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"

	"github.com/headgate-io/headgate/internal/testenv"
)

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
	g.Push(repo+"/"+name, strings.ReplaceAll(version, "+", "_"), testenv.Manifest{
		Config: &testenv.Blob{MediaType: "application/vnd.cncf.helm.config.v1+json", Data: fmt.Appendf(nil, `{"name":%q,"version":%q,"apiVersion":"v2"}`, name, version)},
		Layers: []testenv.Blob{{MediaType: "application/vnd.cncf.helm.chart.content.v1.tar+gzip", Data: archiveOf(t, name, version)}},
	})
}

// umbrella returns a tree whose root is a chart with dependencies.
func umbrella(dependencies ...string) fstest.MapFS {
	return yard(map[string]string{".": chartYAML("umbrella", "0.1.0", dependencies...)})
}

// lockedTo gives the chart at the root of tree a lock with these dependencies.
func lockedTo(t *testing.T, tree fstest.MapFS, dependencies ...string) fstest.MapFS {
	t.Helper()
	_, list, _ := strings.Cut(chartYAML("lock", "1", dependencies...), "dependencies:")
	tree["Chart.lock"] = &fstest.MapFile{Data: []byte("dependencies:" + list)}
	c := opened(t, tree)
	tree["Chart.lock"].Data = append(tree["Chart.lock"].Data, "digest: "+lockDigests(c)[0]+"\ngenerated: \"2026-01-01T00:00:00Z\"\n"...)
	return tree
}

// repositoryObject returns the document of a PkgRepository with, unless secret
// is "", the user name and password of that Secret.
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
		site.Put(testenv.ChartVersion{Name: "lib", Version: v, Archive: archiveOf(t, "lib", v)})
	}
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{})
	for _, v := range []string{"1.0.0", "1.5.0+build.2"} {
		push(t, registry, "team/charts", "db", v)
	}
	site.Put(testenv.ChartVersion{Name: "Odd_name", Version: "1.0.0", Archive: archiveOf(t, "Odd_name", "1.0.0")})
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
		{"locked", "", lockedTo(t, umbrella("lib ^1 "+http), "lib 1.0.0 "+http), "charts/lib lib 1.0.0\n"},
		{"locked, by name", named, lockedTo(t, umbrella("lib ^1 @mine"), "lib 1.0.0 "+http), "charts/lib lib 1.0.0\n"},
		{"of a chart beside", named, yard(map[string]string{
			".": chartYAML("umbrella", "0.1.0", "sub * file://sub"), "sub": chartYAML("sub", "1.0.0", "lib ^1 "+http, "db ^1 "+oci),
		}), "charts/sub sub 1.0.0\ncharts/sub/charts/db db 1.5.0+build.2\ncharts/sub/charts/lib lib 1.2.3\nsub sub 1.0.0\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := completed(t, newSupply(t, c.documents), c.tree, ".")
			if err != nil || got != c.want {
				t.Errorf("%v\n%swant\n%s", err, got, c.want)
			}
		})
	}
}

func TestRepositoriesThatFail(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0", Archive: archiveOf(t, "lib", "1.0.0")})
	site.Put(testenv.ChartVersion{Name: "forged", Version: "1.0.0", Archive: archiveOf(t, "forged", "1.0.0"), Digest: strings.Repeat("0", 64)})
	site.Put(testenv.ChartVersion{Name: "liar", Version: "1.0.0", Archive: archiveOf(t, "other", "1.0.0")})
	for _, c := range []struct {
		name string
		tree fstest.MapFS
		says []string
		is   error
	}{
		{"no such version", umbrella("lib ^2 " + site.URL()), []string{`dependency "lib" "^2" of "umbrella" from`, site.URL()}, fs.ErrNotExist},
		{"a locked version that is gone", lockedTo(t, umbrella("lib ^1 "+site.URL()), "lib 1.0.1 "+site.URL()), []string{`dependency "lib" "1.0.1" of "umbrella" from`, site.URL()}, fs.ErrNotExist},
		{"no such chart", umbrella("none * " + site.URL()), []string{`"none"`}, fs.ErrNotExist},
		{"no such repository", umbrella("lib * " + site.URLOf("../elsewhere")), []string{`"lib"`, "404"}, nil},
		{"another digest", umbrella("forged * " + site.URL()), []string{`"forged"`, "sha256:"}, nil},
		{"another chart", umbrella("liar * " + site.URL()), []string{`"liar"`, "other"}, nil},
		{"no such object", umbrella("lib * @nobody"), []string{`"lib"`, "nobody"}, fs.ErrNotExist},
		{"the first of several", umbrella("lib * "+site.URL(), "none1 * "+site.URL(), "none2 * "+site.URL()), []string{`"none`}, nil},
		{"a name that no registry has", umbrella("Upper * oci://" + strings.TrimPrefix(site.URL(), "http://")), []string{`"Upper"`}, nil},
		{"an invalid URL", umbrella("lib * https://%zz/"), []string{`"lib"`}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := completed(t, newSupply(t, ""), c.tree, ".")
			demandFailure(t, err, c.says...)
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%v is not %v", err, c.is)
			}
		})
	}
}

// TestEachServerGetsItsOwnCredentials completes one chart from two repositories
// and a registry, each with its own, and one whose index leads to another host.
func TestEachServerGetsItsOwnCredentials(t *testing.T) {
	a := testenv.StartCharts(t, testenv.ChartsConfig{Username: "ann", Password: "secret-of-a"})
	b := testenv.StartCharts(t, testenv.ChartsConfig{Username: "bob", Password: "secret-of-b"})
	open := testenv.StartCharts(t, testenv.ChartsConfig{})
	registry := testenv.StartRegistry(t, testenv.RegistryConfig{Username: "eve", Password: "secret-of-c"})
	a.Put(testenv.ChartVersion{Name: "one", Version: "1.0.0", Archive: archiveOf(t, "one", "1.0.0")})
	b.Put(testenv.ChartVersion{Name: "two", Version: "1.0.0", Archive: archiveOf(t, "two", "1.0.0")})
	open.Put(testenv.ChartVersion{Name: "four", Version: "1.0.0", Archive: archiveOf(t, "four", "1.0.0")})
	a.Put(testenv.ChartVersion{Name: "four", Version: "1.0.0", Archive: archiveOf(t, "four", "1.0.0"), URLs: []string{open.URLOf("four-1.0.0.tgz")}})
	push(t, registry, "team", "three", "1.0.0")
	documents := repositoryObject("a", a.URL(), "a") + login("a", "ann", "secret-of-a") +
		repositoryObject("b", b.URL(), "b") + login("b", "bob", "secret-of-b") +
		repositoryObject("c", registry.URL("team"), "c") + login("c", "eve", "secret-of-c")

	tree := umbrella("one * "+a.URL(), "two * @b", "three * "+registry.URL("team"), "four * "+a.URL())
	got, err := completed(t, newSupply(t, documents), tree, ".")
	if want := "charts/four four 1.0.0\ncharts/one one 1.0.0\ncharts/three three 1.0.0\ncharts/two two 1.0.0\n"; err != nil || got != want {
		t.Errorf("%v\n%swant\n%s", err, got, want)
	}
	demandOnly(t, "a", a.Requests(), basic("ann", "secret-of-a"))
	demandOnly(t, "b", b.Requests(), basic("bob", "secret-of-b"))
	demandOnly(t, "the open one", open.Requests(), "")
	demandOnly(t, "the registry", registry.Requests(), basic("eve", "secret-of-c"))

	// What belongs to no object is asked for without any.
	_, err = completed(t, newSupply(t, strings.Replace(documents, "url: "+a.URL(), "url: "+a.URL()+"/other", 1)), umbrella("one * "+a.URL()), ".")
	demandFailure(t, err, `"one"`, "401")
}

// demandOnly demands that requests came, and came with nothing or want.
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

// TestDependenciesAreVerified where their PkgRepository names a keyring, and not
// fetched without a signature.
func TestDependenciesAreVerified(t *testing.T) {
	now := time.Now().Add(-time.Hour)
	ann, other := newKey(t, now, 0), newKey(t, now, 0)
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0", Archive: archiveOf(t, "lib", "1.0.0")})
	documents := repositoryObject("strict", site.URL(), "") + "  verify: {secretRef: {name: ring}}\n" +
		"---\napiVersion: v1\nkind: Secret\nmetadata: {name: ring}\ndata: {ann.asc: " + base64.StdEncoding.EncodeToString(public(t, ann, true)) + "}\n"
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
				got, err := completed(t, newSupply(t, documents), umbrella("lib ^1 "+repository), ".")
				if c.says != "" {
					demandFailure(t, err, `dependency "lib"`, c.says)
				} else if err != nil || got != "charts/lib lib 1.0.0\n" {
					t.Errorf("%v\n%s", err, got)
				}
			}
		})
	}
	// Without a keyring nobody asks for the signature.
	if _, err := completed(t, newSupply(t, ""), umbrella("lib ^1 "+site.URL()), "."); err != nil {
		t.Error(err)
	}
}

// TestDependenciesOffline: a directory stands in for a repository, by the URL of
// the object or, without one, that of the dependency.
func TestDependenciesOffline(t *testing.T) {
	site := testenv.StartCharts(t, testenv.ChartsConfig{})
	archive := site.Put(testenv.ChartVersion{Name: "lib", Version: "1.0.0", Archive: archiveOf(t, "lib", "1.0.0")})
	dir := t.TempDir()
	for name, text := range map[string][]byte{"index.yaml": site.Index(), "lib-1.0.0.tgz": archive} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	object := repositoryObject("named", "https://charts.example/x", "")
	for _, c := range []struct{ documents, local, wanted string }{
		{"", "https://charts.example/x", "https://charts.example/x"},
		{"", "https://charts.example/x", "https://charts.example/x/"},
		{object, "https://charts.example/x", "https://charts.example/x/"},
		{object, "https://charts.example/x", "@named"},
	} {
		s := newSupply(t, c.documents)
		s.env.Local = map[string]string{c.local: dir}
		if got, err := completed(t, s, umbrella("lib ^1 "+c.wanted), "."); err != nil || got != "charts/lib lib 1.0.0\n" {
			t.Errorf("%s for %s: %v\n%s", c.local, c.wanted, err, got)
		}
	}
}
