package document_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/headgate-io/headgate/internal/document"
	"github.com/headgate-io/headgate/internal/testenv"
)

// span is a type that unmarshals itself from text.
type span time.Duration

func (s *span) UnmarshalText(text []byte) error {
	d, err := document.ParseDuration(string(text))
	if *s = span(d); err != nil {
		*s = -1 // a failed value must not be used
	}
	return err
}

type thing struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec struct {
		Count   int               `json:"count"`
		Maybe   *int              `json:"maybe,omitempty"`
		Ratio   float64           `json:"ratio,omitempty"`
		Limit   *float64          `json:"limit,omitempty"`
		Every   span              `json:"every,omitempty"`
		Lenient span              `json:"lenient,omitempty"`
		Words   map[string]string `json:"words,omitempty"`
		Raw     json.RawMessage   `json:"raw,omitempty"`
		Boxes   map[string]struct {
			Size int `json:"size"`
		} `json:"boxes,omitempty"`
		Parts []struct {
			At *time.Time `json:"at,omitempty"`
		} `json:"parts,omitempty"`
	} `json:"spec"`
}

func rules(path string) document.Rule {
	switch path {
	case "spec.lenient":
		return document.Rule{Instead: "1m is used"}
	case "spec.count":
		return document.Rule{Optional: true}
	case "spec.gone":
		return document.Rule{Refused: "is gone: remove it"}
	}
	return document.Rule{Ignored: path == "status" || strings.HasPrefix(path, "metadata.")}
}

// decode returns the things in a text, its defects and warnings, and the number of skipped
// documents.
func decode(text string) (things []*thing, errs, warnings string, skipped int) {
	s, err := document.Open("f", strings.NewReader(text))
	if err != nil {
		return nil, err.Error(), "", 0
	}
	var warned []error
	for o := range s.Objects() {
		if o.Group != "x.dev" || o.Type != "Thing" {
			s.Skipped++
			continue
		}
		v := new(thing)
		dec := &document.Decoder{Rules: rules}
		dec.Decode(o.Node, v, "")
		s.Note(s.Locate(&dec.Findings, o.Node, o.Name("Thing", "default"))...)
		warned = append(warned, s.Warn(&dec.Warnings, o.Node, o.Name("Thing", "default"))...)
		things = append(things, v)
	}
	if err := s.Err(); err != nil {
		errs = err.Error()
	}
	if err := errors.Join(warned...); err != nil {
		warnings = err.Error()
	}
	return things, errs, warnings, s.Skipped
}

const header = "apiVersion: x.dev/v1\nkind: Thing\nmetadata: {name: a, labels: {b: c}}\n"

func TestDecoder(t *testing.T) {
	tests := []struct{ spec, errs, warnings string }{
		{"{count: 1, maybe: -2, ratio: 0.5, limit: 99, every: 1m, lenient: 1h, words: {a: b}, parts: [{at: 2026-01-02T03:04:05Z}]}", "", ""},
		{"{}", "", ""},
		{"{count: 1e1}", "spec.count: must be an integer of 64 bits", ""},
		{"{count: 99999999999999999999}", "spec.count: must be an integer of 64 bits", ""},
		{"{count: 1.5}", "spec.count: must be an integer of 64 bits", ""},
		{"{count: '1'}", "spec.count: must be a number, not a string", ""},
		{"{maybe: x}", "spec.maybe: must be a number, not a string", ""},
		{"{ratio: true}", "spec.ratio: must be a number, not a boolean", ""},
		{"{limit: []}", "spec.limit: must be a number, not a list", ""},
		{"{every: 1d}", `spec.every: "1d" is no duration: write unsigned numbers with the units ms, s, m and h, such as 1m30s`, ""},
		{"{lenient: 1d}", "", `spec.lenient: "1d" is no duration: write unsigned numbers with the units ms, s, m and h, such as 1m30s; 1m is used`},
		{"{lenient: 60}", "spec.lenient: must be a string, not a number: put it in quotes", ""},
		{"{words: {a: 1}}", "spec.words[a]: must be a string, not a number: put it in quotes", ""},
		{"{words: {a: yes}}", "spec.words[a]: must be a string, but this word is a boolean in YAML: put it in quotes", ""},
		{"{words: {a: b, a: c}}", "spec.words[a]: is given twice", ""},
		{"{count: 1, count: 1}", "spec.count: is given twice", ""},
		{"{count: null, count: 1}", "spec.count: is given twice", ""},
		{"{Count: 1}", "spec.Count: unknown field: did you mean count?", ""},
		{"{gone: 1}", "spec.gone: is gone: remove it", ""},
		{"{parts: [{at: now}]}", `spec.parts[0].at: "now" is no time: write it as 2006-01-02T15:04:05Z`, ""},
	}
	for _, test := range tests {
		text := header + "spec: " + test.spec + "\nstatus: {a: b}\n"
		_, errs, warnings, _ := decode(text)
		const where = "f:4: document 1: Thing/default/a: "
		if strings.TrimPrefix(errs, where) != test.errs || strings.TrimPrefix(warnings, where) != test.warnings {
			t.Errorf("%s:\n%s\n%s", test.spec, errs, warnings)
		}
	}
}

