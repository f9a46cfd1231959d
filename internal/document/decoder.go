package document

import (
	"encoding"
	"encoding/json"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A Decoder fills Go values from nodes as an API server's schema would have
// them: case-sensitive, no unknown and no duplicate fields, no conversions
// between types. It goes on after a defect. Fields are found by their json
// tags; those without omitempty and omitzero are required. The fields of a
// struct in a field with the tag ",inline" are those of the struct around it.
//
// Values may be structs, pointers, slices, maps with string keys, strings,
// booleans, int, int64, float64, [time.Time], [json.RawMessage] and types that
// implement [encoding.TextUnmarshaler], which are written as strings.
type Decoder struct {
	Findings                        // what is wrong
	Warnings Findings               // what Rules say of fields that are given
	Retired  []Retired              // the fields that Rules give a Shape, in order
	Rules    func(path string) Rule // exceptions for the field at path, as spec.items[].name; nil for none

	types structTypes
}

// Decoder returns a decoder that shares with others of the stream what it
// learns about Go types.
func (s *Stream) Decoder(rules func(path string) Rule) *Decoder {
	return &Decoder{Rules: rules, types: s.types}
}

// Decode decodes n into the value that v points to. Field is the path of n in
// its object, "" for the object itself.
func (d *Decoder) Decode(n *Node, v any, field string) {
	if d.types == nil {
		d.types = make(structTypes)
	}
	d.value(n, reflect.ValueOf(v).Elem(), root(n, field), Rule{})
}

var (
	timeType = reflect.TypeFor[time.Time]()
	rawType  = reflect.TypeFor[json.RawMessage]()
	textType = reflect.TypeFor[encoding.TextUnmarshaler]()
)

// value decodes n into v.
func (d *Decoder) value(n *Node, v reflect.Value, p place, rule Rule) {
	switch t := v.Type(); {
	case t == timeType:
		d.time(n, v, p)
		return
	case t == rawType:
		v.SetBytes(n.AppendJSON(nil))
		return
	case v.CanAddr() && reflect.PointerTo(t).Implements(textType):
		d.text(n, v, p, rule)
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.value(n, v.Elem(), p, rule)
	case reflect.Struct:
		if d.want(n, Map, p) {
			d.structure(n, v, p)
		}
	case reflect.Map:
		if d.want(n, Map, p) {
			d.mapping(n, v, p)
		}
	case reflect.Slice:
		if d.want(n, List, p) {
			d.list(n, v, p)
		}
	default:
		d.scalar(n, v, p)
	}
}

// want reports a value of the wrong type.
func (d *Decoder) want(n *Node, kind Kind, p place) bool {
	switch {
	case n.Kind == kind && !(kind == Text && n.word):
		return true
	case kind == Text && n.word:
		d.add(p, "must be a string, but this word is a boolean in YAML: put it in quotes")
	case kind == Text && (n.Kind == Number || n.Kind == Bool):
		d.add(p, "must be a string, not %s: put it in quotes", n.Kind)
	default:
		d.add(p, "must be %s, not %s", kind, n.Kind)
	}
	return false
}

func (d *Decoder) scalar(n *Node, v reflect.Value, p place) {
	switch v.Kind() {
	case reflect.String:
		if d.want(n, Text, p) {
			v.SetString(n.Text)
		}
	case reflect.Bool:
		if n.Kind == Text && n.word {
			v.SetBool(strings.ContainsAny(n.Text[:1], "yY") || strings.EqualFold(n.Text, "on"))
		} else if d.want(n, Bool, p) {
			v.SetBool(n.Text == "true")
		}
	case reflect.Int, reflect.Int64:
		if d.want(n, Number, p) {
			d.integer(n, v, p)
		}
	case reflect.Float64:
		if !d.want(n, Number, p) {
			return
		}
		f, err := strconv.ParseFloat(n.Text, 64)
		if err != nil {
			d.add(p, "must be a number of 64 bits")
			return
		}
		v.SetFloat(f)
	default:
		d.add(p, "has the Go type %s, which documents cannot hold", v.Type())
	}
}

func (d *Decoder) integer(n *Node, v reflect.Value, p place) {
	i, err := strconv.ParseInt(n.Text, 10, v.Type().Bits())
	if err != nil {
		d.add(p, "must be an integer of %d bits", v.Type().Bits())
		return
	}
	v.SetInt(i)
}

// text decodes a string that the type of v reads itself.
func (d *Decoder) text(n *Node, v reflect.Value, p place, rule Rule) {
	if !d.want(n, Text, p) {
		return
	}
	err := error(nil)
	if rule.Text != nil {
		err = rule.Text(n.Text)
	}
	if err == nil {
		err = v.Addr().Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(n.Text))
	}
	switch {
	case err != nil && rule.Instead != "":
		v.SetZero()
		d.warn(p, "%w; %s", err, rule.Instead)
	case err != nil:
		d.add(p, "%w", err)
	}
}

