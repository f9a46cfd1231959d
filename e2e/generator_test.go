package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/headgate-io/headgate/internal/testenv"
)

// composed declares a generator that makes two artifacts from a Git repository, an artifact and a
// chart in a registry, and a bucket.
const composed = `
apiVersion: source.extensions.fluxcd.io/v1beta1
kind: ArtifactGenerator
metadata: {name: app}
spec:
  sources:
  - {alias: app, kind: GitRepository, name: app}
  - {alias: platform, kind: OCIRepository, name: platform}
  - {alias: chart, kind: HelmChart, name: small}
  - {alias: files, kind: Bucket, name: files}
  artifacts:
  - name: release
    copy:
    - {from: "@app/deploy/**", to: "@artifact/app/", exclude: [test, "*.md"]}
    - {from: "@app/values.yaml", to: "@artifact/"}
    - {from: "@platform/values.yaml", to: "@artifact/values.yaml", strategy: Merge}
    - {from: "@platform/bundles/*", to: "@artifact/dashboards", strategy: Extract}
    - {from: "@chart/small/Chart.yaml", to: "@artifact/chart.yaml"}
    - {from: "@files/images/*.svg", to: "@artifact/"}
  - name: docs
    originRevision: "@app"
    copy:
    - {from: "@app/docs", to: "@artifact/"}
---
apiVersion: source.toolkit.fluxcd.io/v1
kind: HelmChart
metadata: {name: small}
spec: {interval: 1m, chart: small, version: "*", sourceRef: {kind: HelmRepository, name: charts}}
`

// TestGenerator composes artifacts from real servers as in the documentation. A locked fetch must
// produce the same artifacts after all sources have moved.
func TestGenerator(t *testing.T) {
	t.Parallel()
	repo := testenv.NewRepo(t)
	repo.Commit(testenv.Commit{Branch: "main", Message: "first", Files: fstest.MapFS{
		"deploy/app.yaml": {Data: []byte("kind: App\n")}, "deploy/run.sh": {Data: []byte("#!/bin/sh\n"), Mode: 0o755}, "deploy/README.md": {Data: []byte("# app\n")},
		"deploy/test/app.yaml": {Data: []byte("kind: Test\n")}, "deploy/link.yaml": {Data: []byte("app.yaml"), Mode: fs.ModeSymlink},
		"docs/index.md": {Data: []byte("# docs\n")}, "values.yaml": {Data: []byte("# of the app\nreplicas: 1\nimage: {tag: \"1.0\", pull: [a, b]}\n")},
	}})
	addr := distribution{root: t.TempDir()}.serve(t)
	bundles := stringMap{"bundles/dash.tgz": archive(t, stringMap{"dash/a.json": "{}\n"}), "bundles/notes.txt": "notes\n"}
	publish(t, addr, "stable", mergeFiles(bundles, stringMap{"values.yaml": "image: {pull: [c]}\nhost: shop.example.org\n"}))
	helm := newHelm(t, nil)
	chart := func(version string) {
		t.Helper()
		helm.run(t, "helm3", "push", "--plain-http", helm.pack(t, "helm3", writeFiles(t, smallChart("small", version))), "oci://"+addr+"/charts")
	}
	chart("1.0.0")
	store := minioServer{}.serve(t)
	store.bucket("files", stringMap{"images/logo.svg": "<svg/>\n", "images/photo.png": "png", "top.svg": "<svg/>\n"})

	docs := []any{object("GitRepository", "app", map[string]any{"url": testenv.ServeGit(t, testenv.GitConfig{}, repo).Repo(), "ref": stringMap{"branch": "main"}}),
		object("OCIRepository", "platform", map[string]any{"url": "oci://" + addr + "/team/app", "ref": stringMap{"tag": "stable"}, "insecure": true}),
		object("PkgRepository", "charts", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "insecure": true}),
		object("Bucket", "files", map[string]any{"endpoint": store.addr, "bucketName": "files", "insecure": true, "secretRef": stringMap{"name": "root"}}), secret("root", rootKeys)}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write(t, at("sources.yaml"), read(t, writeDocuments(t, docs))+"---"+composed)
	run := func(want int, args ...string) string {
		t.Helper()
		cmd := headgate(t.Context(), t, append(args, "-f", at("sources.yaml"))...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != want {
			t.Fatalf("%v: exit code %d, %s", args, got, out)
		}
		return string(out)
	}
	wantMade := func(out string, want stringMap) {
		t.Helper()
		got := stringMap{}
		for _, name := range []string{"release", "docs"} {
			for path, text := range filesOf(t, os.DirFS(at(out+"/externalartifact/default/"+name))) {
				got[name+"/"+path] = text
			}
		}
		wantFiles(t, got, want)
	}

	want := stringMap{
		"release/app/app.yaml": "kind: App\n", "release/app/run.sh": "#!/bin/sh\n",
		"release/values.yaml":            "host: shop.example.org\nimage:\n  pull:\n  - c\n  tag: \"1.0\"\nreplicas: 1\n",
		"release/dashboards/dash/a.json": "{}\n", "release/chart.yaml": "apiVersion: v2\nname: small\nversion: 1.0.0\n",
		"release/images/logo.svg": "<svg/>\n", "docs/docs/index.md": "# docs\n",
	}
	fetch := []string{"fetch", "artifactgenerator/app", "--cache", at("cache")}
	run(0, append(fetch, "--store", at("store"), "--out", at("first"))...)
	wantMade("first", want)
	run(0, "lock", "--cache", at("cache"))
	run(0, "lock", "--check")
	docsBefore, releaseBefore := run(0, "resolve", "externalartifact/docs", "-o", "json"), run(0, "resolve", "externalartifact/release", "-o", "json")

	repo.Commit(testenv.Commit{Branch: "main", Message: "second", Files: fstest.MapFS{"deploy/app.yaml": {Data: []byte("kind: App2\n")},
		"docs/index.md": {Data: []byte("# docs\n")}, "values.yaml": {Data: []byte("replicas: 2\n")}}})
	publish(t, addr, "stable", mergeFiles(bundles, stringMap{"values.yaml": "host: new.example.org\n"}))
	chart("1.1.0")
	store.put("files", "images/logo.svg", "<svg id=\"2\"/>\n")
	if now := run(0, "resolve", "externalartifact/docs", "-o", "json"); now != docsBefore {
		t.Errorf("docs moved with what it does not hold: %s, before %s", now, docsBefore)
	}
	if now := run(0, "resolve", "externalartifact/release", "-o", "json"); now == releaseBefore {
		t.Errorf("release did not move: %s", now)
	}
	run(0, append(fetch, "--store", at("store"), "--out", at("first"))...)
	wantMade("first", stringMap{
		"release/app/app.yaml": "kind: App2\n", "release/values.yaml": "host: new.example.org\nreplicas: 2\n",
		"release/dashboards/dash/a.json": "{}\n", "release/chart.yaml": "apiVersion: v2\nname: small\nversion: 1.1.0\n",
		"release/images/logo.svg": "<svg id=\"2\"/>\n", "docs/docs/index.md": "# docs\n",
	})

	run(0, append(fetch, "--locked", "--store", at("other"), "--out", at("locked"))...)
	wantMade("locked", want)
	run(0, append(fetch, "--locked", "--offline", "--store", at("offline"), "--out", at("offline.out"))...)
	wantMade("offline.out", want)
	if said := run(5, "fetch", "artifactgenerator/app", "--locked", "--store", at("none")); !strings.Contains(said, "Bucket/default/files: ") || !strings.Contains(said, "objects were overwritten") {
		t.Errorf("without the cache: %s", said)
	}
}
