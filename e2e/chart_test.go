package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A helm is a home directory for helm. Its commands trust one authority.
type helm struct {
	home string
	ca   string // file
}

// helmReleases are the helm releases that the tests use.
var helmReleases = []string{"helm3", "helm4"}

func newHelm(t *testing.T, ca *testenv.CA) helm {
	t.Helper()
	h := helm{home: t.TempDir()}
	if ca != nil {
		h.ca = write(t, filepath.Join(h.home, "ca.crt"), string(ca.PEM()))
	}
	return h
}

// run runs helm and returns its standard output.
func (h helm) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), tool(t, name), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.home, "SSL_CERT_FILE=" + h.ca}
	cmd.Dir = h.home
	said := new(log)
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s%s", name, args, err, out, said)
	}
	return string(out)
}

// template renders a chart from a directory or an archive.
func (h helm) template(t *testing.T, name, chart string, more ...string) string {
	t.Helper()
	return h.run(t, name, append([]string{"template", "release", chart}, more...)...)
}

// pack packages a chart and returns the path of the archive.
func (h helm) pack(t *testing.T, name, chart string, more ...string) string {
	t.Helper()
	out := h.run(t, name, append([]string{"package", chart, "--destination", t.TempDir()}, more...)...)
	_, path, ok := strings.Cut(strings.TrimSpace(out), "saved it to: ")
	if !ok {
		t.Fatalf("%s package printed %q", name, out)
	}
	return path
}

// writeCharts writes charts by name into a directory and returns it.
func writeCharts(t *testing.T, all map[string]stringMap) string {
	t.Helper()
	files := stringMap{}
	for name, chart := range all {
		for path, text := range chart {
			files[name+"/"+path] = text
		}
	}
	return writeFiles(t, files)
}

// webChart is a chart that renders everything that a template can see.
func webChart(version string) stringMap {
	return stringMap{
		"Chart.yaml": "apiVersion: v2\nname: web\nversion: " + version + "\nappVersion: \"1.27\"\ndescription: serves pages # a comment\ntype: application\nkubeVersion: '>=1.20.0-0'\n" +
			"annotations:\n  example.org/built: \"yes\"\nmaintainers:\n- name: Alice\n  email: alice@example.org\n",
		"values.yaml":            "# what it needs\nreplicas: 1\nimage: {repository: web, tag: \"1.27\"}\nlabels:\n  tier: front\n  team: none\nhosts: [a.example.org, b.example.org]\nbig: 12345678901\nratio: 1.50\noff: \"no\"\n",
		"values-prod.yaml":       "replicas: 3\nlabels: {team: pages}\nhosts:\n- www.example.org\n",
		"env/eu.yaml":            "image: {repository: eu.example.org/web}\nlabels:\n  region: eu\n  team: eu-pages\ntext: |\n  two\n  lines\n",
		"templates/_helpers.tpl": "{{- define \"web.labels\" -}}\napp: {{ .Chart.Name }}\nversion: {{ .Chart.Version | quote }}\nbuilt: {{ index .Chart.Annotations \"example.org/built\" }}\n{{- end }}\n",
		"templates/deployment.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\n  labels:\n    {{- include \"web.labels\" . | nindent 4 }}\n" +
			"spec:\n  replicas: {{ .Values.replicas }}\n  selector: {matchLabels: {app: web}}\n",
		"templates/values.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}-values\ndata:\n  values: |\n    {{- toYaml (omit .Values \"global\") | nindent 4 }}\n  motd: {{ .Files.Get \"files/motd.txt\" | quote }}\n" +
			"  files: {{ range $name, $_ := .Files.Glob \"**\" }}{{ $name }} {{ end }}\n",
		"templates/NOTES.txt":          "{{ .Chart.Name }} is at {{ first .Values.hosts }}\n",
		"templates/tests/test.yaml":    "apiVersion: v1\nkind: Pod\nmetadata:\n  name: test\n  annotations: {helm.sh/hook: test}\n",
		"crds/page.yaml":               "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: pages.example.org\n",
		"values.schema.json":           `{"type": "object", "properties": {"replicas": {"type": "integer"}}}` + "\n",
		"files/motd.txt":               "willkommen, ü\r\n",
		"README.md":                    "# web\n",
		".helmignore":                  "# not these\n*.bak\n/private/\ndocs/*.draft\n",
		"notes.bak":                    "old\n",
		"private/key":                  "key\n",
		"docs/a.draft":                 "draft\n",
		"docs/a.md":                    "# a\n",
		"templates/.hidden.yaml":       "this is {{ no template\n",
		"templates/configmap.yaml.bak": "nor {{ this\n",
	}
}

