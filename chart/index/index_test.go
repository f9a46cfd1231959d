package index_test

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/chart/index"
	"github.com/headgate-io/headgate/internal/testenv"
)

// collect collects the entries of a sequence, until its error.
func collect(seq iter.Seq2[index.Entry, error]) (list []index.Entry, err error) {
	for e, err := range seq {
		if err != nil {
			return list, err
		}
		list = append(list, e)
	}
	return list, nil
}

func TestEntriesOfEveryShape(t *testing.T) {
	charts := []string{"alpine", "podinfo", "nginx", "podinfo-2", "podinfo"}
	for _, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			text := s.write(charts, 3)
			for _, size := range []int{1, 7, len(text)} {
				list, err := collect(index.Entries(chunkReader{strings.NewReader(text), size}, "podinfo"))
				if err != nil {
					t.Fatalf("in pieces of %d bytes: %v\n%s", size, err, text)
				}
				var versions []string
				for _, e := range list {
					versions = append(versions, e.Version)
				}
				testenv.Equal(t, strings.Join(versions, " "), "1.3.0 1.2.0 1.1.0 4.3.0 4.2.0 4.1.0", "in pieces of %d bytes", size)
			}
			for _, name := range append(charts, "absent") {
				requireSame(t, text, name)
			}
			if index.Scanned(strings.NewReader(text), "podinfo") == s.whole {
				t.Error("it is read in another way")
			}
		})
	}
}

// TestLinesWithMoreThanOneChart checks the lines of entries if other entries begin and end
// on the same lines.
func TestLinesWithMoreThanOneChart(t *testing.T) {
	const entry = `{"name":"a","version":"1.0.0","urls":["a"]}`
	text := `{"apiVersion":"v1","entries":{"a":[` + entry + ",\n" + entry + `],"b":[` + "\n{},\n{}\n" + `],"a":[` + entry + `],"b":[{},` + "\n" + `{}],"a":[` + entry + "]}}"
	for _, size := range []int{1, 2, 3, 5, 7, 100, 1000} {
		var lines []int
		for e, err := range index.Entries(chunkReader{strings.NewReader(text), size}, "a") {
			must(t, err)
			lines = append(lines, e.Line)
		}
		testenv.Equal(t, lines, []int{1, 2, 5, 6}, "in pieces of %d bytes", size)
	}
}

// requireSame fails unless Entries yields what the YAML library reads, for an index that the
// library can read.
func requireSame(t *testing.T, text, name string) {
	t.Helper()
	want, err := index.Whole(strings.NewReader(text), name)
	if err != nil {
		return // skipped content need not be valid
	}
	for _, size := range []int{1, 1 << 20} {
		got, err := collect(index.Entries(chunkReader{strings.NewReader(text), size}, name))
		if oddBreaks(text) {
			got, want = withoutLines(got), withoutLines(want)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s, in pieces of %d bytes: %s, %v\nwant %s\nof %q", name, size, short(got), err, short(want), truncate(text))
		}
	}
}

// oddBreaks reports whether a text has line breaks that are not line breaks in JSON.
func oddBreaks(text string) bool {
	return strings.ContainsAny(strings.ReplaceAll(text, "\r\n", "\n"), "\r\u0085\u2028\u2029")
}

func withoutLines(list []index.Entry) []index.Entry {
	list = slices.Clone(list)
	for i := range list {
		list[i].Line = 0
	}
	return list
}

func short(list []index.Entry) string {
	return fmt.Sprintf("%d: %.300s", len(list), fmt.Sprintf("%+v", list))
}

// chunkReader reads at most size bytes at a time.
type chunkReader struct {
	*strings.Reader
	size int
}

func (p chunkReader) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// truncate shortens a long text.
func truncate(text string) string {
	if len(text) > 6000 {
		return text[:3000] + " … " + text[len(text)-3000:]
	}
	return text
}

