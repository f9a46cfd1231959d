package index_test

import (
	"encoding/binary"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"go.yaml.in/yaml/v3"

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
		want, err := index.Versions(strings.NewReader(text), "podinfo", false)
		if err != nil {
			_, _ = index.Versions(strings.NewReader(text), "podinfo", true)
			return
		}
		for _, r := range []func() ([]index.Version, error){
			func() ([]index.Version, error) { return index.Versions(strings.NewReader(text), "podinfo", true) },
			func() ([]index.Version, error) {
				return index.Versions(iotest.OneByteReader(strings.NewReader(text)), "podinfo", true)
			},
		} {
			if got, err := r(); err != nil || !slices.Equal(got, want) {
				left, _ := index.Filter(strings.NewReader(text), "podinfo")
				t.Fatalf("%v, %v\nwant %v\nleft %q", got, err, want, left)
			}
		}
		same(t, text, "podinfo")
		if peer, ok := peerForms(text, "podinfo"); ok && !slices.Equal(peer, forms(want)) {
			t.Fatalf("%q\nwant %q", forms(want), peer)
		}
	})
}

// peerForms returns the forms of what index.Versions does, read by another
// parser, and false when that cannot read it.
func peerForms(text, name string) (forms []string, ok bool) {
	var doc yaml.Node
	if yaml.Unmarshal([]byte(text), &doc) != nil || doc.Kind != yaml.DocumentNode {
		return nil, false
	}
	each := func(n *yaml.Node, name string, do func(*yaml.Node)) {
		if n = target(n); n.Kind == yaml.MappingNode {
			for i := 0; i < len(n.Content); i += 2 {
				if target(n.Content[i]).Value == name {
					do(target(n.Content[i+1]))
				}
			}
		}
	}
	ok = true
	each(doc.Content[0], "entries", func(charts *yaml.Node) {
		each(charts, name, func(versions *yaml.Node) {
			if versions.Kind == yaml.SequenceNode {
				for _, v := range versions.Content {
					form, good := peerForm(v, 0)
					forms, ok = append(forms, form), ok && good
				}
			}
		})
	})
	return forms, ok
}

func target(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// peerForm returns the canonical form of a node, false when it is not for us.
func peerForm(n *yaml.Node, depth int) (string, bool) {
	n = target(n)
	if depth > 50 {
		return "", false
	}
	switch n.Kind {
	case yaml.ScalarNode:
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) == 0 && slices.Contains([]string{"", "~", "null", "Null", "NULL"}, n.Value) {
			return "n", true
		}
		return peerText(n.Value), true
	case yaml.SequenceNode:
		form := "["
		for _, e := range n.Content {
			f, ok := peerForm(e, depth+1)
			if !ok {
				return "", false
			}
			form += f
		}
		return form + "]", true
	}
	values := map[string]string{}
	for i := 0; i < len(n.Content); i += 2 {
		k := target(n.Content[i])
		v, ok := peerForm(n.Content[i+1], depth+1)
		if _, twice := values[k.Value]; !ok || twice || k.Kind != yaml.ScalarNode || k.Value == "<<" || k.Value == "" {
			return "", false // merging is compared elsewhere
		}
		values[k.Value] = v
	}
	form := "{"
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if values[k] != "n" {
			form += peerKey(k) + values[k]
		}
	}
	return form + "}", true
}

func peerKey(k string) string {
	if slices.Contains([]string{"~", "null", "Null", "NULL"}, k) {
		return "n"
	}
	return peerText(k)
}

func peerText(s string) string {
	return "s" + string(binary.AppendUvarint(nil, uint64(len(s)))) + s
}