// smallChart is a chart with one template.
func smallChart(name, version string) stringMap {
	return stringMap{
		"Chart.yaml":               "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n",
		"values.yaml":              "enabled: true\nsize: 1\nexports:\n  data: {from: " + name + "}\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\ndata:\n  version: {{ .Chart.Version | quote }}\n  values: {{ toJson .Values | quote }}\n",
	}
}

// commonChart is a library chart.
var commonChart = stringMap{
	"Chart.yaml":             "apiVersion: v2\nname: common\nversion: 0.4.0\ntype: library\n",
	"templates/_labels.yaml": "{{- define \"common.labels\" -}}\nfrom: {{ .Chart.Name }}\n{{- end }}\n",
}

// mergeFiles returns the files of a chart with files of more added or replaced.
func mergeFiles(chart, more stringMap) stringMap {
	all := maps.Clone(chart)
	maps.Copy(all, more)
	return all
}

// A outcomes is the result of a command on several objects.
type outcomes struct {
	code   int
	stderr string
	status map[string]status // by KIND/NAME
}

// artifact returns the path of an object's artifact in the store. The test fails
// unless all objects are ready.
func (r outcomes) artifact(t *testing.T, store, object string) string {
	t.Helper()
	a := r.status[object].Artifact
	if r.code != 0 || a == nil {
		t.Fatalf("exit code %d, %s: %+v\n%s", r.code, object, r.status[object].Conditions, r.stderr)
	}
	return filepath.Join(store, filepath.FromSlash(a.Path))
}

// fetchObjects runs headgate fetch on objects and Secrets.
func fetchObjects(t *testing.T, store string, docs []any, more ...string) outcomes {
	t.Helper()
	r := outcomes{status: map[string]status{}}
	var items []item
	r.code, r.stderr, items = fetchItems(t, store, writeDocuments(t, docs), more...)
	for _, i := range items {
		r.status[i.Kind+"/"+i.Metadata.Name] = i.Status
	}
	return r
}

// secret returns a Secret.
func secret(name string, data stringMap) any {
	d := document("v1", "Secret", name, "stringData", data)
	if data[".dockerconfigjson"] != "" {
		d["type"] = "kubernetes.io/dockerconfigjson"
	}
	return d
}

// object returns an object with the usual fields in its spec, and those of more.
func object(kind, name string, more map[string]any) any {
	spec := map[string]any{"interval": "1m"}
	if kind != "PkgChart" {
		spec["timeout"] = "20s"
	}
	if kind == "GitRepository" {
		spec["ref"] = stringMap{"branch": "main"}
	}
	maps.Copy(spec, more)
	return document("source.headgate.dev/v1", kind, name, "spec", spec)
}

// chartOf returns a PkgChart of a source.
func chartOf(kind, name, chart string, more map[string]any) any {
	spec := map[string]any{"chart": chart, "sourceRef": stringMap{"kind": kind, "name": name}}
	maps.Copy(spec, more)
	return object("PkgChart", "chart", spec)
}

// fetchChart runs headgate fetch and returns the path of the archive of
// PkgChart/chart.
func fetchChart(t *testing.T, store string, docs []any, more ...string) string {
	t.Helper()
	return fetchObjects(t, store, docs, more...).artifact(t, store, "PkgChart/chart")
}

