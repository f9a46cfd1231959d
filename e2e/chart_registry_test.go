package e2e

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// pushCharts lets helm push charts to a registry that wants alice and a password.
func pushCharts(t *testing.T, h helm, addr, password string, all ...keys) {
	t.Helper()
	for i, chart := range all {
		name := packagers[i%len(packagers)]
		h.run(t, name, "registry", "login", addr, "--username", "alice", "--password", password)
		h.run(t, name, "push", h.pack(t, name, written(t, chart)), "oci://"+addr+"/charts")
	}
}

// TestChartRegistry takes charts that helm push wrote from a registry with TLS
// and users, as Secrets of either sort and the login of docker name them.
func TestChartRegistry(t *testing.T) {
	ca := testenv.NewCA(t)
	h := newHelm(t, ca)
	addr := distribution{root: t.TempDir(), ca: ca, basic: true}.serve(t)
	pushCharts(t, h, addr, "s3cret", web("1.0.0"), web("1.1.0+b.1"), web("2.0.0-rc.1"))
	auths, err := json.Marshal(map[string]any{"auths": map[string]any{addr: keys{"username": "alice", "password": "s3cret"}}})
	check(t, err)
	docker := secret("login", keys{".dockerconfigjson": string(auths)}).(map[string]any)
	docker["type"] = "kubernetes.io/dockerconfigjson"
	for _, c := range []struct {
		name, version, want string
		login               any
		failed              string
	}{
		{"newest", "*", "1.1.0+b.1", secret("login", keys{"username": "alice", "password": "s3cret"}), ""},
		{"range", "<1.1", "1.0.0", docker, ""},
		{"exact", "1.1.0+b.1", "1.1.0+b.1", docker, ""},
		{"pre-release", ">=2.0.0-0", "2.0.0-rc.1", docker, ""},
		{"absent", "^3", "", docker, "3"},
		{"wrong", "*", "", secret("login", keys{"username": "alice", "password": "canary"}), "401"},
	} {
		t.Run(c.name, func(t *testing.T) {
			docs := []any{c.login, secret("ca", keys{"ca.crt": string(ca.PEM())}),
				object("PkgRepository", "charts", map[string]any{"type": "oci", "url": "oci://" + addr + "/charts", "secretRef": keys{"name": "login"}, "certSecretRef": keys{"name": "ca"}}),
				chartOf("PkgRepository", "charts", "web", map[string]any{"version": c.version})}
			if c.failed != "" {
				refusedChart(t, docs, 1, c.failed)
				return
			}
			store := t.TempDir()
			archive := fetchedChart(t, store, docs)
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

	// The same without a file: out of a registry, and with an OCIRepository.
	config := write(t, filepath.Join(t.TempDir(), "config.json"), string(auths))
	out := filepath.Join(t.TempDir(), "out")
	store := t.TempDir()
	cmd := headgate(t.Context(), t, "fetch", "--chart", "web", "--version", "1.0.0", "oci://"+addr+"/charts", "--store", store, "--out", out, "--docker-config="+config, "--cert-secret-ref", "ca", "--secrets", secrets(t, "ca", keys{"ca.crt": string(ca.PEM())}))
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	if text := read(t, filepath.Join(out, "web", "Chart.yaml")); !strings.Contains(text, "version: 1.0.0") {
		t.Errorf("extracted %q", text)
	}
	store = t.TempDir()
	archive := fetchedChart(t, store, []any{docker, secret("ca", keys{"ca.crt": string(ca.PEM())}),
		object("OCIRepository", "web", map[string]any{"url": "oci://" + addr + "/charts/web", "ref": keys{"tag": "1.0.0"}, "secretRef": keys{"name": "login"}, "certSecretRef": keys{"name": "ca"},
			"layerSelector": keys{"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy"}}),
		chartOf("OCIRepository", "web", "web", nil)})
	if filepath.Base(archive) != "web-1.0.0.tgz" {
		t.Errorf("stored %s", archive)
	}
}

// TestChartPublished lets helm pull and render a chart that headgate pushed.
func TestChartPublished(t *testing.T) {
	h := newHelm(t, nil)
	addr := distribution{root: t.TempDir()}.serve(t)
	dir, store := packaged(t, h, web("1.1.0+b.1")), t.TempDir()
	archive := fetchedChart(t, store, []any{object("PkgRepository", "charts", map[string]any{"url": "https://charts.example.org"}),
		chartOf("PkgRepository", "charts", "web", nil)}, "--from", "https://charts.example.org="+dir)
	if p := push(t, nil, "pkgchart/chart", "oci://"+addr+"/charts/web", "--store", store); len(p.Tags) != 1 || p.Tags[0] != "1.1.0_b.1" {
		t.Errorf("tags %q", p.Tags)
	}
	for _, name := range packagers {
		to := t.TempDir()
		h.run(t, name, "pull", "--plain-http", "oci://"+addr+"/charts/web", "--version", "1.1.0+b.1", "--destination", to)
		if read(t, filepath.Join(to, "web-1.1.0+b.1.tgz")) != read(t, archive) {
			t.Errorf("%s pulls something else", name)
		}
		h.run(t, name, "template", "--plain-http", "web", "oci://"+addr+"/charts/web", "--version", "1.1.0+b.1")
	}
}

// secrets writes a directory of one Secret.
func secrets(t *testing.T, name string, data keys) string {
	t.Helper()
	files := keys{}
	for key, text := range data {
		files[name+"/"+key] = text
	}
	return written(t, files)
}