func TestValues(t *testing.T) {
	things, errs, _, _ := decode(header + "spec: {count: 7, maybe: 0, ratio: -0.5, limit: 1e3, every: 1m30s, lenient: soon}\n")
	if errs != "" || len(things) != 1 {
		t.Fatal(errs)
	}
	s := things[0].Spec
	if s.Count != 7 || *s.Maybe != 0 || s.Ratio != -0.5 || *s.Limit != 1000 || time.Duration(s.Every) != 90*time.Second || s.Lenient != 0 {
		t.Errorf("%+v", s)
	}
}

// TestJSON decodes JSON that YAML cannot express, over several lines.
func TestJSON(t *testing.T) {
	const text = `{"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "a"},
  "spec": {"count": 1, "words": {"a": "\ud83d\ude00\/\ud800\\ud83d\u2028` + "\u0085\u2028\ufeff\x7f" + `", "<<": "b"}}} {"a": 1}
{"apiVersion": "x.dev/v1", "kind": "Thing", "metadata": {"name": "b"}, "spec":
  {"count": "1"}}
{"a": ]`
	things, errs, _, skipped := decode(text)
	if len(things) == 0 {
		t.Fatal(errs)
	}
	if words := things[0].Spec.Words; words["a"] != "😀/\ufffd\\ud83d\u2028\u0085\u2028\ufeff\x7f" || words["<<"] != "b" || skipped != 1 {
		t.Errorf("%q, %d skipped", words, skipped)
	}
	want := `f:4: document 3: Thing/default/b: spec.count: must be a number, not a string
f:5: document 4: not JSON: invalid character ']' looking for beginning of value`
	testenv.Equal(t, errs, want)
}

func TestObjects(t *testing.T) {
	item := "{metadata: {name: NAME}, spec: {}}"
	full := "{apiVersion: x.dev/v1, kind: Thing, " + item[1:]
	named := func(s, name string) string { return strings.Replace(s, "NAME", name, 1) }
	text := strings.Join([]string{
		named(full, "a"),
		"apiVersion: v1\nkind: List\nitems: [" + named(full, "b") + ", {apiVersion: v1, kind: Secret}]",
		"apiVersion: x.dev/v1\nkind: ThingList\nitems: [" + named(item, "c") + "]",
		"values: 1",
		"apiVersion: v1\nkind: List\nitems: {}",
		"kind: Thing",
		"apiVersion: y.dev/v1\nkind: OtherList\nitems: 3", // an unknown kind, which is not read as a list
		"text",
		"a: [",
		named(full, "d"),
	}, "\n---\n")
	things, errs, _, skipped := decode(text)
	var names []string
	for _, v := range things {
		names = append(names, v.Metadata.Name)
	}
	testenv.Equal(t, names, []string{"a", "b", "c", "d"})
	want := `f:15: document 5: items must be a list, not a mapping
f:17: document 6: Thing: apiVersion is required, as a string
f:23: document 8: the document is a string, not an object
f:25: document 9: not YAML: did not find expected node content`
	if errs != want || skipped != 3 {
		t.Errorf("%d skipped\n%s", skipped, errs)
	}
}

