package index_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/testenv"
)

const head = "apiVersion: v1\nentries:\n"

func TestMalformed(t *testing.T) {
	for _, c := range []struct{ name, entry, problem string }{
		{"null", "  - null", "it is null"},
		{"null, spelled", "  - ~", "it is null"},
		{"text", "  - a", "it is no mapping"},
		{"list", "  - [a]", "it is no mapping"},
		{"without a name", "  - version: 1.0.0\n    urls: [a]", "name is missing"},
		{"of another name", "  - name: b\n    version: 1.0.0\n    urls: [a]", `its name is "b", not that of the list it is in`},
		{"without a version", "  - name: a\n    urls: [a]", "version is missing"},
		{"with a null version", "  - name: a\n    version: ~\n    urls: [a]", "version is missing"},
		{"with no version at all", "  - name: a\n    version: latest\n    urls: [a]", `version "latest": is no version`},
		{"with a path for a version", "  - name: a\n    version: ../../1.0.0\n    urls: [a]", `version "../../1.0.0": is no version`},
		{"with a control character in the version", "  - name: a\n    version: \"1.0.0\\e[31m\"\n    urls: [a]", `version "1.0.0\x1b[31m": is no version`},
		{"without urls", "  - name: a\n    version: 1.0.0", "urls is empty"},
		{"with null urls", "  - name: a\n    version: 1.0.0\n    urls: [~, '']", "urls is empty"},
		{"with a text for urls", "  - name: a\n    version: 1.0.0\n    urls: a", `field "urls" must be a list`},
		{"with a mapping for a url", "  - name: a\n    version: 1.0.0\n    urls: [{}]", `field "urls" must be a text`},
		{"with a list for a version", "  - name: a\n    version: [1.0.0]\n    urls: [a]", `field "version" must be a text`},
		{"with a short digest", "  - name: a\n    version: 1.0.0\n    urls: [a]\n    digest: abc", `digest "abc" is no sha256`},
		{"with another digest", "  - name: a\n    version: 1.0.0\n    urls: [a]\n    digest: md5:" + sha, "is no sha256"},
		{"of an unknown type", "  - name: a\n    version: 1.0.0\n    urls: [a]\n    type: plugin", `type "plugin" is neither application nor library`},
	} {
		t.Run(c.name, func(t *testing.T) {
			text := head + "  a:\n  - {name: a, version: 1.2.3, urls: [a]}\n" + c.entry + "\n  - {name: a, version: 1.2.4, urls: [a]}\n"
			s, err := index.Check(strings.NewReader(text))
			if err != nil || s.Charts != 1 || s.Versions != 2 || s.SkippedTotal != 1 || s.Skipped[0].Line != 5 || s.Skipped[0].Chart != "a" || !strings.Contains(s.Skipped[0].Problem, c.problem) || len(s.Skipped[0].Problem) > 300 {
				t.Errorf("%.1000s, %v; want %s", fmt.Sprintf("%+v", s), err, c.problem)
			}
			list, err := collect(index.Entries(strings.NewReader(text), "a"))
			if err != nil || len(list) != 2 || list[1].Version != "1.2.4" {
				t.Errorf("entries: %+v, %v", list, err)
			}
		})
	}
}

func TestMalformedNames(t *testing.T) {
	for _, name := range []string{"..", "../a", "a/b", `a\b`, "a..b", "a\x1b[31m", ".", ""} {
		text := fmt.Sprintf("apiVersion: v1\nentries:\n  %q:\n  - {name: %[1]q, version: 1.0.0, urls: [a]}\n", name)
		if s, err := index.Check(strings.NewReader(text)); err != nil || s.Versions != 0 || s.SkippedTotal != 1 || strings.Contains(s.Skipped[0].Problem, "\x1b") {
			t.Errorf("%q: %+v, %v", name, s, err)
		}
		if list, err := collect(index.Entries(strings.NewReader(text), name)); err != nil || len(list) != 0 {
			t.Errorf("%q: %+v, %v", name, list, err)
		}
	}
}

