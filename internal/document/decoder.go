package document

import (
	"cmp"
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Decoder fills Go values from nodes as the schema of an API server would:
// case-sensitive, without unknown and duplicate fields, without conversions between types.
// It continues after a defect. Fields are found by their json tags; those without omitempty
// and omitzero are required. The fields of an embedded struct count as fields of the outer
// struct.
//
// Values may be structs, pointers, slices, maps with string keys, strings, booleans, int,
// int64, float64, [time.Time], [json.RawMessage] and types that implement
// [encoding.TextUnmarshaler], which documents write as strings.
type Decoder struct {
	Findings                        // defects
	Warnings Findings               // what Rules say about fields that are given
	Retired  []Retired              // fields that Rules give a Shape, in order
	Rules    func(path string) Rule // exceptions for the field at path, such as spec.items[].name; nil for none
}

// A Rule is an exception that the Go type of a field cannot express. The zero Rule is no
// exception.
type Rule struct {
	Refused  string             // why documents must not have the field
	Ignored  bool               // the field is skipped if the Go type does not have it
	Optional bool               // the field may be missing even if its tag makes it required
	Text     func(string) error // checks the text of a string; nil for no check
	Instead  string             // consequence of a text that cannot be read: the field is left out with a warning; "" makes it a defect

	// Shape is the type of a field that the Go type does not have. The value is checked and
	// added to Retired, and Warning is added to the warnings.
	Shape   reflect.Type
	Warning string
}

// A Retired field has a meaning but no Go field.
type Retired struct {
	Path  string // of its [Rule]
	Field string // as errors name it
	Value *Node
}

// Decode decodes n into the value that v points to. field is the path of n in its object,
// "" for the object itself.
func (d *Decoder) Decode(n *Node, v any, field string) {
	if d.Rules == nil {
		d.Rules = func(string) Rule { return Rule{} }
	}
	d.value(n, reflect.ValueOf(v).Elem(), yamlPath{field, field, n.Line}, Rule{})
}

// A yamlPath is the location of a value: at is the path in messages, rule the path for
// Rules. Names that a document chose are shortened in at, because the paths of all values
// below repeat them.
type yamlPath struct {
	at, rule string
	line     int
}

// maxKey bounds the name of a field in a path, in bytes.
const maxKey = 80

func (p yamlPath) field(name string, line int) yamlPath {
	return yamlPath{join(p.at, shorten(name, maxKey)), join(p.rule, name), line}
}

func (p yamlPath) item(key string, line int) yamlPath {
	return yamlPath{p.at + "[" + shorten(key, maxKey) + "]", p.rule + "[]", line}
}

// join returns the path of a field below another; either may be empty.
func join(path, field string) string {
	if path == "" || field == "" {
		return path + field
	}
	return path + "." + field
}

// nodeKinds maps the kinds of Go values to the kinds of nodes.
var nodeKinds = map[reflect.Kind]Kind{
	reflect.Struct: Map, reflect.Map: Map, reflect.Slice: List, reflect.String: Text,
	reflect.Bool: Bool, reflect.Int: Number, reflect.Int64: Number, reflect.Float64: Number,
}

// value decodes n into v.
func (d *Decoder) value(n *Node, v reflect.Value, p yamlPath, rule Rule) {
	if v.Kind() == reflect.Pointer {
		v.Set(reflect.New(v.Type().Elem()))
		v = v.Elem()
	}
	kind := nodeKinds[v.Kind()]
	switch into := v.Addr().Interface().(type) {
	case *json.RawMessage:
		*into, _ = json.Marshal(n.jsonValue()) // numbers have the form of JSON
		return
	case encoding.TextUnmarshaler:
		kind = Text
	}
	if n.yaml11Bool && kind == Bool {
		n = &Node{Kind: Bool, Text: strconv.FormatBool(strings.ContainsAny(n.Text[:1], "yY") || strings.EqualFold(n.Text, "on"))}
	}
	var err error
	switch {
	case kind == Text && n.yaml11Bool:
		d.add(p, "must be a string, but this word is a boolean in YAML: put it in quotes")
	case kind == Text && (n.Kind == Number || n.Kind == Bool):
		d.add(p, "must be a string, not %s: put it in quotes", n.Kind)
	case n.Kind != kind:
		d.add(p, "must be %s, not %s", kind, n.Kind)
	case kind == Text:
		d.text(n.Text, v, p, rule)
	case v.Kind() == reflect.Struct:
		d.structure(n, v, p)
	case kind == Map:
		d.mapping(n, v, p)
	case kind == List && len(n.Items) > 0:
		v.Set(reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items)))
		for i, item := range n.Items {
			d.value(item, v.Index(i), p.item(strconv.Itoa(i), item.Line), Rule{})
		}
	case kind == List: // an empty list
	case kind == Bool:
		v.SetBool(n.Text == "true")
	case v.Kind() == reflect.Float64:
		var f float64
		if f, err = strconv.ParseFloat(n.Text, 64); err != nil {
			d.add(p, "must be a number of 64 bits")
		}
		v.SetFloat(f)
	default:
		var i int64
		if i, err = strconv.ParseInt(n.Text, 10, 64); err != nil {
			d.add(p, "must be an integer of 64 bits")
		}
		v.SetInt(i)
	}
}

