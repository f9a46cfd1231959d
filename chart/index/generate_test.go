package index_test

import (
	"fmt"
	"strings"
)

// A shape is how generators of indexes write.
type shape struct {
	name            string
	begin, end      string
	chart, endChart string // of each chart; %s is its name
	entry           string // %[1]s is the name, %[2]s the version
	comma           string // between entries, and between charts
	newline         string // instead of "\n"
	whole           bool   // it is read whole
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

// write writes an index with as many versions of each chart. Versions have the
// number of the chart as the first part.
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
