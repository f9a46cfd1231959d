package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// gitCharts serves charts, by name below the directory charts of a repository.
func gitCharts(t *testing.T, dir string) *gitServer {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range filesOf(t, os.DirFS(dir)) {
		files["charts/"+name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "charts", Files: files})
	return serveGit(t, repo)
}

// rendered compares what helm renders of a chart that headgate built with what
// it renders of one that it handled alone, and lints the former. same makes the
// one of the other where a version was stamped.
func rendered(t *testing.T, h helm, ours, alone string, same *strings.Replacer, more ...string) {
	t.Helper()
	for _, name := range packagers {
		got, want := h.template(t, name, ours), h.template(t, name, alone, more...)
		if same != nil {
			got = same.Replace(got)
		}
		if got != want || !strings.Contains(want, "kind:") {
			t.Errorf("%s renders\n%s\nbut of the chart that it handled alone\n%s", name, got, want)
		}
		h.run(t, name, "lint", ours)
	}
}

// TestChartUmbrella builds a chart that depends on others: beside it in its Git
// repository, in a repository behind nginx, in a chartmuseum and in a registry,
// each with a password of its own. What helm renders of it is what it renders
// once it has fetched the dependencies itself.
func TestChartUmbrella(t *testing.T) {
	ca := testenv.NewCA(t)
	h := newHelm(t, ca)
	nginx := serveFiles(t, packaged(t, h, web("1.0.0"), web("1.4.0"), web("2.0.0")))
	clerk := serveMuseum(t, "carol", "c4rol")
	clerk.put(t, h.pack(t, "helm3", written(t, small("queue", "0.3.1"))))
	addr := distribution{root: t.TempDir(), ca: ca, word: "r3gistry"}.serve(t)
	pushCharts(t, h, addr, "r3gistry", small("cache", "1.0.0"), small("cache", "2.1.0"))

	umbrella := keys{
		"Chart.yaml": fmt.Sprintf(`apiVersion: v2
name: umbrella
version: 3.2.1
dependencies:
- {name: common, version: ">=0.1.0", repository: "file://../common"}
- {name: web, version: ^1.0.0, repository: "%s/basic"}
- {name: queue, version: ~0.3, repository: "%s", condition: queue.enabled, import-values: [data]}
- {name: cache, version: 2.x, repository: "oci://%s/charts", alias: sessions}
- {name: cache, version: 1.0.0, repository: "oci://%s/charts", alias: pages, tags: [fast]}
`, nginx.plain, clerk.url, addr, addr),
		"values.yaml":         "web: {replicas: 7}\nsessions: {size: 2}\nqueue: {enabled: true}\ntags: {fast: true}\nglobal: {zone: a}\n",
		"templates/main.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: umbrella\n  labels: {{- include \"common.labels\" . | nindent 4 }}\ndata:\n  values: {{ toJson .Values | quote }}\n",
	}
	dir := charts(t, map[string]keys{"umbrella": umbrella, "common": common})
	at := filepath.Join(dir, "umbrella")
	h.run(t, "helm3", "repo", "add", "web", nginx.plain+"/basic", "--username", "alice", "--password", "s3cret")
	h.run(t, "helm3", "repo", "add", "queue", clerk.url, "--username", "carol", "--password", "c4rol")
	h.run(t, "helm3", "dependency", "update", at)
	alone := charts(t, map[string]keys{"umbrella": filesOf(t, os.DirFS(at))})
	check(t, os.RemoveAll(filepath.Join(at, "charts")))
	check(t, os.RemoveAll(filepath.Join(at, "tmpcharts")))

	docs := func(git string) []any {
		return []any{
			object("GitRepository", "git", map[string]any{"url": git, "secretRef": keys{"name": "git"}}), secret("git", keys{"username": "alice", "password": "s3cret"}),
			object("PkgRepository", "web", map[string]any{"url": nginx.plain + "/basic/", "secretRef": keys{"name": "web"}}), secret("web", keys{"username": "alice", "password": "s3cret"}),
			object("PkgRepository", "queue", map[string]any{"url": clerk.url, "secretRef": keys{"name": "queue"}}), secret("queue", keys{"username": "carol", "password": "c4rol"}),
			object("PkgRepository", "cache", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "secretRef": keys{"name": "cache"}, "certSecretRef": keys{"name": "ca"}}),
			secret("cache", keys{"username": "alice", "password": "r3gistry"}), secret("ca", keys{"ca.crt": string(ca.PEM())}),
			chartOf("GitRepository", "git", "charts/umbrella", nil),
		}
	}
	for _, locked := range []bool{true, false} {
		if !locked {
			check(t, os.Remove(filepath.Join(at, "Chart.lock")))
			check(t, os.Remove(filepath.Join(alone, "umbrella", "Chart.lock")))
		}
		t.Run(fmt.Sprintf("locked %v", locked), func(t *testing.T) {
			server := gitCharts(t, dir)
			store := t.TempDir()
			ours := fetchedChart(t, store, docs(server.plain+"/basic/repo.git"))
			rendered(t, h, ours, filepath.Join(alone, "umbrella"), nil)

			// Another process builds the same bytes.
			if other := fetchedChart(t, t.TempDir(), docs(server.plain+"/basic/repo.git")); read(t, other) != read(t, ours) {
				t.Error("built twice, the chart is not the same")
			}
			if again := fetchObjects(t, store, docs(server.plain+"/basic/repo.git"), "--detailed-exitcode"); again.code != 0 {
				t.Errorf("the second run: exit code %d\n%s", again.code, again.stderr)
			}
			// Without the objects there are no credentials.
			refusedChart(t, slices.Concat(docs(server.plain + "/basic/repo.git")[:2], docs(server.plain + "/basic/repo.git")[9:]), 1, "401")
		})
	}
}