// text decodes a string. The type of v may unmarshal it itself.
func (d *Decoder) text(text string, v reflect.Value, p yamlPath, rule Rule) {
	err := error(nil)
	if rule.Text != nil {
		err = rule.Text(text)
	}
	switch into := v.Addr().Interface().(type) {
	case *time.Time:
		t, failed := time.Parse(time.RFC3339, text)
		if *into = t.UTC(); failed != nil || into.Year() < 1 || into.Year() > 9999 {
			err = fmt.Errorf("%s is no time: write it as 2006-01-02T15:04:05Z", Quote(text))
		}
	case encoding.TextUnmarshaler:
		err = cmp.Or(err, into.UnmarshalText([]byte(text)))
	default:
		v.SetString(text)
	}
	if err == nil {
		return
	}
	v.SetZero()
	if rule.Instead == "" {
		d.add(p, "%w", err)
	} else {
		d.Warnings.Note(&Error{Field: p.at, Line: p.line, Err: fmt.Errorf("%w; %s", err, rule.Instead)})
	}
}

func (d *Decoder) mapping(n *Node, v reflect.Value, p yamlPath) {
	if len(n.Fields) == 0 {
		return
	}
	v.Set(reflect.MakeMapWithSize(v.Type(), len(n.Fields)))
	for _, f := range n.Fields {
		key, at := reflect.ValueOf(f.Name), p.item(f.Name, f.Line)
		if v.MapIndex(key).IsValid() {
			d.add(at, "is given twice")
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(f.Value, elem, at, Rule{})
		v.SetMapIndex(key, elem)
	}
}

func (d *Decoder) structure(n *Node, v reflect.Value, p yamlPath) {
	fields := FieldsOf(v.Type())
	given := make(map[string]bool, len(n.Fields)) // false for null
	for _, f := range n.Fields {
		at := p.field(f.Name, f.Line)
		if _, twice := given[f.Name]; twice {
			d.add(at, "is given twice")
			continue
		}
		given[f.Name] = f.Value.Kind != Null
		rule := d.Rules(at.rule)
		index, known := fields.Index[f.Name]
		switch {
		case rule.Refused != "":
			d.add(at, "%s", rule.Refused)
		case known && given[f.Name]:
			d.value(f.Value, v.FieldByIndex(index), at, rule)
		case !known && rule.Shape != nil && given[f.Name]:
			d.value(f.Value, reflect.New(rule.Shape).Elem(), at, rule)
			d.Warnings.Note(&Error{Field: at.at, Line: at.line, Err: fmt.Errorf("%s", rule.Warning)})
			d.Retired = append(d.Retired, Retired{at.rule, at.at, f.Value})
		case !known && rule.Shape == nil && !rule.Ignored:
			d.add(at, "unknown field%s", fields.suggestion(f.Name))
		}
	}
	for _, name := range fields.Required {
		if at := p.field(name, p.line); !given[name] && !d.Rules(at.rule).Optional {
			d.add(at, "is required")
		}
	}
}

// add notes a defect of the value at p.
func (d *Decoder) add(p yamlPath, format string, args ...any) {
	d.Note(&Error{Field: p.at, Line: p.line, Err: fmt.Errorf(format, args...)})
}

// Fields are the fields of a Go struct by their JSON names.
type Fields struct {
	Index    map[string][]int
	Required []string // neither omitempty nor omitzero
}

// suggestion names the field that differs from name in case only.
func (s *Fields) suggestion(name string) string {
	for known := range s.Index {
		if strings.EqualFold(known, name) {
			return ": did you mean " + known + "?"
		}
	}
	return ""
}

// fieldsCache caches the fields of struct types.
var fieldsCache sync.Map

// FieldsOf returns the fields of a struct type, including those of embedded structs.
func FieldsOf(t reflect.Type) *Fields {
	if known, ok := fieldsCache.Load(t); ok {
		return known.(*Fields)
	}
	out := &Fields{Index: make(map[string][]int)}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		if out.Index[name] = f.Index; options == "" {
			out.Required = append(out.Required, name)
		}
	}
	fieldsCache.Store(t, out)
	return out
}
