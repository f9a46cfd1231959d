package e2e

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/testenv"
)

// A helm is where the package manager keeps what it knows; it trusts one authority.
type helm struct {
	home string
	ca   string // file
}

// packagers are the releases of it that charts are given to.
var packagers = []string{"helm3", "helm4"}

func newHelm(t *testing.T, ca *testenv.CA) helm {
	t.Helper()
	h := helm{home: t.TempDir()}
	if ca != nil {
		h.ca = write(t, filepath.Join(h.home, "ca.crt"), string(ca.PEM()))
	}
	return h
}

// run runs helm to its end and returns its standard output.
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

// template renders a chart: a directory or an archive.
func (h helm) template(t *testing.T, name, chart string, more ...string) string {
	t.Helper()
	return h.run(t, name, append([]string{"template", "release", chart}, more...)...)
}

// pack packages a chart and returns the path of its archive.
func (h helm) pack(t *testing.T, name, chart string, more ...string) string {
	t.Helper()
	out := h.run(t, name, append([]string{"package", chart, "--destination", t.TempDir()}, more...)...)
	_, path, ok := strings.Cut(strings.TrimSpace(out), "saved it to: ")
	if !ok {
		t.Fatalf("%s package printed %q", name, out)
	}
	return path
}

// charts writes charts, by name, into a directory and returns it.
func charts(t *testing.T, all map[string]keys) string {
	t.Helper()
	files := keys{}
	for name, chart := range all {
		for path, text := range chart {
			files[name+"/"+path] = text
		}
	}
	return written(t, files)
}

// web is an application that shows all that reaches a template.
func web(version string) keys {
	return keys{
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

// small is a chart of one template.
func small(name, version string) keys {
	return keys{
		"Chart.yaml":               "apiVersion: v2\nname: " + name + "\nversion: " + version + "\n",
		"values.yaml":              "enabled: true\nsize: 1\nexports:\n  data: {from: " + name + "}\n",
		"templates/configmap.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {{ .Release.Name }}-{{ .Chart.Name }}\ndata:\n  version: {{ .Chart.Version | quote }}\n  values: {{ toJson .Values | quote }}\n",
	}
}

// common is a library.
var common = keys{
	"Chart.yaml":             "apiVersion: v2\nname: common\nversion: 0.4.0\ntype: library\n",
	"templates/_labels.yaml": "{{- define \"common.labels\" -}}\nfrom: {{ .Chart.Name }}\n{{- end }}\n",
}

// merged returns charts with other files.
func merged(chart, more keys) keys {
	all := maps.Clone(chart)
	maps.Copy(all, more)
	return all
}

// results are how a run of the command on several objects ended.
type results struct {
	code   int
	stderr string
	status map[string]status // by KIND/NAME
}

// artifact returns the path in the store of what an object has, and fails
// unless all are ready.
func (r results) artifact(t *testing.T, store, object string) string {
	t.Helper()
	a := r.status[object].Artifact
	if r.code != 0 || a == nil {
		t.Fatalf("exit code %d, %s: %+v\n%s", r.code, object, r.status[object].Conditions, r.stderr)
	}
	return filepath.Join(store, filepath.FromSlash(a.Path))
}

// fetchObjects runs headgate fetch on objects and Secrets.
func fetchObjects(t *testing.T, store string, docs []any, more ...string) results {
	t.Helper()
	r := results{status: map[string]status{}}
	var items []item
	r.code, r.stderr, items = fetchItems(t, store, writeDocuments(t, docs), more...)
	for _, i := range items {
		r.status[i.Kind+"/"+i.Metadata.Name] = i.Status
	}
	return r
}

// secret returns a Secret.
func secret(name string, data keys) any { return document("v1", "Secret", name, "stringData", data) }

// object returns an object with what each needs in its spec, and what more has.
func object(kind, name string, more map[string]any) any {
	spec := map[string]any{"interval": "1m"}
	if kind != "PkgChart" {
		spec["timeout"] = "20s"
	}
	if kind == "GitRepository" {
		spec["ref"] = keys{"branch": "main"}
	}
	maps.Copy(spec, more)
	return document("source.headgate.dev/v1", kind, name, "spec", spec)
}

// chartOf returns a PkgChart of a source.
func chartOf(kind, name, chart string, more map[string]any) any {
	spec := map[string]any{"chart": chart, "sourceRef": keys{"kind": kind, "name": name}}
	maps.Copy(spec, more)
	return object("PkgChart", "chart", spec)
}

// fetchedChart fetches and returns the path of the archive of PkgChart/chart.
func fetchedChart(t *testing.T, store string, docs []any, more ...string) string {
	t.Helper()
	return fetchObjects(t, store, docs, more...).artifact(t, store, "PkgChart/chart")
}

// refusedChart fetches a chart that must not be had: it ends with the code and
// says all of words, of what no chart is in the store.
func refusedChart(t *testing.T, docs []any, code int, words ...string) {
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

// storedFiles lists all files of a store but those that begin with a dot, or are below.
func storedFiles(t *testing.T, store string) (paths []string) {
	t.Helper()
	check(t, fs.WalkDir(os.DirFS(store), ".", func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != "." && strings.HasPrefix(d.Name(), ".") {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if err == nil && d.Type().IsRegular() {
			paths = append(paths, path)
		}
		return err
	}))
	slices.Sort(paths)
	return paths
}
