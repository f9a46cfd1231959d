package index_test

import (
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
)

func sumOf(t *testing.T, text string) string {
	t.Helper()
	s, err := index.Check(strings.NewReader(text))
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s.Sum
}

const summed = `apiVersion: v1
entries:
  a:
  - {name: a, version: 1.0.0, urls: [x, y], annotations: {b: "1", c: d}, home: ~}
  - {name: a, version: 1.1.0, urls: [x]}
  b:
  - {name: b, version: 1.0.0, urls: [x]}
generated: now
`

func TestSumIsThatOfWhatIsSaid(t *testing.T) {
	want := sumOf(t, summed)
	if len(want) != len("sha256:")+64 || want[:7] != "sha256:" {
		t.Errorf("%s", want)
	}
	for name, text := range map[string]string{
		"generated":      strings.Replace(summed, "now", "then", 1),
		"not generated":  strings.Replace(summed, "generated: now\n", "", 1),
		"spelling":       strings.NewReplacer("1.0.0", `"1.0.0"`, "name: a", "'name': !!str \"\\x61\"", "~", "null").Replace(summed),
		"null fields":    strings.Replace(summed, ", home: ~", "", 1),
		"order of pairs": strings.Replace(summed, `{name: a, version: 1.0.0, urls: [x, y], annotations: {b: "1", c: d}, home: ~}`, `{annotations: {c: d, b: "1"}, urls: [x, y], version: 1.0.0, name: a}`, 1),
		"order of all": `{"entries":{"b":[{"name":"b","version":"1.0.0","urls":["x"]}],"c":[],"a":[{"name":"a","version":"1.1.0","urls":["x"]},
			{"name":"a","version":"1.0.0","urls":["x","y"],"annotations":{"b":"1","c":"d"}}]},"apiVersion":"v1"}`,
		"a name twice": "apiVersion: v1\nentries:\n  a:\n  - {name: a, version: 1.1.0, urls: [x]}\n  b:\n  - {name: b, version: 1.0.0, urls: [x]}\n  a:\n" +
			"  - name: a\n    version: 1.0.0\n    urls:\n    - x\n    - y\n    annotations:\n      c: |-\n        d\n      b: 1\n",
		"merged": "apiVersion: v1\nentries:\n  a:\n  - &x {name: a, version: 1.1.0, urls: [x]}\n  - {<<: *x, version: 1.0.0, urls: [x, y], annotations: {b: \"1\", c: d}}\n  b:\n  - {<<: *x, version: 1.0.0, name: b}\n",
	} {
		if name == "not generated" || name == "merged" { // fields of the index are part of it
			text = strings.Replace(text, "generated: now\n", "", 1)
		}
		if got := sumOf(t, text); got != want {
			t.Errorf("%s: another sum\n%s", name, text)
		}
	}
}

func TestSumChanges(t *testing.T) {
	seen := map[string]string{sumOf(t, summed): "itself"}
	for name, change := range map[string][2]string{
		"a version":            {"1.1.0", "1.1.1"},
		"a url":                {"[x, y]", "[x, z]"},
		"the order of urls":    {"[x, y]", "[y, x]"},
		"urls joined":          {"[x, y]", "[xy]"},
		"a field":              {"home: ~", "home: x"},
		"an empty field":       {"home: ~", "home: ''"},
		"a nested field":       {"c: d", "c: e"},
		"a digest":             {"home: ~", "digest: " + sha},
		"when it was made":     {"home: ~", "created: 2024-01-02T03:04:05Z"},
		"the name of a list":   {"  b:\n", "  c:\n"},
		"one entry more":       {"  b:\n", "  b:\n  - {name: b, version: 2.0.0, urls: [x]}\n"},
		"the same entry twice": {"  b:\n", "  b:\n  - {name: b, version: 1.0.0, urls: [x]}\n"},
		"a malformed entry":    {"  b:\n", "  b:\n  -\n"},
		"apiVersion":           {"apiVersion: v1", "apiVersion: v2"},
		"another field":        {"generated: now", "serverInfo: {a: b}"},
	} {
		sum := sumOf(t, strings.Replace(summed, change[0], change[1], 1))
		if other, ok := seen[sum]; ok {
			t.Errorf("%s: the sum is that of %s", name, other)
		}
		seen[sum] = name
	}
}

// TestSumOfLargeEntries counts entries that nobody can use, whatever they say.
func TestSumOfLargeEntries(t *testing.T) {
	large := func(b string) string { return "  - {x: [" + strings.Repeat(b+",", 70000) + "]}\n" }
	none, one, other := sumOf(t, head+"  a:\n"), sumOf(t, head+"  a:\n"+large("b")), sumOf(t, head+"  a:\n"+large("c"))
	if none == one || one != other {
		t.Errorf("%s without, %s with one, %s with another", none, one, other)
	}
}
