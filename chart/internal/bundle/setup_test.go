package bundle_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"sigs.k8s.io/yaml"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/chart/internal/bundle"
	"github.com/headgate-io/headgate/internal/testenv"
)

// TestMain silences the standard logger, to which the package manager's packages write.
func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	testenv.Main(m)
}

// files are the files of a chart or of a source, by path.
type files map[string]string

// with returns f and the files of other.
func (f files) with(other files) files {
	all := maps.Clone(f)
	maps.Copy(all, other)
	return all
}

// inDir returns f below dir.
func (f files) inDir(dir string) files {
	moved := files{}
	for name, text := range f {
		moved[dir+"/"+name] = text
	}
	return moved
}

func (f files) tree() fstest.MapFS {
	tree := fstest.MapFS{}
	for name, text := range f {
		tree[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return tree
}

// entry is one entry of an archive.
type entry struct {
	name, text string
	kind       byte // default: a file
}

// entries returns f in order.
func (f files) entries() []entry {
	var list []entry
	for _, name := range slices.Sorted(maps.Keys(f)) {
		list = append(list, entry{name: name, text: f[name]})
	}
	return list
}

func (f files) tgz(t testing.TB) []byte { return tgz(t, f.entries()...) }

// tgz writes an archive without normalizing it, as other tools may.
func tgz(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	must(t, err)
	w := tar.NewWriter(zip)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: 0o644, Size: int64(len(e.text))}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname, h.Size = e.text, 0
		}
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := io.WriteString(w, e.text)
			must(t, err)
		}
	}
	must(t, w.Close())
	must(t, zip.Close())
	return out.Bytes()
}

// gzipped returns data compressed.
func gzipped(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	_, err := zip.Write(data)
	must(t, err)
	must(t, zip.Close())
	return out.Bytes()
}

var must = testenv.Must

// spools returns limits whose spools must be closed at the end of the test.
func spools(t testing.TB) artifact.Limits {
	return artifact.Limits{Temp: testenv.NewTempFiles(t).Create}
}

// open opens the chart at the root of f.
func (f files) open(t testing.TB) *bundle.Chart {
	t.Helper()
	c, err := bundle.Open(f.tree(), ".", artifact.Limits{})
	must(t, err)
	return c
}

// pack packs c.
func pack(t testing.TB, c *bundle.Chart, e bundle.Edit) []byte {
	t.Helper()
	if e.Limits.Temp == nil {
		e.Limits = spools(t)
	}
	var out bytes.Buffer
	_, err := c.Pack(t.Context(), &out, e)
	must(t, err)
	return out.Bytes()
}

// readFiles reads every file of tree.
func readFiles(t testing.TB, tree fs.FS) files {
	t.Helper()
	f := files{}
	must(t, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, name)
		f[name] = string(text)
		return err
	}))
	return f
}

// plain is a chart with one file of each kind.
var plain = files{
	"Chart.yaml":               "apiVersion: v2\nname: plain # the name\nversion: 1.2.3\nappVersion: \"1.10\"\n",
	"values.yaml":              "a: 1\nb: {c: 2}\n",
	"values.schema.json":       "{}",
	"README.md":                "# plain\n",
	"templates/config.yaml":    "kind: ConfigMap\n",
	"templates/_helpers.tpl":   "{{/* none */}}",
	"templates/tests/one.yaml": "kind: Pod\n",
	"crds/crd.yaml":            "kind: CustomResourceDefinition\n",
	"files/data.bin":           "\x00\x01\x02",
}

// read reads an archive.
func read(t testing.TB, data []byte) *bundle.Chart {
	t.Helper()
	a, err := bundle.ReadArchive(bytes.NewReader(data), spools(t))
	must(t, err)
	t.Cleanup(func() { must(t, a.Close()) })
	return a
}

// helmValues returns, as JSON, how the package manager combines texts of values that are given
// one by one.
func helmValues(texts ...string) (string, error) {
	all := map[string]any{}
	for _, text := range texts {
		m := map[string]any{}
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(text, "\xef\xbb\xbf")), &m); err != nil {
			return "", err
		}
		all = mergeMaps(all, m)
	}
	out, err := json.Marshal(all)
	return string(out), err
}

// mergeMaps returns lower merged with upper, whose values win.
func mergeMaps(lower, upper map[string]any) map[string]any {
	out := map[string]any{}
	for k, v := range lower {
		out[k] = v
	}
	for k, v := range upper {
		a, isA := out[k].(map[string]any)
		if b, isB := v.(map[string]any); isA && isB {
			v = mergeMaps(a, b)
		}
		out[k] = v
	}
	return out
}

func merge(t *testing.T, texts ...string) string {
	t.Helper()
	var list [][]byte
	for _, text := range texts {
		list = append(list, []byte(text))
	}
	out, err := bundle.Merge(list...)
	must(t, err)
	return string(out)
}

