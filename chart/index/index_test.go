package index_test

import (
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

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
			for name, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
				list, err := all(index.Entries(r, "podinfo"))
				if err != nil {
					t.Fatalf("%s: %v\n%s", name, err, text)
				}
				var versions []string
				for _, e := range list {
					versions = append(versions, e.Version)
				}
				if got, want := strings.Join(versions, " "), "1.3.0 1.2.0 1.1.0 4.3.0 4.2.0 4.1.0"; got != want {
					t.Errorf("%s: %s, want %s", name, got, want)
				}
			}
			for _, name := range append(charts, "absent") {
				same(t, text, name)
			}
			left, err := index.Filter(strings.NewReader(text), "podinfo")
			if err != nil || strings.Contains(string(left), "0.1.0") || strings.Contains(string(left), "2.3.0") {
				t.Errorf("not left out: %v\n%s", err, left)
			}
		})
	}
}

// TestNamesOnSeveralLines asks for what the text of a name stands for.
func TestNamesOnSeveralLines(t *testing.T) {
	text := `{"apiVersion":"v1","entries":{"b":[{}],"pod
 info":[{"name":"pod info","version":"1.0.0","urls":["a"]}],"c":[{}]}}`
	list, err := all(index.Entries(strings.NewReader(text), "pod info"))
	if err != nil || len(list) != 1 {
		t.Errorf("%+v, %v", list, err)
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

// same fails unless an index yields the same whether anything is left out or not.
func same(t *testing.T, text, name string) {
	t.Helper()
	want, err := all(index.Unfiltered(strings.NewReader(text), name))
	if err != nil {
		return // what is passed over need not be valid
	}
	for how, r := range map[string]io.Reader{"whole": strings.NewReader(text), "byte by byte": iotest.OneByteReader(strings.NewReader(text))} {
		got, err := all(index.Entries(r, name))
		if err != nil || !reflect.DeepEqual(got, want) {
			left, _ := index.Filter(strings.NewReader(text), name)
			t.Fatalf("%s, %s: %s, %v\nwant %s\nof %q\nleft %q", name, how, short(got), err, short(want), text, left)
		}
	}
}

func short(list []index.Entry) string {
	return fmt.Sprintf("%d: %.300s", len(list), fmt.Sprintf("%+v", list))
}
