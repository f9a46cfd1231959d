package bundle_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// loaded is what the package manager makes of a chart, to be compared.
type loaded struct {
	Metadata  *chart.Metadata
	Lock      *chart.Lock
	Values    map[string]any
	Schema    string
	Templates files
	Files     files
	Charts    map[string]loaded
}

func seen(c *chart.Chart) loaded {
	l := loaded{Metadata: c.Metadata, Lock: c.Lock, Values: c.Values, Schema: string(c.Schema),
		Templates: files{}, Files: files{}, Charts: map[string]loaded{}}
	for _, f := range c.Templates {
		l.Templates[f.Name] = string(f.Data)
	}
	for _, f := range c.Files {
		l.Files[f.Name] = string(f.Data)
	}
	for _, d := range c.Dependencies() {
		l.Charts[d.Name()+" "+d.Metadata.Version] = seen(d)
	}
	return l
}

// same fails unless the package manager sees the same in both.
func same(t *testing.T, got, want *chart.Chart) {
	t.Helper()
	a, err := json.MarshalIndent(seen(got), "", " ")
	must(t, err)
	b, err := json.MarshalIndent(seen(want), "", " ")
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Errorf("the archive is\n%s\nwant\n%s", a, b)
	}
}

// fromDir lets the package manager load a directory with f.
func fromDir(t *testing.T, f files) (*chart.Chart, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range f {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must(t, os.WriteFile(name, []byte(text), 0o644))
	}
	return loader.LoadDir(dir)
}

func TestThePackageManagerSeesInTheArchiveWhatItSeesInTheDirectory(t *testing.T) {
	for name, f := range compatible(t) {
		t.Run(name, func(t *testing.T) {
			want, err := fromDir(t, f)
			must(t, err)
			out := pack(t, f.open(t), bundle.Edit{})
			got, err := loader.LoadArchive(bytes.NewReader(out))
			must(t, err)
			same(t, got, want)

			a, err := bundle.ReadArchive(bytes.NewReader(out), spools(t))
			must(t, err)
			defer a.Close()
			again := pack(t, a.Chart, bundle.Edit{})
			if !bytes.Equal(out, again) {
				t.Error("the archive of the archive differs")
			}
		})
	}
}

// compatible is a table of charts.
func compatible(t *testing.T) map[string]files {
	sub := files{"Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n", "templates/a.yaml": "a", "values.yaml": "x: 1"}
	other := files{"Chart.yaml": "apiVersion: v1\nname: other\nversion: 2.0.0\n", "charts/_x/README": "x"}
	return map[string]files{
		"plain":           plain,
		"minimal":         {"Chart.yaml": "apiVersion: v2\nname: minimal\nversion: 0.0.1\n"},
		"lenient version": {"Chart.yaml": "apiVersion: v2\nname: lenient\nversion: v1.2\n"},
		"library":         {"Chart.yaml": "apiVersion: v2\nname: lib\nversion: 1.0.0\ntype: library\n", "templates/_a.tpl": "x"},
		"v1 with requirements": {
			"Chart.yaml":        "name: old\nversion: 1.0.0\n",
			"requirements.yaml": "dependencies:\n- name: sub\n  version: 0.1.0\n  repository: https://charts.example.org\n  alias: first\n",
			"requirements.lock": "dependencies:\n- name: sub\n  version: 0.1.0\n  repository: https://charts.example.org\ndigest: sha256:00\ngenerated: \"2020-01-01T00:00:00Z\"\n",
		},
		"v2 with requirements": {
			"Chart.yaml":        "apiVersion: v2\nname: mixed\nversion: 1.0.0\n",
			"requirements.yaml": "dependencies:\n- name: sub\n  version: 0.1.0\n  repository: https://charts.example.org\n",
		},
		"v2 with a lock": plain.with(files{
			"Chart.yaml": "apiVersion: v2\nname: locked\nversion: 1.0.0\ndependencies:\n- name: sub\n  version: ^0.1.0\n  repository: \"\"\n",
			"Chart.lock": "dependencies:\n- name: sub\n  version: 0.1.0\n  repository: \"\"\ndigest: sha256:00\ngenerated: \"2020-01-01T00:00:00.123Z\"\n",
		}),
		"byte order marks": {
			"Chart.yaml":       "\xef\xbb\xbfapiVersion: v2\r\nname: bom\r\nversion: 1.0.0\r\n",
			"values.yaml":      "\xef\xbb\xbfa: 1\n",
			"templates/a.yaml": "\xef\xbb\xbfkind: Pod\n",
			".helmignore":      "\xef\xbb\xbf*.md\r\n",
			"a.md":             "x",
		},
		"umbrella": plain.with(sub.under("charts/sub")).with(files{
			"charts/other-2.0.0.tgz":      string(other.under("other").tgz(t)),
			"charts/other-2.0.0.tgz.prov": "signed",
			"charts/_skipped/x":           "x",
			"charts/.gitkeep":             "",
		}),
		"nested umbrella": plain.with(sub.with(other.under("charts/other")).under("charts/sub")),
		"ignore file": plain.with(files{
			".helmignore":      "*.md\n/files/\ntests/\n# nothing\n.git\n",
			"docs/a.md":        "x",
			"docs/a.txt":       "x",
			"templates/.b.swp": "x",
			".git/HEAD":        "x",
			"sub/files/keep":   "x",
		}),
		"odd names": plain.with(files{"files/a b": "1", "files/ä": "2", "files/" + strings.Repeat("x", 120): "3", "files/...": "4"}),
	}
}

func TestTheSameFilesMakeTheSameBytes(t *testing.T) {
	sub := files{"Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.1.0\n"}
	two := files{"Chart.yaml": "apiVersion: v2\nname: sub\nversion: 0.2.0\n"}
	old := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(old)
	var first []byte
	for i := range 6 {
		if i > 0 {
			runtime.GOMAXPROCS(1 + i)
		}
		further := []*bundle.Chart{sub.open(t), two.open(t), sub.open(t)}
		if i%2 == 1 {
			slices.Reverse(further)
		}
		out := pack(t, maps.Clone(plain).open(t), bundle.Edit{Version: "1.2.3+4", Values: []byte("z: 1\n"), Charts: further})
		if first == nil {
			first = out
		}
		if !bytes.Equal(out, first) {
			t.Fatal("the bytes differ")
		}
	}
}
