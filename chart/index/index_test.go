package index_test

import (
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/chart/index"
)

// all returns what a sequence yields, until its error.
func all(seq iter.Seq2[index.Entry, error]) (list []index.Entry, err error) {
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
				list, err := all(index.Entries(pieces{strings.NewReader(text), size}, "podinfo"))
				if err != nil {
					t.Fatalf("in pieces of %d bytes: %v\n%s", size, err, text)
				}
				var versions []string
				for _, e := range list {
					versions = append(versions, e.Version)
				}
				if got, want := strings.Join(versions, " "), "1.3.0 1.2.0 1.1.0 4.3.0 4.2.0 4.1.0"; got != want {
					t.Errorf("in pieces of %d bytes: %s, want %s", size, got, want)
				}
			}
			for _, name := range append(charts, "absent") {
				same(t, text, name)
			}
			if index.Scanned(strings.NewReader(text), "podinfo") == s.whole {
				t.Error("it is read in another way")
			}
		})
	}
}

// TestLinesWithMoreThanOneChart asks for the lines of entries beside which others
// begin and end.
func TestLinesWithMoreThanOneChart(t *testing.T) {
	const entry = `{"name":"a","version":"1.0.0","urls":["a"]}`
	text := `{"apiVersion":"v1","entries":{"a":[` + entry + ",\n" + entry + `],"b":[` + "\n{},\n{}\n" + `],"a":[` + entry + `],"b":[{},` + "\n" + `{}],"a":[` + entry + "]}}"
	for _, size := range []int{1, 2, 3, 5, 7, 100, 1000} {
		var lines []int
		for e, err := range index.Entries(pieces{strings.NewReader(text), size}, "a") {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, e.Line)
		}
		if want := []int{1, 2, 5, 6}; !slices.Equal(lines, want) {
			t.Errorf("in pieces of %d bytes: %v, want %v", size, lines, want)
		}
	}
}

// same fails unless an index that the YAML library can read yields what the
// library says.
func same(t *testing.T, text, name string) {
	t.Helper()
	want, err := index.Whole(strings.NewReader(text), name)
	if err != nil {
		return // what is passed over need not be valid
	}
	for _, size := range []int{1, 1 << 20} {
		got, err := all(index.Entries(pieces{strings.NewReader(text), size}, name))
		if oddBreaks(text) {
			got, want = withoutLines(got), withoutLines(want)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s, in pieces of %d bytes: %s, %v\nwant %s\nof %q", name, size, short(got), err, short(want), cut(text))
		}
	}
}

// oddBreaks tells whether a text has line breaks that are none in JSON.
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

// pieces is a reader of at most so many bytes at a time.
type pieces struct {
	*strings.Reader
	size int
}

func (p pieces) Read(b []byte) (int, error) { return p.Reader.Read(b[:min(len(b), p.size)]) }

// cut shortens a text that is padded.
func cut(text string) string {
	if len(text) > 6000 {
		return text[:3000] + " … " + text[len(text)-3000:]
	}
	return text
}
