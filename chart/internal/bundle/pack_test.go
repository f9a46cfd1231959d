package bundle_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
)

// loadedChart is a chart as the package manager loads it, for comparison.
type loadedChart struct {
	Metadata  *chart.Metadata
	Lock      *chart.Lock
	Values    map[string]any
	Schema    string
	Templates files
	Files     files
	Charts    map[string]loadedChart
}

func asLoaded(c *chart.Chart) loadedChart {
	l := loadedChart{Metadata: c.Metadata, Lock: c.Lock, Values: c.Values, Schema: string(c.Schema),
		Templates: files{}, Files: files{}, Charts: map[string]loadedChart{}}
	for _, f := range c.Templates {
		l.Templates[f.Name] = string(f.Data)
	}
	for _, f := range c.Files {
		l.Files[f.Name] = string(f.Data)
	}
	for _, d := range c.Dependencies() {
		l.Charts[d.Name()+" "+d.Metadata.Version] = asLoaded(d)
	}
	return l
}

// requireSame fails unless both charts look the same to the package manager.
func requireSame(t *testing.T, got, want *chart.Chart) {
	t.Helper()
	a, err := json.MarshalIndent(asLoaded(got), "", " ")
	must(t, err)
	b, err := json.MarshalIndent(asLoaded(want), "", " ")
	must(t, err)
	if !bytes.Equal(a, b) {
		t.Errorf("the archive is\n%s\nwant\n%s", a, b)
	}
}

// fromDir writes f to a directory and loads it with the package manager.
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
			requireSame(t, got, want)

			a, err := bundle.ReadArchive(bytes.NewReader(out), spools(t))
			must(t, err)
			defer a.Close()
			again := pack(t, a, bundle.Edit{})
			if !bytes.Equal(out, again) {
				t.Error("the archive of the archive differs")
			}
		})
	}
}

// compatible returns a table of charts.
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
		"umbrella": plain.with(sub.inDir("charts/sub")).with(files{
			"charts/other-2.0.0.tgz":      string(other.inDir("other").tgz(t)),
			"charts/other-2.0.0.tgz.prov": "signed",
			"charts/_skipped/x":           "x",
			"charts/.gitkeep":             "",
		}),
		"nested umbrella": plain.with(sub.with(other.inDir("charts/other")).inDir("charts/sub")),
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

func TestThePackageManagerSeesTheEdit(t *testing.T) {
	parent := plain.with(files{
		"Chart.yaml":  "apiVersion: v2\nname: whole\nversion: v1.0.0+old\ndependencies:\n- {name: a, version: 1.x, repository: x}\n- {name: a, version: 2.x, repository: x, alias: b}\n- {name: c, version: 1.x, repository: x}\n",
		".helmignore": "charts/\n*.md\n",
	})
	a1, a2 := smallChart("a", "1.0.0").with(files{"templates/x.yaml": "x"}), smallChart("a", "2.0.0")
	c := read(t, smallChart("c", "1.0.0+x").inDir("any").tgz(t))
	edit := bundle.Edit{Version: "1.0.0+new", Values: []byte("x: 1\n"), Charts: []*bundle.Chart{a1.open(t), a2.open(t), a1.open(t), c}}
	out := pack(t, parent.open(t), edit)
	got, err := loader.LoadArchive(bytes.NewReader(out))
	must(t, err)

	f := parent.with(a1.inDir("charts/a-1.0.0")).with(a2.inDir("charts/a-2.0.0")).with(smallChart("c", "1.0.0+x").inDir("charts/c"))
	f["Chart.yaml"] = strings.Replace(f["Chart.yaml"], "v1.0.0+old", "1.0.0+new", 1)
	f["values.yaml"] = "x: 1\n"
	f[".helmignore"] = "*.md\n"
	want, err := fromDir(t, f)
	must(t, err)
	for _, file := range want.Files {
		if file.Name == ".helmignore" {
			file.Data = []byte(parent[".helmignore"])
		}
	}
	requireSame(t, got, want)
}

func TestPackKeepsPresentCharts(t *testing.T) {
	withCharts := plain.with(smallChart("a", "1.0.0").with(files{"there": ""}).inDir("charts/a")).with(files{"charts/b.tgz": string(smallChart("b", "1.0.0").inDir("b").tgz(t))})
	out := read(t, pack(t, withCharts.open(t), bundle.Edit{Charts: []*bundle.Chart{smallChart("a", "1.0.0").open(t), smallChart("b", "1.0.0").open(t)}}))
	testenv.Equal(t, readFiles(t, out.Files), withCharts)
}