// TestChartBuild builds charts of each sort from Git, and compares the files in
// them, and what helm renders of them, with what helm package makes of the same
// directory.
func TestChartBuild(t *testing.T) {
	h := newHelm(t, nil)
	nginx := serveFiles(t, packaged(t, h, small("cache", "1.0.0"), small("cache", "2.1.0")))
	requirements := fmt.Sprintf("dependencies:\n- name: cache\n  version: ^1\n  repository: %s/public\n- name: cache\n  version: ^2\n  repository: %s/public/\n  alias: second\n- name: near\n  version: 0.1.0\n  repository: file://../near\n", nginx.plain, nginx.plain)
	all := map[string]keys{
		"web":  web("1.0.0"),
		"near": small("near", "0.1.0"),
		"legacy": {
			"Chart.yaml":               "apiVersion: v1\nname: legacy\nversion: 0.9.0\nappVersion: \"1.10\"\n",
			"requirements.yaml":        requirements,
			"values.yaml":              "second: {size: 5}\n",
			"templates/configmap.yaml": small("", "")["templates/configmap.yaml"],
		},
		"library": merged(common, keys{"Chart.yaml": "apiVersion: v2\nname: library\nversion: 0.4.0\ntype: library\n"}),
		"vendor":  merged(small("vendor", "1.0.0"), keys{"Chart.yaml": "apiVersion: v2\nname: vendor\nversion: 1.0.0\ndependencies:\n- {name: inside, version: 0.0.1}\n", "charts/inside/Chart.yaml": "apiVersion: v2\nname: inside\nversion: 0.0.1\n", "charts/inside/templates/a.yaml": "kind: Inside\n", "charts/_old/Chart.yaml": "name: old\n"}),
		"crlf":    merged(small("crlf", "1.0.0"), keys{"values.yaml": "\xef\xbb\xbfenabled: true\r\nsize: 1\r\n", "Chart.yaml": "\xef\xbb\xbfapiVersion: v2\r\nname: crlf\r\nversion: 1.0.0\r\n"}),
	}
	dir := charts(t, all)
	h.run(t, "helm3", "dependency", "update", filepath.Join(dir, "legacy"))
	alone := charts(t, map[string]keys{"legacy": filesOf(t, os.DirFS(filepath.Join(dir, "legacy")))})
	check(t, os.RemoveAll(filepath.Join(dir, "legacy", "charts")))
	git := object("GitRepository", "git", map[string]any{"url": gitCharts(t, dir).plain + "/public/repo.git"})
	for name := range all {
		t.Run(name, func(t *testing.T) {
			ours := fetchedChart(t, t.TempDir(), []any{git, chartOf("GitRepository", "git", "charts/"+name, nil)})
			at := filepath.Join(dir, name)
			if name == "legacy" {
				at = filepath.Join(alone, name)
			}
			for _, packager := range packagers {
				theirs := h.pack(t, packager, at)
				got, want := unpacked(t, ours), unpacked(t, theirs)
				// helm keeps what was fetched into charts/ as it came and writes Chart.yaml
				// anew. It leaves out what it passes over in a chart that it reads: byte
				// order marks, and what in charts/ begins with a _.
				for path, text := range got {
					got[path] = strings.TrimPrefix(text, "\ufeff")
				}
				delete(got, "vendor/charts/_old/Chart.yaml")
				for _, files := range []keys{got, want} {
					maps.DeleteFunc(files, func(path, _ string) bool {
						return strings.HasPrefix(path, name+"/charts/") && name == "legacy" || path == name+"/Chart.yaml"
					})
				}
				if filepath.Base(ours) != filepath.Base(theirs) || fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%s packs %s with\n%q, but headgate %s with\n%q", packager, filepath.Base(theirs), want, filepath.Base(ours), got)
				}
			}
			if name == "library" {
				h.run(t, "helm3", "lint", ours)
				return // nobody can render one
			}
			rendered(t, h, ours, at, nil)
		})
	}
}