func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		texts []string
		want  string
	}{
		"none":                       {nil, "{}\n"},
		"empty texts":                {[]string{"", "# nothing\n", "---\n", "null", "{}"}, "{}\n"},
		"one":                        {[]string{"b: 1\na: 2\n"}, "a: 2\nb: 1\n"},
		"maps deeply":                {[]string{"a: {b: {c: 1, d: 2}}", "a: {b: {d: 3, e: 4}}"}, "a:\n  b:\n    c: 1\n    d: 3\n    e: 4\n"},
		"lists are replaced":         {[]string{"a: [1, 2, 3]", "a: [4]"}, "a:\n- 4\n"},
		"a scalar by a map":          {[]string{"a: 1", "a: {b: 2}"}, "a:\n  b: 2\n"},
		"a map by a scalar":          {[]string{"a: {b: 2}", "a: x"}, "a: x\n"},
		"a null stays":               {[]string{"a: {b: 2}", "a: null"}, "a: null\n"},
		"a null is replaced":         {[]string{"a: null", "a: {b: 2}"}, "a:\n  b: 2\n"},
		"three in order":             {[]string{"a: 1", "a: 2\nb: 1", "b: 3"}, "a: 2\nb: 3\n"},
		"keys that are no text":      {[]string{"1: a\ntrue: b\n1.5: c", "1: d"}, "\"1\": d\n\"1.5\": c\n\"true\": b\n"},
		"anchors are written out":    {[]string{"a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}"}, "a:\n  b: 1\nc:\n  b: 1\nd:\n  b: 1\n  e: 2\n"},
		"an anchor is not shared":    {[]string{"a: &x {b: 1}\nc: *x", "c: {b: 2}"}, "a:\n  b: 1\nc:\n  b: 2\n"},
		"numbers":                    {[]string{"a: 1.10\nb: 1e3\nc: 0777\nd: 12345678901234567890\ne: 9007199254740993\nf: 0x10\ng: -0.5\nh: 1_000"}, ""},
		"numbers in quotes":          {[]string{`{a: "1.10", b: "1e3", c: "0777", d: "2001-01-01", e: "yes", f: "null", g: "~", h: "0x1", i: ".inf", j: "", k: "1_0", l: "12:30:45"}`}, ""},
		"dates and truth":            {[]string{"a: 2001-01-01\nb: 2001-01-01T00:00:00Z\nc: yes\nd: off\ne: y\nf: ~\ng: 12:30:45"}, ""},
		"text of any kind":           {[]string{"a: \"\\x7f\\u0085\\u2028\\ufeff\\t\\0 \"\nb: |2\n    x\n  y\nc: >-\n  folded\n  text\nd: \"\\n lead\"\ne: ' '\nf: \"a\\r\\nb\"\ng: \"😀\"\nh: '- x'\ni: 'a: b'\nj: '#x'\nk: |+\n  x\n\n"}, ""},
		"templates in text":          {[]string{"a: '{{ .Values.x }}'\nb: \"<script>&\"\nc: !!str 1\nd: !!binary aGk=\n"}, ""},
		"a byte order mark":          {[]string{"\xef\xbb\xbfa: 1\r\nb:\r\n  c: 2\r\n"}, "a: 1\nb:\n  c: 2\n"},
		"the first document counts":  {[]string{"a: 1\n---\na: 2\n"}, "a: 1\n"},
		"a key twice, the last wins": {[]string{"a: 1\na: 2\n"}, "a: 2\n"},
		"a key longer than a line":   {[]string{strings.Repeat("k", 500) + ": " + strings.Repeat("v ", 500)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := merge(t, c.texts...)
			if c.want != "" && got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
			a, err := helmValues(got)
			must(t, err)
			b, err := helmValues(c.texts...)
			must(t, err)
			testenv.Equal(t, a, b, "its meaning")
			testenv.Equal(t, merge(t, got), got, "merged again")
		})
	}
}

func TestMergeRefuses(t *testing.T) {
	deep := func(n int) string { return "a: " + strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, c := range map[string]struct{ text, says string }{
		"a list":                                 {"[a]", "no map"},
		"a text":                                 {"secret", "no map"},
		"a number":                               {"1", "no map"},
		"no YAML":                                {"a: [", "line 1"},
		"infinity":                               {"a: .inf", "infinite"},
		"no number":                              {"a: .nan", "infinite"},
		"a key that is null":                     {"~: 1", "key"},
		"a key that is a map":                    {"{a: 1}: 1", "key"},
		"a key in two forms":                     {"1: a\n\"1\": b", "two keys"},
		"depth":                                  {deep(101), "100 levels"},
		"depth that a decoder would not survive": {deep(500_000), ""},
		"depth by aliases":                       {"a: &a [[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]\nb: &b [[[[[[[[[[[[[[[[[[[[*a]]]]]]]]]]]]]]]]]]]]\nc: &c [[[[[[[[[[[[[[[[[[[[*b]]]]]]]]]]]]]]]]]]]]\nd: &d [[[[[[[[[[[[[[[[[[[[*c]]]]]]]]]]]]]]]]]]]]\ne: [[[[[[[[[[[[[[[[[[[[*d]]]]]]]]]]]]]]]]]]]]", "100 levels"},
		"size":                                   {"a: " + strings.Repeat("x", 1<<20), "1048576 bytes"},
		"a bomb of aliases":                      {bomb(), "aliases"},
		"a bomb of one long text":                {"a: &a " + strings.Repeat("x", 900_000) + "\nb: [" + strings.Repeat("*a,", 40_000) + "]", "aliases"},
		"directives":                             {directives(), "%TAG"},
		"an alias of itself":                     {"a: &a [*a]", "alias"},
		"an unknown alias":                       {"a: *b", "anchor"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := bundle.Merge([]byte("a: 1"), []byte(c.text))
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "text 1: ") {
				t.Fatalf("error %v, want one with %q and text 1", err, c.says)
			}
			if len(err.Error()) > 300 || strings.Contains(err.Error(), "secret") {
				t.Errorf("the error repeats the text: %v", err)
			}
		})
	}
}

// bomb returns a text whose aliases double with each line.
func bomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 {x: 1}\n")
	for i := range 40 {
		fmt.Fprintf(&b, "a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	return b.String()
}

// directives returns a text that takes a decoder seconds.
func directives() string {
	var b strings.Builder
	for i := range 40_000 {
		fmt.Fprintf(&b, "%%TAG !a%d! b\n", i)
	}
	return b.String() + "--- {a: 1}"
}
