package index_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
)

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
		_, _ = all(index.Entries(strings.NewReader(text), "podinfo"))
		same(t, text, "podinfo")
	})
}