// wantChartRefused runs headgate fetch, which must fail with the exit code, print all
// words, and store no chart.
func wantChartRefused(t *testing.T, docs []any, code int, words ...string) {
	t.Helper()
	store := t.TempDir()
	got := fetchObjects(t, store, docs)
	ready := got.status["PkgChart/chart"].condition("Ready")
	for _, word := range words {
		if !strings.Contains(got.stderr+ready, word) {
			t.Errorf("does not say %q:\n%s%s", word, got.stderr, ready)
		}
	}
	if got.code != code {
		t.Errorf("exit code %d, want %d\n%s", got.code, code, got.stderr)
	}
	for _, path := range storedFiles(t, store) {
		if strings.HasPrefix(path, "pkgchart") {
			t.Errorf("stored %s", path)
		}
	}
	for _, c := range got.stderr {
		if c < ' ' && c != '\n' {
			t.Errorf("a control character is shown: %q", got.stderr)
			break
		}
	}
}

// serveFiles serves a directory with nginx: at /public for all clients, with
// compression if they accept it, and at /basic for user alice with password
// s3cret.
func serveFiles(t *testing.T, dir string) *gitServer {
	t.Helper()
	return serveNginx(t, dir, `
location /public/ { alias @ROOT@/; gzip on; gzip_types *; gzip_min_length 1; }
location /basic/  { auth_basic charts; auth_basic_user_file @DIR@/htpasswd; alias @ROOT@/; }
`)
}

// A chartMuseum is a running chartmuseum, which stores charts and generates their
// index.
type chartMuseum struct{ url, user, password string }

func serveChartMuseum(t *testing.T, user, password string, more ...string) chartMuseum {
	t.Helper()
	addr, port := freeAddr(t)
	cmd := exec.Command(tool(t, "chartmuseum"), append([]string{"--listen-host", "127.0.0.1", "--port", port,
		"--storage", "local", "--storage-local-rootdir", t.TempDir(), "--basic-auth-user", user, "--basic-auth-pass", password}, more...)...)
	cmd.Env = []string{"HOME=" + t.TempDir()}
	start(t, cmd)
	await(t, addr)
	return chartMuseum{"http://" + addr, user, password}
}

// put uploads the archive of a chart.
func (m chartMuseum) put(t *testing.T, archive string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+"/api/charts", bytes.NewReader([]byte(read(t, archive))))
	must(t, err)
	req.SetBasicAuth(m.user, m.password)
	res, err := http.DefaultClient.Do(req)
	must(t, err)
	defer res.Body.Close()
	if said, _ := io.ReadAll(res.Body); res.StatusCode != http.StatusCreated {
		t.Fatalf("chartmuseum: %s: %s", res.Status, said)
	}
}

// packageCharts packages charts with alternating helm releases, generates their index
// and returns the directory.
func packageCharts(t *testing.T, h helm, all ...stringMap) string {
	t.Helper()
	dir := t.TempDir()
	for i, chart := range all {
		archive := h.pack(t, helmReleases[i%len(helmReleases)], writeFiles(t, chart))
		must(t, os.Rename(archive, filepath.Join(dir, filepath.Base(archive))))
	}
	h.run(t, "helm3", "repo", "index", dir)
	if text := read(t, filepath.Join(dir, "index.yaml")); strings.Count(text, "digest:") != len(all) {
		t.Fatalf("helm repo index wrote\n%s", text)
	}
	return dir
}

