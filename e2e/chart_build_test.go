package e2e

import (
	"encoding/json"
	"errors"
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

// serveGitCharts serves a Git repository that has the charts of dir in its directory charts.
func serveGitCharts(t *testing.T, dir string) *gitServer {
	t.Helper()
	files := fstest.MapFS{}
	for name, text := range filesOf(t, os.DirFS(dir)) {
		files["charts/"+name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "charts", Files: files})
	return serveGit(t, repo)
}

// checkRendering checks that helm renders a chart that headgate built like the same chart handled by helm
// alone, and lints the former. The replacer same removes the differences that a stamped version
// causes.
func checkRendering(t *testing.T, h helm, ours, alone string, same *strings.Replacer, more ...string) {
	t.Helper()
	for _, name := range helmReleases {
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

// TestChartUmbrella builds a chart with dependencies in the same Git repository, in a repository
// behind nginx, in a chartmuseum and in a registry, each with its own password. helm must render
// the result like the chart whose dependencies helm fetched itself.
func TestChartUmbrella(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	h := newHelm(t, ca)
	nginx := serveFiles(t, packageCharts(t, h, webChart("1.0.0"), webChart("1.4.0"), webChart("2.0.0")))
	clerk := serveChartMuseum(t, "carol", "c4rol")
	clerk.put(t, h.pack(t, "helm3", writeFiles(t, smallChart("queue", "0.3.1"))))
	addr := distribution{root: t.TempDir(), ca: ca, password: "r3gistry"}.serve(t)
	pushCharts(t, h, addr, "r3gistry", smallChart("cache", "1.0.0"), smallChart("cache", "2.1.0"))

	umbrella := stringMap{
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
	dir := writeCharts(t, map[string]stringMap{"umbrella": umbrella, "common": commonChart})
	at := filepath.Join(dir, "umbrella")
	h.run(t, "helm3", "repo", "add", "web", nginx.plain+"/basic", "--username", "alice", "--password", "s3cret")
	h.run(t, "helm3", "repo", "add", "queue", clerk.url, "--username", "carol", "--password", "c4rol")
	h.run(t, "helm3", "dependency", "update", at)
	alone := writeCharts(t, map[string]stringMap{"umbrella": filesOf(t, os.DirFS(at))})
	must(t, os.RemoveAll(filepath.Join(at, "charts")))
	must(t, os.RemoveAll(filepath.Join(at, "tmpcharts")))

	docs := func(git string) []any {
		return []any{
			object("GitRepository", "git", map[string]any{"url": git, "secretRef": stringMap{"name": "git"}}), secret("git", stringMap{"username": "alice", "password": "s3cret"}),
			object("PkgRepository", "web", map[string]any{"url": nginx.plain + "/basic/", "secretRef": stringMap{"name": "web"}}), secret("web", stringMap{"username": "alice", "password": "s3cret"}),
			object("PkgRepository", "queue", map[string]any{"url": clerk.url, "secretRef": stringMap{"name": "queue"}}), secret("queue", stringMap{"username": "carol", "password": "c4rol"}),
			object("PkgRepository", "cache", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "secretRef": stringMap{"name": "cache"}, "certSecretRef": stringMap{"name": "ca"}}),
			secret("cache", stringMap{"username": "alice", "password": "r3gistry"}), secret("ca", stringMap{"ca.crt": string(ca.PEM())}),
			chartOf("GitRepository", "git", "charts/umbrella", nil),
		}
	}
	for _, locked := range []bool{true, false} {
		if !locked {
			must(t, os.Remove(filepath.Join(at, "Chart.lock")))
			must(t, os.Remove(filepath.Join(alone, "umbrella", "Chart.lock")))
		}
		t.Run(fmt.Sprintf("locked %v", locked), func(t *testing.T) {
			server := serveGitCharts(t, dir)
			store := t.TempDir()
			ours := fetchChart(t, store, docs(server.plain+"/basic/repo.git"))
			checkRendering(t, h, ours, filepath.Join(alone, "umbrella"), nil)

			// Another process builds the same bytes.
			if other := fetchChart(t, t.TempDir(), docs(server.plain+"/basic/repo.git")); read(t, other) != read(t, ours) {
				t.Error("built twice, the chart is not the same")
			}
			if again := fetchObjects(t, store, docs(server.plain+"/basic/repo.git"), "--detailed-exitcode"); again.code != 0 {
				t.Errorf("the second run: exit code %d\n%s", again.code, again.stderr)
			}
			// Without the PkgRepository objects there are no credentials.
			wantChartRefused(t, slices.Concat(docs(server.plain + "/basic/repo.git")[:2], docs(server.plain + "/basic/repo.git")[9:]), 1, "401")
		})
	}
}

// TestChartBuild builds several kinds of charts from Git. It compares their files, and their
// rendering by helm, with those of helm package for the same directory.
func TestChartBuild(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	nginx := serveFiles(t, packageCharts(t, h, smallChart("cache", "1.0.0"), smallChart("cache", "2.1.0")))
	requirements := fmt.Sprintf("dependencies:\n- name: cache\n  version: ^1\n  repository: %s/public\n- name: cache\n  version: ^2\n  repository: %s/public/\n  alias: second\n- name: near\n  version: 0.1.0\n  repository: file://../near\n", nginx.plain, nginx.plain)
	all := map[string]stringMap{
		"web":  webChart("1.0.0"),
		"near": smallChart("near", "0.1.0"),
		"legacy": {
			"Chart.yaml":               "apiVersion: v1\nname: legacy\nversion: 0.9.0\nappVersion: \"1.10\"\n",
			"requirements.yaml":        requirements,
			"values.yaml":              "second: {size: 5}\n",
			"templates/configmap.yaml": smallChart("", "")["templates/configmap.yaml"],
		},
		"library": mergeFiles(commonChart, stringMap{"Chart.yaml": "apiVersion: v2\nname: library\nversion: 0.4.0\ntype: library\n"}),
		"vendor":  mergeFiles(smallChart("vendor", "1.0.0"), stringMap{"Chart.yaml": "apiVersion: v2\nname: vendor\nversion: 1.0.0\ndependencies:\n- {name: inside, version: 0.0.1}\n", "charts/inside/Chart.yaml": "apiVersion: v2\nname: inside\nversion: 0.0.1\n", "charts/inside/templates/a.yaml": "kind: Inside\n", "charts/_old/Chart.yaml": "name: old\n"}),
		"crlf":    mergeFiles(smallChart("crlf", "1.0.0"), stringMap{"values.yaml": "\xef\xbb\xbfenabled: true\r\nsize: 1\r\n", "Chart.yaml": "\xef\xbb\xbfapiVersion: v2\r\nname: crlf\r\nversion: 1.0.0\r\n"}),
	}
	dir := writeCharts(t, all)
	h.run(t, "helm3", "dependency", "update", filepath.Join(dir, "legacy"))
	alone := writeCharts(t, map[string]stringMap{"legacy": filesOf(t, os.DirFS(filepath.Join(dir, "legacy")))})
	must(t, os.RemoveAll(filepath.Join(dir, "legacy", "charts")))
	git := object("GitRepository", "git", map[string]any{"url": serveGitCharts(t, dir).plain + "/public/repo.git"})
	for name := range all {
		t.Run(name, func(t *testing.T) {
			ours := fetchChart(t, t.TempDir(), []any{git, chartOf("GitRepository", "git", "charts/"+name, nil)})
			at := filepath.Join(dir, name)
			if name == "legacy" {
				at = filepath.Join(alone, name)
			}
			for _, packager := range helmReleases {
				theirs := h.pack(t, packager, at)
				got, want := unpack(t, ours), unpack(t, theirs)
				// helm keeps fetched charts in charts/ unchanged and rewrites Chart.yaml. It also
				// drops what it ignores when it reads a chart: byte order marks, and files in
				// charts/ whose name begins with _.
				for path, text := range got {
					got[path] = strings.TrimPrefix(text, "\ufeff")
				}
				delete(got, "vendor/charts/_old/Chart.yaml")
				for _, files := range []stringMap{got, want} {
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
				return // library charts cannot be rendered
			}
			checkRendering(t, h, ours, at, nil)
		})
	}
}

// unpack returns the files in the archive of a chart.
func unpack(t *testing.T, archive string) stringMap { return archiveFiles(t, read(t, archive)) }

// TestChartValues compares the rendering of charts with merged spec.valuesFiles to what helm
// renders from the same values files.
func TestChartValues(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	base := writeFiles(t, webChart("1.0.0"))
	files := []string{"values.yaml", "values-prod.yaml", "env/eu.yaml"}
	var flags []string
	for _, name := range files {
		flags = append(flags, "-f", filepath.Join(base, filepath.FromSlash(name)))
	}
	same := strings.NewReplacer("1.0.0+1", "1.0.0")

	nginx := serveFiles(t, packageCharts(t, h, webChart("1.0.0")))
	repository := object("PkgRepository", "charts", map[string]any{"url": nginx.plain + "/public"})
	spec := map[string]any{"valuesFiles": append(slices.Clone(files), "absent.yaml"), "ignoreMissingValuesFiles": true}
	store := t.TempDir()
	ours := fetchChart(t, store, []any{repository, chartOf("PkgRepository", "charts", "web", spec)})
	testenv.Equal(t, filepath.Base(ours), "web-1.0.0+1.tgz", "stored")
	checkRendering(t, h, ours, base, same, flags...)

	// In Git the paths are relative to the root of the source.
	dir := writeCharts(t, map[string]stringMap{"web": webChart("1.0.0")})
	var paths []string
	for _, name := range files {
		paths = append(paths, "charts/web/"+name)
	}
	git := object("GitRepository", "git", map[string]any{"url": serveGitCharts(t, dir).plain + "/public/repo.git"})
	docs := []any{git, chartOf("GitRepository", "git", "charts/web", map[string]any{"valuesFiles": paths})}
	built := fetchChart(t, t.TempDir(), docs)
	checkRendering(t, h, built, base, same, flags...)
	if other := fetchChart(t, t.TempDir(), docs); read(t, other) != read(t, built) {
		t.Error("built twice, the chart is not the same")
	}

	// The files may be in another source.
	docs = []any{git, repository, chartOf("PkgRepository", "charts", "web", map[string]any{"valuesFiles": []string{"values.yaml", "source:git/charts/web/values-prod.yaml", "source:git/charts/web/env/eu.yaml"}})}
	checkRendering(t, h, fetchChart(t, t.TempDir(), docs), base, same, flags...)
	wantChartRefused(t, []any{repository, chartOf("PkgRepository", "charts", "web", map[string]any{"valuesFiles": []string{"absent.yaml"}})}, 2, "absent.yaml")
}

// pushCharts pushes charts with helm to a registry that requires user alice and a password.
func pushCharts(t *testing.T, h helm, addr, password string, all ...stringMap) {
	t.Helper()
	for i, chart := range all {
		name := helmReleases[i%len(helmReleases)]
		h.run(t, name, "registry", "login", addr, "--username", "alice", "--password", password)
		h.run(t, name, "push", h.pack(t, name, writeFiles(t, chart)), "oci://"+addr+"/charts")
	}
}

// TestChartRegistry fetches charts that helm pushed from a registry with TLS and users, with both
// types of Secrets and with a Docker login.
func TestChartRegistry(t *testing.T) {
	t.Parallel()
	ca := testenv.NewCA(t)
	h := newHelm(t, ca)
	addr := distribution{root: t.TempDir(), ca: ca, basic: true}.serve(t)
	pushCharts(t, h, addr, "s3cret", webChart("1.0.0"), webChart("1.1.0+b.1"), webChart("2.0.0-rc.1"))
	auths := login{addr, "alice", "s3cret"}.docker()
	docker := secret("login", auths)
	for _, c := range []struct {
		name, version, want string
		login               any
		failed              string
	}{
		{"newest", "*", "1.1.0+b.1", secret("login", stringMap{"username": "alice", "password": "s3cret"}), ""},
		{"range", "<1.1", "1.0.0", docker, ""},
		{"exact", "1.1.0+b.1", "1.1.0+b.1", docker, ""},
		{"pre-release", ">=2.0.0-0", "2.0.0-rc.1", docker, ""},
		{"absent", "^3", "", docker, "3"},
		{"wrong", "*", "", secret("login", stringMap{"username": "alice", "password": "canary"}), "401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := []any{c.login, secret("ca", stringMap{"ca.crt": string(ca.PEM())}),
				object("PkgRepository", "charts", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "secretRef": stringMap{"name": "login"}, "certSecretRef": stringMap{"name": "ca"}}),
				chartOf("PkgRepository", "charts", "web", map[string]any{"version": c.version})}
			if c.failed != "" {
				wantChartRefused(t, docs, 1, c.failed)
				return
			}
			store := t.TempDir()
			archive := fetchChart(t, store, docs)
			dir := t.TempDir()
			h.run(t, "helm3", "pull", "oci://"+addr+"/charts/web", "--version", c.want, "--destination", dir)
			if filepath.Base(archive) != "web-"+c.want+".tgz" || read(t, archive) != read(t, filepath.Join(dir, "web-"+c.want+".tgz")) {
				t.Errorf("%s is not what helm pulls", archive)
			}
			if again := fetchObjects(t, store, docs, "--detailed-exitcode"); again.code != 0 {
				t.Errorf("the second run: exit code %d\n%s", again.code, again.stderr)
			}
		})
	}

	// The same without documents, and with an OCIRepository.
	config := write(t, filepath.Join(t.TempDir(), "config.json"), auths[".dockerconfigjson"])
	out := filepath.Join(t.TempDir(), "out")
	store := t.TempDir()
	cmd := headgate(t.Context(), t, "fetch", "--chart", "web", "--version", "1.0.0", "oci://"+addr+"/charts", "--store", store, "--out", out, "--docker-config="+config, "--cert-secret-ref", "ca", "--secrets", writeSecret(t, "ca", stringMap{"ca.crt": string(ca.PEM())}))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if text := read(t, filepath.Join(out, "web", "Chart.yaml")); !strings.Contains(text, "version: 1.0.0") {
		t.Errorf("extracted %q", text)
	}
	store = t.TempDir()
	archive := fetchChart(t, store, []any{docker, secret("ca", stringMap{"ca.crt": string(ca.PEM())}),
		object("OCIRepository", "web", map[string]any{"url": "oci://" + addr + "/charts/web", "ref": stringMap{"tag": "1.0.0"}, "secretRef": stringMap{"name": "login"}, "certSecretRef": stringMap{"name": "ca"},
			"layerSelector": stringMap{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy"}}),
		chartOf("OCIRepository", "web", "web", nil)})
	testenv.Equal(t, filepath.Base(archive), "web-1.0.0.tgz", "stored")
}

// TestChartPublished pulls and renders with helm a chart that headgate pushed.
func TestChartPublished(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	addr := distribution{root: t.TempDir()}.serve(t)
	dir, store := packageCharts(t, h, webChart("1.1.0+b.1")), t.TempDir()
	archive := fetchChart(t, store, []any{object("PkgRepository", "charts", map[string]any{"url": "https://charts.example.org"}),
		chartOf("PkgRepository", "charts", "web", nil)}, "--from", "https://charts.example.org="+dir)
	if p := push(t, nil, "pkgchart/chart", "oci://"+addr+"/charts/web", "--store", store); len(p.Tags) != 1 || p.Tags[0] != "1.1.0_b.1" {
		t.Errorf("tags %q", p.Tags)
	}
	for _, name := range helmReleases {
		to := t.TempDir()
		h.run(t, name, "pull", "--plain-http", "oci://"+addr+"/charts/web", "--version", "1.1.0+b.1", "--destination", to)
		if read(t, filepath.Join(to, "web-1.1.0+b.1.tgz")) != read(t, archive) {
			t.Errorf("%s pulls something else", name)
		}
		h.run(t, name, "template", "--plain-http", "web", "oci://"+addr+"/charts/web", "--version", "1.1.0+b.1")
	}
}

// writeSecret writes a directory with one Secret and returns it.
func writeSecret(t *testing.T, name string, data stringMap) string {
	t.Helper()
	files := stringMap{}
	for key, text := range data {
		files[name+"/"+key] = text
	}
	return writeFiles(t, files)
}

// TestChartProvenance verifies provenance files that helm package --sign wrote with gpg keys, as
// PkgRepository.spec.verify requires.
func TestChartProvenance(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	alice, mallory := newPGPSigner(t, "alice", "rsa3072", "sign", "never"), newPGPSigner(t, "mallory", "rsa3072", "sign", "never")
	ring := filepath.Join(h.home, "secring.gpg") // the key ring format of GnuPG 1
	alice.GPG("", "--output", ring, "--export-secret-keys")
	dir := t.TempDir()
	for i, version := range []string{"1.0.0", "1.1.0"} {
		archive := h.pack(t, helmReleases[i], writeFiles(t, webChart(version)), "--sign", "--key", "alice", "--keyring", ring)
		for _, suffix := range []string{"", ".prov"} {
			must(t, os.Rename(archive+suffix, filepath.Join(dir, filepath.Base(archive)+suffix)))
		}
	}
	unsigned := h.pack(t, "helm3", writeFiles(t, smallChart("cache", "1.0.0")))
	must(t, os.Rename(unsigned, filepath.Join(dir, filepath.Base(unsigned))))
	must(t, os.WriteFile(filepath.Join(dir, "near-0.1.0.tgz"), []byte(read(t, h.pack(t, "helm3", writeFiles(t, smallChart("near", "0.1.0"))))), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "near-0.1.0.tgz.prov"), []byte(read(t, filepath.Join(dir, "web-1.0.0.tgz.prov"))), 0o600))
	h.run(t, "helm3", "repo", "index", dir)
	address := serveFiles(t, dir).plain + "/public"
	for _, c := range []struct {
		name, chart, version string
		key                  *signer
		refused              string
	}{
		{"helm3", "web", "1.0.0", alice, ""},
		{"helm4", "web", "1.1.0", alice, ""},
		{"another key", "web", "*", mallory, alice.ID},
		{"unsigned", "cache", "*", alice, ".prov"},
		{"of another chart", "near", "*", alice, "near"},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := []any{secret("trust", stringMap{c.key.Entry: string(c.key.Public())}),
				object("PkgRepository", "charts", map[string]any{"url": address, "verify": map[string]any{"secretRef": stringMap{"name": "trust"}}}),
				chartOf("PkgRepository", "charts", c.chart, map[string]any{"version": c.version})}
			if c.name != "helm3" && c.name != "helm4" {
				wantChartRefused(t, docs, 3, c.refused)
				return
			}
			store := t.TempDir()
			got := fetchObjects(t, store, docs)
			archive := got.artifact(t, store, "PkgChart/chart")
			if why := got.status["PkgChart/chart"].condition("SourceVerified"); !strings.HasPrefix(why, "True Succeeded: ") || !strings.Contains(why, alice.ID) {
				t.Errorf("SourceVerified %q", why)
			}
			if read(t, archive) != read(t, filepath.Join(dir, "web-"+c.version+".tgz")) {
				t.Error("the chart is not what was signed")
			}
			if mode, signer := verifyChart(t, docs); mode != "provenance" || !strings.Contains(signer, alice.ID) {
				t.Errorf("verify prints mode %q, signer %q", mode, signer)
			}
		})
	}
	// A chart that was changed after signing is refused, even if the index has its new digest.
	changed := h.pack(t, "helm3", writeFiles(t, mergeFiles(webChart("1.0.0"), stringMap{"values.yaml": "replicas: 100\nhosts: [evil]\n"})))
	must(t, os.Rename(changed, filepath.Join(dir, "web-1.0.0.tgz")))
	h.run(t, "helm3", "repo", "index", dir)
	wantChartRefused(t, []any{secret("trust", stringMap{alice.Entry: string(alice.Public())}),
		object("PkgRepository", "charts", map[string]any{"url": address, "verify": map[string]any{"secretRef": stringMap{"name": "trust"}}}),
		chartOf("PkgRepository", "charts", "web", map[string]any{"version": "1.0.0"})}, 3, "sha256")
}

// TestChartSigned verifies charts in a registry that cosign and notation signed, as
// PkgChart.spec.verify requires.
func TestChartSigned(t *testing.T) {
	t.Parallel()
	for name, create := range map[string]func(*testing.T) technology{"cosign2": newCosign2, "cosign3": newCosign3, "notation": newNotationJWS} {
		t.Run(name, func(t *testing.T) {
			h, s := newHelm(t, nil), create(t)
			addr := serveOlareg(t)
			for _, chart := range []stringMap{webChart("1.0.0"), webChart("1.1.0"), smallChart("cache", "1.0.0")} {
				h.run(t, "helm3", "push", "--plain-http", h.pack(t, "helm3", writeFiles(t, chart)), "oci://"+addr+"/charts")
			}
			digest := strings.TrimSpace(newClientHome(t).run(t, "crane", "digest", "--insecure", addr+"/charts/web:1.0.0"))
			s.sign(t, addr+"/charts/web@"+digest)
			docs := func(chart, version string, trust stringMap) []any {
				return []any{secret("trust", trust),
					object("PkgRepository", "charts", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "insecure": true}),
					chartOf("PkgRepository", "charts", chart, map[string]any{"version": version, "verify": map[string]any{"provider": s.provider, "secretRef": stringMap{"name": "trust"}}})}
			}
			store := t.TempDir()
			got := fetchObjects(t, store, docs("web", "1.0.0", s.trust))
			got.artifact(t, store, "PkgChart/chart")
			if why := got.status["PkgChart/chart"].condition("SourceVerified"); !strings.HasPrefix(why, "True Succeeded: verified signature of ") || !strings.Contains(why, digest) {
				t.Errorf("SourceVerified %q", why)
			}
			if mode, signer := verifyChart(t, docs("web", "1.0.0", s.trust)); mode != s.provider || signer == "" {
				t.Errorf("verify prints mode %q, signer %q", mode, signer)
			}
			wantChartRefused(t, docs("web", "1.0.0", s.otherSigner), 3, s.says[attackWrongKey])
			wantChartRefused(t, docs("web", "1.1.0", s.trust), 3, s.says[attackStripped])
			wantChartRefused(t, docs("cache", "*", s.trust), 3, s.says[attackStripped])
		})
	}
}

// verifyChart runs headgate verify on PkgChart/chart and returns the printed mode and signer.
func verifyChart(t *testing.T, docs []any) (mode, signer string) {
	t.Helper()
	out, err := headgate(t.Context(), t, "verify", "-f", writeDocuments(t, docs), "pkgchart/chart", "-o", "json").Output()
	var found []struct{ VerificationMode, Signer string }
	if err := errors.Join(err, json.Unmarshal(out, &found)); err != nil || len(found) != 1 {
		t.Fatalf("headgate verify printed %q: %v", out, err)
	}
	return found[0].VerificationMode, found[0].Signer
}