func TestUsable(t *testing.T) {
	text := head + `  a:
  - name: a
    version: v1.2
    appVersion: 2
    description: "two\nlines"
    type: library
    deprecated: true
    created: 2024-01-02T03:04:05Z
    digest: sha256:` + sha + `
    urls: ["", a.tgz, oci://x/y]
    dependencies: [{name: d}, {name: d}]
    anything: {is: allowed}
  - {name: a, version: 1.0.0-rc.1, urls: [a], created: yesterday}
  b: ~
  c: []
`
	s, err := index.Check(strings.NewReader(text))
	if err != nil || s.Charts != 3 || s.Versions != 2 || s.SkippedTotal != 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	list, err := collect(index.Entries(strings.NewReader(text), "a"))
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	const want = `{Name:a Version:v1.2 AppVersion:2 Created:2024-01-02 03:04:05 +0000 UTC Description:two
lines Type:library Deprecated:true Digest:sha256:` + sha + ` URLs:[a.tgz oci://x/y] Line:4}`
	testenv.Equal(t, fmt.Sprintf("%+v", list[0]), want)
	if !list[1].Created.IsZero() || list[1].Line != 15 {
		t.Errorf("%+v", list[1])
	}
}

func TestMerged(t *testing.T) {
	text := "apiVersion: v1\nx: &x {urls: [x], version: 9.0.0, type: library}\nentries:\n  a:\n" +
		"  - name: a\n    <<: *x\n    version: 1.0.0\n  - {<<: [{version: 2.0.0}, *x], name: a}\n"
	list, err := collect(index.Entries(strings.NewReader(text), "a"))
	if err != nil || len(list) != 2 || list[0].Version != "1.0.0" || list[0].Type != "library" || list[1].Version != "2.0.0" || list[1].URLs[0] != "x" {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestNoIndex(t *testing.T) {
	for _, c := range []struct{ name, text, problem string }{
		{"empty", "", "it is empty"},
		{"a comment", "# nothing\n", "it is empty"},
		{"a page", "<!DOCTYPE html>\n<html>\x1b</html>", `it begins with "<!DOCTYPE html>\n<html>\x1b</html>"`},
		{"an answer", `{"error": "no such repository"}`, `field apiVersion is missing; it begins with "{\"error\": \"no such repository\"}"`},
		{"a list", "- a\n- b\n", "it is no mapping"},
		{"without apiVersion", "entries: {}\n", "field apiVersion is missing"},
		{"with a null apiVersion", "apiVersion:\nentries: {}\n", "line 1: field apiVersion must be a text"},
		{"with a list of entries", "apiVersion: v1\nentries:\n- a\n", "line 3: field entries must be a mapping"},
		{"with merged charts", "apiVersion: v1\nx: &x {}\nentries:\n  <<: *x\n", "line 4: mappings can be merged (<<) within an entry only"},
		{"with entries within themselves", "apiVersion: v1\nentries: &x\n  a: *x\n", `line 3: chart "a": an alias instead of its versions`},
		{"cut in JSON", `{"apiVersion":"v1","entries":{"a":[{"name":"a"`, "not a chart repository index"},
		{"with bytes that are no text", "apiVersion: v1\nentries:\n  a:\n  - name: \xff\n", "UTF-8"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := index.Check(strings.NewReader(c.text))
			_, err2 := collect(index.Entries(strings.NewReader(c.text), "a"))
			for _, err := range []error{err, err2} {
				if err == nil || !strings.HasPrefix(err.Error(), "not a chart repository index: ") || !strings.Contains(err.Error(), c.problem) || strings.Contains(err.Error(), "\x1b") {
					t.Errorf("%v; want %s", err, c.problem)
				}
			}
		})
	}
	for _, text := range []string{"apiVersion: v1\n", "apiVersion: 1\nentries:\n", "apiVersion: v1\nentries: ~", `{"apiVersion":"v1","entries":null}`} {
		if s, err := index.Check(strings.NewReader(text)); err != nil || s.Versions != 0 {
			t.Errorf("%q: %+v, %v", text, s, err)
		}
	}
}

func TestReadError(t *testing.T) {
	text := shapes[0].write([]string{"a", "b", "c"}, 50)
	for _, at := range []int{0, 10, 100, 20000} {
		r := failingReader{strings.NewReader(text[:at])}
		if _, err := index.Check(r); err != errBroken {
			t.Errorf("check, %d: %v", at, err)
		}
		r = failingReader{strings.NewReader(text[:at])}
		if _, err := collect(index.Entries(r, "b")); err != errBroken {
			t.Errorf("entries, %d: %v", at, err)
		}
	}
}

func TestErrorsTellTheLineOfTheIndex(t *testing.T) {
	text := shapes[0].write([]string{"a", "b"}, 100)
	text = strings.TrimSuffix(text, shapes[0].end) + "  c:\n  - name: c\n    x: [\n  - y\n"
	want, err := index.Check(strings.NewReader(text))
	if err == nil {
		t.Fatal(want)
	}
	if _, got := collect(index.Entries(strings.NewReader(text), "c")); got == nil || got.Error() != err.Error() {
		t.Errorf("%v, want %v", got, err)
	}
}

// A shape is the way in which a generator writes indexes.
type shape struct {
	name            string
	begin, end      string
	chart, endChart string // of each chart; %s is its name
	entry           string // %[1]s is the name, %[2]s the version
	comma           string // between entries, and between charts
	newline         string // in place of "\n"
	whole           bool   // the index is read whole
}

var shapes = []shape{
	{
		name:  "helm",
		begin: "apiVersion: v1\nentries:\n", end: "generated: \"2024-01-01T00:00:00Z\"\n",
		chart: "  %s:\n",
		entry: "  - annotations:\n      artifacthub.io/changes: |\n        - kind: fixed\n          description: \"It's\n\n        podinfo:\n      category: Database\n    apiVersion: v2\n    created: \"2024-01-02T03:04:05.678Z\"\n" +
			"    description: A chart, that is described in many words, more than there are on\n      one line - \"really\n    digest: " + sha + "\n    keywords:\n    - a\n    - b\n    name: %[1]s\n    urls:\n    - https://example.org/%[1]s-%[2]s.tgz\n    version: %[2]s\n",
	}, {
		name:  "deeper lists",
		begin: "---\n# made by hand\napiVersion: v1\ngenerated: 2024-01-01\nentries:\n",
		chart: "    \"%s\":\n",
		entry: "      - name: '%[1]s'\n        version: \"%[2]s\"\n        description: \"folded \\\n          podinfo: \\\"\n\n          and on\"\n        urls:\n          - \"https://example.org/%[1]s-%[2]s.tgz\"\n          - 'it''s'\n        maintainers:\n          - name: a\n            email: b@c\n        keywords: []\n",
	}, {
		name:  "carriage returns",
		begin: "apiVersion: v1\nentries:\n", end: "generated: x\n",
		chart:   "  %s: # a chart\n",
		entry:   "  -\n    name: %[1]s\n\n    # a comment\n    version: %[2]s\n    description: >-\n      folded\n  \n      text\n    home: 'on\n      two lines: ''\n      three'\n    urls:\n    - a.tgz\n",
		newline: "\r\n",
	}, {
		name:  "quotes that end left of where they begin",
		begin: "apiVersion: v1\nentries:\n",
		chart: "  %s:\n",
		entry: "  - name: %[1]s\n    version: %[2]s\n    description: \"it goes on\n  podinfo:\n  - name: podinfo\n    version: 6.6.6\n    urls: [x]\n  \"\n    urls:\n    - a.tgz\n",
	}, {
		name:  "flow style",
		begin: "apiVersion: v1\nentries:\n",
		chart: "  %s:\n",
		entry: "  - {name: %[1]s, version: %[2]s, urls: [a.tgz,\n    b.tgz]}\n",
		whole: true,
	}, {
		name:  "json",
		begin: "{\n  \"apiVersion\": \"v1\",\n  \"entries\": {\n", end: "\n  },\n  \"generated\": \"x\"\n}\n",
		chart: "    \"%s\": [\n", endChart: "\n    ]",
		entry: "      {\n        \"name\": \"%[1]s\",\n        \"version\": \"%[2]s\",\n        \"description\": \"\\\"podinfo\\\": [{ \\\\\",\n        \"urls\": [\n          \"https://example.org/%[1]s-%[2]s.tgz\"\n        ]\n      }",
		comma: ",\n",
	}, {
		name:  "json in one line",
		begin: `{"serverInfo":{"a":[{"entries":1}]},"entries":{`, end: `},"apiVersion":"v1"}`,
		chart: `"%s":[`, endChart: `]`,
		entry: `{"name":"%[1]s","version":"%[2]s","annotations":{"podinfo":"\\"},"description":"]}\"","deprecated":false,"urls":["a.tgz"],"n":[1,-2.5e+3,null,[]]}`,
		comma: ",",
	},
}

const sha = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// write writes an index with the given number of versions of each chart. The first part of
// a version is the number of the chart.
func (s *shape) write(charts []string, versions int) string {
	var b strings.Builder
	b.WriteString(s.begin)
	for i, name := range charts {
		if i > 0 {
			b.WriteString(s.comma)
		}
		fmt.Fprintf(&b, s.chart, name)
		for n := range versions {
			if n > 0 {
				b.WriteString(s.comma)
			}
			fmt.Fprintf(&b, s.entry, name, fmt.Sprintf("%d.%d.0", i, versions-n))
		}
		b.WriteString(s.endChart)
	}
	b.WriteString(s.end)
	if s.newline != "" {
		return strings.ReplaceAll(b.String(), "\n", s.newline)
	}
	return b.String()
}

// seeds are indexes that are written in unusual ways.
var seeds = []string{
	"apiVersion: v1\nentries:\n  podinfo:\n  - {name: podinfo, version: 1.0.0, urls: [a]}\n  z: [1]\n  y:\n  - name: y\n",
	"apiVersion: v1\nentries: {podinfo: [{name: podinfo, version: 1.0.0, urls: [a]}], b: [], z: [1]}\n",
	"{apiVersion: v1, entries: {b: [{name: it's, x: \"]\"}], podinfo: [{name: podinfo, version: 1.0.0, urls: [a]}], z: [1]}}",
	"{\"apiVersion\":\"v1\",\"entries\":{\"b\":[{a:\"b]}],\"podinfo\":[1],\"z\":[2]}}",
	"{\"apiVersion\":\"v1\",\"entries\":{\"pod\\u0069nfo\":[{\"name\":\"podinfo\"}],\"b\":[1,2],\"podinfo\":[3],\"z\":[4]}}",
	"apiVersion: v1\nentries:\n  a:\n  - &x\n    urls: [a]\n    version: 1.0.0\n  podinfo:\n  - <<: *x\n    name: podinfo\n  - *x\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - name: a\n  - name: b\n    x: &y 1\n  podinfo:\n  - name: podinfo\n    version: *y\n    urls: [a]\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - description: |\n     x\n    \"y\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - description: text\n     \"more\n     - |\n     [\n    x: 1\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - description:\n          text\n      \"more\n    x: 1\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - description:\n      |\n      \"more\n    x: 1\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - - - x\n    - \"y\n  podinfo:\n  - name: podinfo\n  \"\n  podinfo:\n  - name: q\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - ? x\n    : y\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - !!str x\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - x\t: y\n    b:\tc\n  \t\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a: [{name: x,\n  podinfo: 1}]\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - urls: [x,\n  podinfo, y]\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  ? podinfo\n  : - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - name: x\n...\n---\nentries:\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"%YAML 1.1\n---\napiVersion: v1\nentries:\n  a:\n  - name: x\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"\ufeffapiVersion: v1\nentries:\n  a:\n  - name: x\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nx: |\n entries:\n  podinfo:\nentries:\n  a:\n    - name: x\n    -\n      name: y\n  podinfo:\n    - name: podinfo\n  a: ~\n  b: x\nentries:\n  podinfo: [1]\n  z:\n  - name: z\n",
	"apiVersion: v1\rentries:\r  a:\r  - name: x\r  podinfo:\r  - name: podinfo\r  z:\r  - name: z\r",
	"apiVersion: v1\nentries:\n  a:\n  - name: x\r    b: \"\n  podinfo:\n  - name: podinfo\n  \"\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n  - name: x\u2028    b: \"\n  podinfo:\n  - name: podinfo\n  \"\n  podinfo:\n  - name: podinfo\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  \"podinfo\" :\n  - name: podinfo\n  'podinfo':\n  - name: b\n  podinfo :\n  - name: c\n  z:\n  - name: z\n",
	"apiVersion: v1\nentries:\n  a:\n   - name: x\n   # c\n # c\n# c\n   - name: y # c \"\n  podinfo:\n   - name: podinfo\n  z:\n   - name: z\n",
	"apiVersion: v1\nentries:\n- a\n",
	"entries:\n  podinfo:\n  - name: podinfo\napiVersion: v1\n",
	"apiVersion: v1\nentries:\n  a:\n  - x: \"a \\\"\n  podinfo:\n  - y\n  \"\n  podinfo:\n  - z\n  z:\n  - name: z\n",
	`{"apiVersion":"v1","entries":{"b":["x\"]"],"podinfo":[3],"z":[4]}}`,
	`{"apiVersion":"v1","entries":{"b":[a:"b],podinfo: [d"],"z":[3]}}`,
	"apiVersion: v1\nentries:\n  a:\n  - name: x\n  podinfo\t:\n  - name: podinfo\n  z:\n  - name: z\n",
	"\ufeff{\"x\": 1, \"y\":\"\nentries:\n  b:\n  - x\n    \", \"apiVersion\": \"v1\", \"entries\": {\"podinfo\": [1], \"z\": [2]}, \"z\": \"\n  - y\n\"}\n",
	"{\"apiVersion\":\"v1\",\"entries\":{\"b\":[1],\"\n podinfo\":[2],\"c\":[3]}}",
	"{\"apiVersion\":\"v1\",\r\"entries\":{\"b\":[1,\r\n2,\r3],\"podinfo\":[\r{\"name\":\"podinfo\",\"version\":\"1.0.0\",\"urls\":[\"a\"]}],\"z\":[4]}}",
	"{\"apiVersion\":\"v1\",\"entries\":{\"podinfo\":[{},1],\"b\":[\n1,\n2],\"podinfo\":[3],\"z\":[4]}}",
	"{\"apiVersion\":\"v1\",\"entries\":{\"podinfo\":[1,\r2],\"b\":[\n1,\n2],\"podinfo\":[3],\"z\":[4]}}",
	"{\"apiVersion\":\"v1\",\"entries\":{\"podinfo\":[1,\u20282],\"b\":[\n1,\n2],\"podinfo\":[3],\"z\":[4]}}",
	"<html>\n<body>", "", "{}", "[]", "null", "a", "{", "\"", "entries:\n", "{\"entries\":", "--- {a: b}",
}

func FuzzEntries(f *testing.F) {
	for _, s := range shapes {
		f.Add(s.write([]string{"a", "podinfo"}, 2))
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<16 {
			return
		}
		_, _ = index.Check(strings.NewReader(text))
		_, _ = collect(index.Entries(strings.NewReader(text), "podinfo"))
		requireSame(t, text, "podinfo")
	})
}

var must = testenv.Must