// TestChartRepository fetches charts from repositories that helm package and helm
// repo index generated, behind nginx and chartmuseum, and compares the result
// with what helm pulls.
func TestChartRepository(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	old, latest, next := h.pack(t, "helm3", writeFiles(t, webChart("1.0.0"))), h.pack(t, "helm4", writeFiles(t, webChart("1.1.0+b.1"))), h.pack(t, "helm3", writeFiles(t, webChart("2.0.0-rc.1")))
	dir := packageCharts(t, h, webChart("1.0.0"), webChart("1.1.0+b.1"), webChart("2.0.0-rc.1"), smallChart("cache", "0.1.0"))
	nginx := serveFiles(t, dir)
	clerk := serveChartMuseum(t, "carol", "c4rol", "--storage-timestamp-tolerance", "1s")
	for _, archive := range []string{old, latest, next} {
		clerk.put(t, archive)
	}
	trust := stringMap{"ca.crt": string(nginx.ca.PEM())}
	cert, key := nginx.ca.Client("alice")
	identity := stringMap{"ca.crt": string(nginx.ca.PEM()), "tls.crt": string(cert), "tls.key": string(key)}
	alice, carol := stringMap{"username": "alice", "password": "s3cret"}, stringMap{"username": "carol", "password": "c4rol"}
	deprecated := stringMap{"caFile": identity["ca.crt"], "certFile": identity["tls.crt"], "keyFile": identity["tls.key"]}
	for _, c := range []struct {
		name, url   string
		login, cert stringMap // nil: no secretRef, no certSecretRef
		failed      string    // part of FetchFailed; "" if the fetch succeeds
	}{
		{"nginx", nginx.plain + "/public", nil, nil, ""},
		{"nginx basic", nginx.plain + "/basic/", alice, nil, ""},
		{"nginx basic TLS", nginx.secure + "/basic", alice, trust, ""},
		{"nginx basic without", nginx.plain + "/basic", nil, nil, "401"},
		{"nginx basic wrong", nginx.plain + "/basic", stringMap{"username": "alice", "password": "canary"}, nil, "401"},
		{"nginx TLS of an unknown CA", nginx.secure + "/public", nil, nil, "certificate"},
		{"nginx mTLS", nginx.mutual + "/public", nil, identity, ""},
		{"nginx mTLS of secretRef", nginx.mutual + "/public", deprecated, nil, ""},
		{"nginx mTLS without", nginx.mutual + "/public", nil, trust, "400"},
		{"nginx mTLS basic", nginx.mutual + "/basic", alice, identity, ""},
		{"chartmuseum basic", clerk.url, carol, nil, ""},
		{"chartmuseum without", clerk.url, nil, nil, "401"},
		{"not there", nginx.plain + "/public/other", nil, nil, "404"},
	} {
		t.Run(c.name, func(t *testing.T) {
			spec := map[string]any{"url": c.url}
			docs := []any{chartOf("PkgRepository", "charts", "web", map[string]any{"version": "^1.0.0"})}
			for field, data := range map[string]stringMap{"secretRef": c.login, "certSecretRef": c.cert} {
				if data != nil {
					spec[field] = stringMap{"name": strings.ToLower(field)}
					docs = append(docs, secret(strings.ToLower(field), data))
				}
			}
			docs = append(docs, object("PkgRepository", "charts", spec))
			store := t.TempDir()
			got := fetchObjects(t, store, docs)
			if strings.Contains(got.stderr, "canary") {
				t.Errorf("a credential is shown: %s", got.stderr)
			}
			if c.failed != "" {
				failed := got.status["PkgRepository/charts"].condition("FetchFailed")
				if got.code != 1 || !strings.Contains(failed, c.failed) || len(storedFiles(t, store)) != 0 {
					t.Errorf("exit code %d, FetchFailed %q, stored %q", got.code, failed, storedFiles(t, store))
				}
				return
			}
			archive := got.artifact(t, store, "PkgChart/chart")
			if filepath.Base(archive) != "web-1.1.0+b.1.tgz" || read(t, archive) != read(t, pullChart(t, h, c.url, c.login, c.cert)) {
				t.Errorf("%s is not what helm pulls", archive)
			}
			if again := fetchObjects(t, store, docs, "--detailed-exitcode"); again.code != 0 {
				t.Errorf("the second run: exit code %d\n%s", again.code, again.stderr)
			}
		})
	}
}

// pullChart pulls the expected version of web with helm and returns the path.
func pullChart(t *testing.T, h helm, from string, login, cert stringMap) string {
	t.Helper()
	dir := t.TempDir()
	args := []string{"pull", "web", "--repo", from, "--version", "^1.0.0", "--destination", dir}
	if login["username"] != "" {
		args = append(args, "--username", login["username"], "--password", login["password"])
	}
	for flag, names := range map[string][]string{"--ca-file": {"ca.crt", "caFile"}, "--cert-file": {"tls.crt", "certFile"}, "--key-file": {"tls.key", "keyFile"}} {
		for _, text := range []string{cert[names[0]], login[names[1]]} {
			if text != "" {
				args = append(args, flag, write(t, filepath.Join(t.TempDir(), "pem"), text))
			}
		}
	}
	h.run(t, "helm3", args...)
	return filepath.Join(dir, "web-1.1.0+b.1.tgz")
}