// versions yields an entry for each field of text, which is VERSION or VERSION@MINUTES with
// the time of creation.
func versions(text string) iter.Seq2[index.Entry, error] {
	return func(yield func(index.Entry, error) bool) {
		for f := range strings.FieldsSeq(text) {
			v, at, found := strings.Cut(f, "@")
			e := index.Entry{Version: v}
			if found {
				d, err := time.ParseDuration(at + "m")
				if err != nil {
					panic(err)
				}
				e.Created = time.Unix(1e9, 0).Add(d)
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

func TestSelect(t *testing.T) {
	for _, c := range []struct{ want, versions, selected string }{
		{"1.0.0", "1.1.0 1.0.0 0.9.0", "1.0.0"},
		{"", "1.0.0 1.10.0 1.9.0", "1.10.0"},
		{"*", "2.0.0-rc.1 1.0.0 1.10.0", "1.10.0"},
		{"1.x", "0.9.0 1.0.0 1.2.0 2.0.0", "1.2.0"},
		{">=1.0.0 <2.0.0", "0.9.0 1.0.0 1.2.0 2.0.0", "1.2.0"},
		{"^1.0.0 || ^3.0.0", "1.0.0 2.0.0 3.1.0 4.0.0", "3.1.0"},

		// An exact spelling comes first, anywhere in the list.
		{"1.0.0", "1.0.0+a@9 v1.0.0@9 1.0.0@1 1.0.0+b@9", "1.0.0"},
		{"v1.0.0", "1.0.0 v1.0.0", "v1.0.0"},
		{"1.0.0+b", "1.0.0+a@9 1.0.0+b@1", "1.0.0+b"},
		{"1.2", "1.2.9 1.2", "1.2"},
		{"1.0.0", "v1.0.0 0.9.0", "v1.0.0"},
		{"v1.0.0", "1.0.0 0.9.0", "1.0.0"},

		// A range includes pre-releases only if it names one.
		{">=1.0.0", "1.0.0 1.1.0-rc.1", "1.0.0"},
		{">=1.0.0-0", "1.0.0 1.1.0-rc.2 1.1.0-rc.10", "1.1.0-rc.10"},
		{"1.1.0-rc.1", "1.0.0 1.1.0-rc.1", "1.1.0-rc.1"},

		// Build metadata: the last created.
		{"0.1.5", "0.1.5+a@-60 0.1.5+b@-1 0.1.5+c@0", "0.1.5+c"},
		{"0.1.5", "0.1.5+a@0 0.1.5+b@-1 0.1.5+c@-60", "0.1.5+a"},
		{"*", "0.1.5+a@0 0.1.4 0.1.5+b@9 0.1.5+c@-60", "0.1.5+b"},
		{"0.1.5", "0.1.5+b 0.1.5+c 0.1.5+a", "0.1.5+c"},
		{"0.1.5", "0.1.5+build.9 0.1.5+build.10 0.1.5+build", "0.1.5+build.10"},
		{"0.1.5", "0.1.5+1a 0.1.5+10 0.1.5+2", "0.1.5+1a"},
		{"0.1.5", "0.1.5 0.1.5+a", "0.1.5"},

		// Invalid versions are skipped.
		{"*", "latest 1.0.0 1.0.0.0 ../../etc 00.9 main", "1.0.0"},
		{"*", "0.9 v1.2 1.1.0", "v1.2"},
	} {
		e, err := index.Select(versions(c.versions), c.want)
		if err != nil || e.Version != c.selected {
			t.Errorf("%q of %s: %q, %v; want %q", c.want, c.versions, e.Version, err, c.selected)
		}
		backwards := strings.Fields(c.versions)
		slices.Reverse(backwards)
		if e, err := index.Select(versions(strings.Join(backwards, " ")), c.want); err != nil || e.Version != c.selected {
			t.Errorf("%q of %s, backwards: %q, %v; want %q", c.want, c.versions, e.Version, err, c.selected)
		}
	}
}

func TestSelectSameVersionTwice(t *testing.T) {
	at := time.Unix(1e9, 0)
	list := []index.Entry{{Version: "1.0.0", Digest: "old", Created: at}, {Version: "1.0.0", Digest: "new", Created: at.Add(1)}, {Version: "1.0.0", Digest: "older", Created: at.Add(-1)}}
	for _, want := range []string{"1.0.0", "*"} {
		e, err := index.Select(func(yield func(index.Entry, error) bool) {
			for _, e := range list {
				if !yield(e, nil) {
					return
				}
			}
		}, want)
		if err != nil || e.Digest != "new" {
			t.Errorf("%s: %q, %v", want, e.Digest, err)
		}
	}
}

func TestSelectFails(t *testing.T) {
	for _, c := range []struct {
		want, versions, text string
		missing              bool
	}{
		{"2.x", "1.0.0 1.7.0 1.1.0 1.2.0 1.3.0 1.4.0 1.4.0", `no version is within "2.x": of 7 the newest are "1.7.0", "1.4.0", "1.3.0", "1.2.0", "1.1.0"`, true},
		{"", "1.0.0-rc.1 1.0.0-rc.2", `no version is within "*": of 2 the newest are "1.0.0-rc.2", "1.0.0-rc.1"; they are pre-releases`, true},
		{"2.x", "1.0.0-" + strings.Repeat("a", 200), strings.Repeat("a", 94) + `…"; they are`, true},
		{"*", "", "there is no chart of this name", true},
		{"*", "latest main", "there is no chart of this name", true},
		{"mäh", "1.0.0", `version "mäh" is neither in the index nor a range`, false},
		{">= \x1b[31m", "1.0.0", `version ">= \x1b[31m" is neither`, false},
	} {
		_, err := index.Select(versions(c.versions), c.want)
		if err == nil || !strings.Contains(err.Error(), c.text) || errors.Is(err, fs.ErrNotExist) != c.missing {
			t.Errorf("%q of %s: %v; want %s", c.want, c.versions, err, c.text)
		}
	}
	broken := errors.New("broken")
	if _, err := index.Select(func(yield func(index.Entry, error) bool) {
		_ = yield(index.Entry{Version: "1.0.0"}, nil) && yield(index.Entry{}, broken)
	}, "1.0.0"); !errors.Is(err, broken) {
		t.Errorf("error among entries: %v", err)
	}
}

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

func TestSumIgnoresSpelling(t *testing.T) {
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
	for want, spellings := range map[string][]string{
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
		for _, text := range spellings {
			testenv.Equal(t, sumOf(t, text), sum, "another sum\n%s", text)
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

// TestSumOfLargeEntries checks that entries that cannot be used are part of the sum.
func TestSumOfLargeEntries(t *testing.T) {
	large := func(b string) string { return "  - {x: [" + strings.Repeat(b+",", 70000) + "]}\n" }
	none, one, other := sumOf(t, head+"  a:\n"), sumOf(t, head+"  a:\n"+large("b")), sumOf(t, head+"  a:\n"+large("c"))
	if none == one || one == other {
		t.Errorf("%s without, %s with one, %s with another", none, one, other)
	}
}

// TestSumCountsSkippedFields changes fields that entries do not depend on.
func TestSumCountsSkippedFields(t *testing.T) {
	text := shapes[0].write([]string{"a"}, 2)
	if sumOf(t, text) == sumOf(t, strings.Replace(text, "kind: fixed", "kind: added", 1)) {
		t.Error("an annotation does not count")
	}
}

const example = `apiVersion: v1
entries:
  podinfo:
  - name: podinfo
    version: 6.6.0-rc.1
    urls: [podinfo-6.6.0-rc.1.tgz]
  - name: podinfo
    version: 6.5.4
    urls: [podinfo-6.5.4.tgz]
  - name: podinfo
    version: 6.5.3
    urls: []
`

func Example() {
	e, err := index.Select(index.Entries(strings.NewReader(example), "podinfo"), "6.x")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Version, e.URLs[0])
	// Output: 6.5.4 podinfo-6.5.4.tgz
}

func ExampleCheck() {
	s, err := index.Check(strings.NewReader(example))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Versions, "versions")
	for _, m := range s.Skipped {
		fmt.Printf("line %d: %q %q: %s\n", m.Line, m.Chart, m.Version, m.Problem)
	}
	// Output:
	// 2 versions
	// line 10: "podinfo" "6.5.3": urls is empty
}