func (d *Decoder) time(n *Node, v reflect.Value, p place) {
	if !d.want(n, Text, p) {
		return
	}
	t, err := time.Parse(time.RFC3339, n.Text)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		d.add(p, "%s is no time: write it as 2006-01-02T15:04:05Z", Quote(n.Text))
		return
	}
	v.Set(reflect.ValueOf(t))
}

func (d *Decoder) list(n *Node, v reflect.Value, p place) {
	if len(n.Items) == 0 {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.Items), len(n.Items))
	for i, item := range n.Items {
		d.value(item, out.Index(i), p.item(i, item.Line), Rule{})
	}
	v.Set(out)
}

func (d *Decoder) mapping(n *Node, v reflect.Value, p place) {
	if len(n.Fields) == 0 {
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.Fields))
	for _, f := range n.Fields {
		key := reflect.ValueOf(f.Name)
		if out.MapIndex(key).IsValid() {
			d.add(p.key(f), "is given twice")
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		d.value(f.Value, elem, p.key(f), Rule{})
		out.SetMapIndex(key, elem)
	}
	v.Set(out)
}

func (d *Decoder) structure(n *Node, v reflect.Value, p place) {
	fields := d.types.fields(v.Type())
	given := make(map[string]bool, len(n.Fields)) // whether there is a value
	for _, f := range n.Fields {
		at := p.field(f.Name, f.Line)
		if _, twice := given[f.Name]; twice {
			d.add(at, "is given twice")
			continue
		}
		given[f.Name] = f.Value.Kind != Null
		rule := d.rule(at)
		index, known := fields.index[f.Name]
		switch {
		case rule.Refused != "":
			d.add(at, "%s", rule.Refused)
		case !known && rule.Shape != nil:
			d.retired(f.Value, rule, at)
		case !known && rule.Ignored:
		case !known:
			d.unknown(f, fields, at)
		case f.Value.Kind != Null:
			d.value(f.Value, v.FieldByIndex(index), at, rule)
		}
	}
	d.required(fields, given, p)
}

// required reports the fields of the struct at p that are missing.
func (d *Decoder) required(fields *structFields, given map[string]bool, p place) {
	for _, name := range fields.required {
		if !given[name] && !d.rule(p.field(name, p.line)).Optional {
			d.add(p.field(name, p.line), "is required")
		}
	}
}

// add notes what is wrong with the value at p.
func (d *Decoder) add(p place, format string, args ...any) {
	d.Note(&Error{Field: p.at, Line: p.line, Err: fmt.Errorf(format, args...)})
}

func (d *Decoder) warn(p place, format string, args ...any) {
	d.Warnings.Note(&Error{Field: p.at, Line: p.line, Err: fmt.Errorf(format, args...)})
}

func (d *Decoder) rule(p place) Rule {
	if d.Rules == nil {
		return Rule{}
	}
	return d.Rules(p.row)
}

// unknown reports a field that does not exist, and the one that was meant
// when only the case differs.
func (d *Decoder) unknown(f Field, fields *structFields, p place) {
	hint := ""
	for name := range fields.index {
		if strings.EqualFold(name, f.Name) {
			hint = ": did you mean " + name + "?"
		}
	}
	d.add(p, "unknown field%s", hint)
}

// retired checks the value of a field that has no Go field and keeps it.
func (d *Decoder) retired(n *Node, rule Rule, p place) {
	if n.Kind == Null {
		return
	}
	d.value(n, reflect.New(rule.Shape).Elem(), p, rule)
	d.warn(p, "%s", rule.Warning)
	d.Retired = append(d.Retired, Retired{p.row, p.at, n})
}