// TestChartIndexRequests counts the requests to a repository. For an unchanged
// index there is one response without content, with and without compression.
func TestChartIndexRequests(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	dir := packageCharts(t, h, webChart("1.0.0"))
	u, err := url.Parse(serveFiles(t, dir).plain)
	must(t, err)
	f := newRecordingProxy(t, u.Host)
	docs := []any{object("PkgRepository", "charts", map[string]any{"url": "http://" + f.addr + "/public"}), chartOf("PkgRepository", "charts", "web", nil)}
	store := t.TempDir()
	first := fetchChart(t, store, docs)
	if seen := f.takeRequests(); len(seen) != 2 || count(seen, "200") != 2 {
		t.Errorf("the first run asked %q", seen)
	}
	fetchChart(t, store, docs)
	if seen := f.takeRequests(); len(seen) != 1 || seen[0] != "GET /public/index.yaml 304" {
		t.Errorf("the second run asked %q", seen)
	}
	// Only the timestamp of the index changes: no new artifact.
	stamp := regexp.MustCompile(`(?m)^generated: .*$`)
	index := stamp.ReplaceAllString(read(t, filepath.Join(dir, "index.yaml")), `generated: "2030-01-01T00:00:00Z"`)
	write(t, filepath.Join(dir, "index.yaml"), index)
	got := fetchObjects(t, store, docs, "--detailed-exitcode")
	if got.artifact(t, store, "PkgChart/chart") != first || got.code != 0 {
		t.Errorf("an index that was stamped again changed something: exit code %d", got.code)
	}
	testenv.Equal(t, len(f.takeRequests()), 1, "requests of the third run")
	// A new version is stored.
	more := packageCharts(t, h, webChart("1.0.1"))
	write(t, filepath.Join(dir, "web-1.0.1.tgz"), read(t, filepath.Join(more, "web-1.0.1.tgz")))
	h.run(t, "helm3", "repo", "index", dir)
	testenv.Equal(t, filepath.Base(fetchChart(t, store, docs)), "web-1.0.1.tgz", "stored")
	if seen := f.takeRequests(); len(seen) != 2 || !strings.HasSuffix(seen[1], "web-1.0.1.tgz 200") {
		t.Errorf("the fourth run asked %q", seen)
	}
}

// TestIndexSearch compares the results of index search and helm search.
func TestIndexSearch(t *testing.T) {
	t.Parallel()
	h := newHelm(t, nil)
	dir := packageCharts(t, h, webChart("1.0.0"), webChart("1.10.0"), webChart("1.2.0"), webChart("2.0.0-rc.1"), smallChart("cache", "0.1.0"))
	address := serveFiles(t, dir).plain
	h.run(t, "helm3", "repo", "add", "charts", address+"/basic", "--username", "alice", "--password", "s3cret")
	for _, more := range [][]string{nil, {"--devel"}, {"--version", "^1.0.0"}} {
		var want, got []struct{ Name, Version, Description string }
		must(t, json.Unmarshal([]byte(h.run(t, "helm3", append([]string{"search", "repo", "charts/web", "--versions", "-o", "json"}, more...)...)), &want))
		cmd := headgate(t.Context(), t, append([]string{"index", "search", address + "/basic", "web", "--secret-ref", "login", "-o", "json"}, more...)...)
		cmd.Env = append(cmd.Env, "HEADGATE_SECRET_LOGIN_USERNAME=alice", "HEADGATE_SECRET_LOGIN_PASSWORD=s3cret")
		out, err := cmd.Output()
		must(t, err)
		must(t, json.Unmarshal(out, &got))
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%q: %v, helm finds %v", more, got, want)
		}
		for i, w := range want {
			if "charts/"+got[i].Name != w.Name || got[i].Version != w.Version || got[i].Description != w.Description {
				t.Errorf("%q: %v, helm finds %v", more, got[i], w)
			}
		}
	}
}