// TestManyDefects checks that defects are counted, not collected without end.
func TestManyDefects(t *testing.T) {
	for name, text := range map[string]string{
		"documents": strings.Repeat("x\n---\n", 5000),
		"items":     "apiVersion: v1\nkind: List\nitems:\n" + strings.Repeat("- x\n", 5000),
	} {
		_, errs, _, _ := decode(text)
		if n := strings.Count(errs, "\n"); n != document.MaxErrors || !strings.HasSuffix(errs, "more than 1000 defects: the rest was not read") {
			t.Errorf("%s: %d lines, %.200s", name, n, errs)
		}
	}
	fields := header + "spec: {" + strings.Repeat("a: 1, ", 5000) + "count: 1}\n"
	if _, errs, _, _ := decode(fields); strings.Count(errs, "\n") != 100 || !strings.Contains(errs, "has more than 100 defects") {
		t.Errorf("fields: %.200s", errs)
	}
}

// TestManyWarnings checks that warnings are counted as well.
func TestManyWarnings(t *testing.T) {
	_, errs, warnings, _ := decode(strings.Repeat(header+"spec: {lenient: 1d}\n---\n", 3000))
	if n := strings.Count(warnings, "\n"); errs != "" || n != document.MaxErrors || !strings.HasSuffix(warnings, "f: more than 1000 warnings: the rest is not shown") {
		t.Errorf("%d lines, %.200s", n, warnings)
	}
}

// TestLongNames checks that a name is not repeated without end in the errors
// about what is below it.
func TestLongNames(t *testing.T) {
	long := strings.Repeat("k", 1<<20)
	const many = "{a: 1, b: 1, c: 1, d: 1, e: 1, f: 1, g: 1, h: 1, i: 1, j: 1}"
	for name, text := range map[string]string{
		"key":     header + "spec:\n  boxes:\n    ? " + long + "\n    : " + many + "\n",
		"field":   header + "spec:\n  ? " + long + "\n  : 1\n",
		"object":  strings.Replace(header, "name: a", "name: "+long, 1) + "spec: " + many + "\n",
		"kind":    "kind: " + long + "\nmetadata: {}\n",
		"unknown": "a: *" + long + "\n",
	} {
		if _, errs, _, _ := decode(text); errs == "" || len(errs) > 10<<10 {
			t.Errorf("%s: %d bytes of errors", name, len(errs))
		}
	}
}

// TestAliasedText checks that aliases do not multiply text without end.
func TestAliasedText(t *testing.T) {
	text := func(repeat int) string {
		return header + "spec: {words: {a: &a " + strings.Repeat("k", 1<<16) + "}, raw: [*a" + strings.Repeat(", *a", repeat) + "]}\n"
	}
	if things, errs, _, _ := decode(text(100)); errs != "" || len(things[0].Spec.Raw) < 100<<16 {
		t.Errorf("%.200s", errs)
	}
	if _, errs, _, _ := decode(text(300)); errs != "f:1: document 1: holds more than 524288 values or 16 MiB of text, aliases counted where they are used" {
		t.Errorf("%.200s", errs)
	}
}

// TestLines checks the lines of fields below keys that a document chose.
func TestLines(t *testing.T) {
	_, errs, _, _ := decode(header + "spec:\n  boxes:\n    a.b/c:\n      size: 1\n      color: red\n    \"d]e\":\n      size: x\n    f: {}\n")
	want := `f:8: document 1: Thing/default/a: spec.boxes[a.b/c].color: unknown field
f:10: document 1: Thing/default/a: spec.boxes[d]e].size: must be a number, not a string
f:11: document 1: Thing/default/a: spec.boxes[f].size: is required`
	testenv.Equal(t, errs, want)
}

// TestStop checks that a stream yields nothing after its reader stops.
func TestStop(t *testing.T) {
	for _, form := range []string{"---\n%s---\n%s", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: a, kind: b}\n- {apiVersion: a, kind: b}\n"} {
		if strings.Contains(form, "%s") {
			form = fmt.Sprintf(form, header, header)
		}
		s, err := document.Open("f", strings.NewReader(form))
		testenv.Must(t, err)
		count := 0
		for range s.Objects() {
			count++
			break
		}
		testenv.Equal(t, count, 1)
	}
}
