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
	const flow = summed
	const block = `apiVersion: v1
entries:
  a:
  - name: a
    home: x
  - name: b
  b:
  - name: c
generated: now
`
	const inJSON = `{"apiVersion":"v1","entries":{"a":[{"name":"a"},{"name":"b"}],"b":[{"name":"c"}]},"generated":"now"}`
	for want, others := range map[string][]string{
		flow: {
			strings.Replace(flow, "now", "then", 1),
			strings.Replace(flow, "generated: now\n", "", 1),
			strings.NewReplacer("1.0.0", `"1.0.0"`, "name: a", "'name': a").Replace(flow),
			"apiVersion: v1\nentries:\n  b:\n  - {name: b, version: 1.0.0, urls: [x]}\n  a:\n  - {name: a, version: 1.1.0, urls: [x]}\n" +
				"  - {name: a, version: 1.0.0, urls: [x, y], annotations: {b: \"1\", c: d}, home: ~}\n",
		},
		block: {
			strings.Replace(block, "now", "then", 1),
			strings.Replace(block, "generated: now\n", "", 1),
			"generated: now\nentries:\n  b:\n  - name: c\n  c:\n  a:\n  - name: b\n  - name: a\n    home: x\napiVersion: v1\n",
		},
		inJSON: {
			`{"generated":"then","entries":{"b":[ {"name":"c"} ],"c":null,"d":[],"a":[{"name":"b"},{"name":"a"}]},"apiVersion":"v1"}`,
		},
	} {
		sum := sumOf(t, want)
		if len(sum) != len("sha256:")+64 || sum[:7] != "sha256:" {
			t.Errorf("%s", sum)
		}
		for _, text := range others {
			if got := sumOf(t, text); got != sum {
				t.Errorf("another sum\n%s", text)
			}
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

// TestSumOfLargeEntries counts entries that cannot be used.
func TestSumOfLargeEntries(t *testing.T) {
	large := func(b string) string { return "  - {x: [" + strings.Repeat(b+",", 70000) + "]}\n" }
	none, one, other := sumOf(t, head+"  a:\n"), sumOf(t, head+"  a:\n"+large("b")), sumOf(t, head+"  a:\n"+large("c"))
	if none == one || one == other {
		t.Errorf("%s without, %s with one, %s with another", none, one, other)
	}
}

// TestSumCountsWhatIsPassedOver changes fields that entries do not depend on.
func TestSumCountsWhatIsPassedOver(t *testing.T) {
	text := shapes[0].write([]string{"a"}, 2)
	if sumOf(t, text) == sumOf(t, strings.Replace(text, "kind: fixed", "kind: added", 1)) {
		t.Error("an annotation does not count")
	}
}