func TestPackRefuses(t *testing.T) {
	a := smallChart("a", "1.0.0")
	lost := errors.New("disk lost")
	ended, end := context.WithCancelCause(t.Context())
	end(lost)
	for name, c := range map[string]struct {
		ctx  context.Context
		c    *bundle.Chart
		e    bundle.Edit
		w    io.Writer
		want error
		says string
	}{
		"values for a chart without any":       {c: a.open(t), e: bundle.Edit{Values: []byte("a: 1")}, says: "values.yaml"},
		"values that are no map":               {c: plain.open(t), e: bundle.Edit{Values: []byte("[1]")}, says: "values.yaml"},
		"values of the chart that are no map":  {c: plain.with(files{"values.yaml": "[1]"}).open(t), says: "values.yaml"},
		"values of the chart that are no YAML": {c: plain.with(files{"values.yaml": "a: ["}).open(t), says: "values.yaml"},
		"a directory that is another chart":    {c: plain.with(smallChart("x", "1.0.0").inDir("charts/a")).open(t), e: bundle.Edit{Charts: []*bundle.Chart{a.open(t)}}, says: "charts/a"},
		"an empty directory in its place":      {c: plain.with(files{"charts/a/x.prov": ""}).open(t), e: bundle.Edit{Charts: []*bundle.Chart{a.open(t)}}, says: "charts/a"},
		"two charts in one place":              {c: plain.open(t), e: bundle.Edit{Charts: []*bundle.Chart{a.open(t), smallChart("a", "2.0.0").open(t), smallChart("a-1.0.0", "1.0.0").open(t)}}, says: "charts/a-1.0.0 is not a-1.0.0 1.0.0: rename it"},
		"places that are taken, told in order": {c: plain.with(smallChart("x", "1.0.0").inDir("charts/a")).with(smallChart("y", "1.0.0").inDir("charts/b")).open(t), e: bundle.Edit{Charts: []*bundle.Chart{smallChart("b", "1.0.0").open(t), a.open(t)}}, says: "charts/a is not a 1.0.0"},
		"a chart that would be passed over":    {c: plain.open(t), e: bundle.Edit{Charts: []*bundle.Chart{smallChart("_a", "1.0.0").open(t)}}, says: "finds no chart"},
		"a chart with the name of an archive":  {c: plain.open(t), e: bundle.Edit{Charts: []*bundle.Chart{smallChart("a.tgz", "1.0.0").open(t)}}, says: "finds no chart"},
		"a file above the limit":               {c: plain.with(files{"files/x": big(6)}).open(t), says: "5242880 bytes"},
		"values above the limit":               {c: plain.open(t), e: bundle.Edit{Values: []byte("a: " + big(0) + strings.Repeat("x", 5<<20))}, says: "5242880 bytes"},
		"a file above a given limit":           {c: plain.open(t), e: bundle.Edit{Limits: artifact.Limits{FileBytes: 60}}, says: "60 bytes"},
		"more files than a given limit":        {c: plain.open(t), e: bundle.Edit{Limits: artifact.Limits{Entries: 5}}, says: "5 entries"},
		"more bytes than a given limit":        {c: plain.open(t), e: bundle.Edit{Limits: artifact.Limits{Bytes: 5000}}, says: "5000 bytes"},
		"what nobody would unpack":             {c: zeros().open(t), e: bundle.Edit{Limits: artifact.Limits{Ratio: 100}}, says: "each compressed byte"},
		"a name that no consumer takes":        {c: plain.with(files{`files/a\b`: ""}).open(t), want: fs.ErrInvalid},
		"a Chart.yaml that has become none":    {c: &bundle.Chart{Metadata: plain.open(t).Metadata, Files: plain.with(files{"Chart.yaml": "x"}).tree()}},
		"an end":                               {ctx: ended, c: plain.open(t), want: lost},
		"a writer that fails":                  {w: failingWriter{lost}, c: plain.open(t), want: lost},
		"a spool that fails":                   {c: plain.open(t), e: bundle.Edit{Limits: artifact.Limits{Temp: func() (*os.File, error) { return nil, lost }}}, want: lost},
		"a further chart that cannot be read":  {c: plain.open(t), e: bundle.Edit{Charts: []*bundle.Chart{{Metadata: a.open(t).Metadata, Files: failingFS{a.tree(), "Chart.yaml", lost}}}}, want: lost},
	} {
		t.Run(name, func(t *testing.T) {
			if c.ctx == nil {
				c.ctx = t.Context()
			}
			if c.w == nil {
				c.w = io.Discard
			}
			if c.want == nil {
				c.want = bundle.ErrChart
			}
			if c.e.Limits.Temp == nil {
				c.e.Limits.Temp = spools(t).Temp
			}
			_, err := c.c.Pack(c.ctx, c.w, c.e)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v with %q", err, c.want, c.says)
			}
		})
	}
}

// zeros returns a chart that compresses too well.
func zeros() files {
	f := maps.Clone(plain)
	for i := range 5 {
		f[fmt.Sprintf("files/%d", i)] = strings.Repeat("\x00", 5<<20)
	}
	return f
}

type failingWriter struct{ err error }

func (f failingWriter) Write([]byte) (int, error) { return 0, f.err }