// unpacked returns the files in the archive of a chart.
func unpacked(t *testing.T, archive string) keys { return entries(t, read(t, archive)) }

// TestChartValues merges values files as spec.valuesFiles has them and lets helm
// render the result, and what it makes of the same files itself.
func TestChartValues(t *testing.T) {
	h := newHelm(t, nil)
	base := written(t, web("1.0.0"))
	files := []string{"values.yaml", "values-prod.yaml", "env/eu.yaml"}
	var flags []string
	for _, name := range files {
		flags = append(flags, "-f", filepath.Join(base, filepath.FromSlash(name)))
	}
	same := strings.NewReplacer("1.0.0+1", "1.0.0")

	nginx := serveFiles(t, packaged(t, h, web("1.0.0")))
	repository := object("PkgRepository", "charts", map[string]any{"url": nginx.plain + "/public"})
	spec := map[string]any{"valuesFiles": append(slices.Clone(files), "absent.yaml"), "ignoreMissingValuesFiles": true}
	store := t.TempDir()
	ours := fetchedChart(t, store, []any{repository, chartOf("PkgRepository", "charts", "web", spec)})
	if filepath.Base(ours) != "web-1.0.0+1.tgz" {
		t.Errorf("stored %s", ours)
	}
	rendered(t, h, ours, base, same, flags...)

	// In Git they are relative to the root of the source.
	dir := charts(t, map[string]keys{"web": web("1.0.0")})
	var paths []string
	for _, name := range files {
		paths = append(paths, "charts/web/"+name)
	}
	git := object("GitRepository", "git", map[string]any{"url": gitCharts(t, dir).plain + "/public/repo.git"})
	docs := []any{git, chartOf("GitRepository", "git", "charts/web", map[string]any{"valuesFiles": paths})}
	built := fetchedChart(t, t.TempDir(), docs)
	rendered(t, h, built, base, same, flags...)
	if other := fetchedChart(t, t.TempDir(), docs); read(t, other) != read(t, built) {
		t.Error("built twice, the chart is not the same")
	}

	// And they may be in another source.
	docs = []any{git, repository, chartOf("PkgRepository", "charts", "web", map[string]any{"valuesFiles": []string{"values.yaml", "source:git/charts/web/values-prod.yaml", "source:git/charts/web/env/eu.yaml"}})}
	rendered(t, h, fetchedChart(t, t.TempDir(), docs), base, same, flags...)
	refusedChart(t, []any{repository, chartOf("PkgRepository", "charts", "web", map[string]any{"valuesFiles": []string{"absent.yaml"}})}, 2, "absent.yaml")
}
