package source

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// A strict decoder fills Go values from nodes as an API server's schema would
// have them: case-sensitive, no unknown and no duplicate fields, no
// conversions between types. It goes on after a defect.
type strict struct {
	types structTypes
	kind  *kind // nil outside of the table of kinds
	in    versions
	findings
	warnings findings
	legacy   []legacyField // deprecated fields without a Go field, in order
}

// A legacyField is the value of a deprecated field.
type legacyField struct {
	row      *fieldRow
	at, text string
}

// A place is where a value is, as people read it and as the field table spells it.
type place struct{ at, row string }

func (p place) field(name string) place {
	if p.at == "" {
		return place{name, name}
	}
	return place{p.at + "." + name, p.row + "." + name}
}

func (p place) key(name string) place { return place{p.at + "[" + name + "]", p.row + "[]"} }

func (p place) item(i int) place { return p.key(strconv.Itoa(i)) }

var (
	durationType = reflect.TypeFor[Duration]()
	timeType     = reflect.TypeFor[time.Time]()
	rawType      = reflect.TypeFor[json.RawMessage]()
)

// value decodes n into v.
func (s *strict) value(n *node, v reflect.Value, p place) {
	switch v.Type() {
	case durationType:
		s.duration(n, v, p)
		return
	case timeType:
		s.time(n, v, p)
		return
	case rawType:
		v.SetBytes(n.appendJSON(nil))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		s.value(n, v.Elem(), p)
	case reflect.Struct:
		if s.want(n, mapNode, p) {
			s.structure(n, v, p)
		}
	case reflect.Map:
		if s.want(n, mapNode, p) {
			s.mapping(n, v, p)
		}
	case reflect.Slice:
		if s.want(n, listNode, p) {
			s.list(n, v, p)
		}
	default:
		s.scalar(n, v, p)
	}
}

// want reports a value of the wrong type.
func (s *strict) want(n *node, kind nodeKind, p place) bool {
	switch {
	case n.kind == kind && !(kind == textNode && n.word):
		return true
	case kind == textNode && n.word:
		s.add(p.at, "must be a string, but this word is a boolean in YAML: put it in quotes")
	case kind == textNode && (n.kind == numberNode || n.kind == boolNode):
		s.add(p.at, "must be a string, not %s: put it in quotes", n.kind)
	default:
		s.add(p.at, "must be %s, not %s", kind, n.kind)
	}
	return false
}

func (s *strict) scalar(n *node, v reflect.Value, p place) {
	switch v.Kind() {
	case reflect.String:
		if s.want(n, textNode, p) {
			v.SetString(n.text)
		}
	case reflect.Bool:
		if n.kind == textNode && n.word {
			v.SetBool(strings.ContainsAny(n.text[:1], "yY") || strings.EqualFold(n.text, "on"))
		} else if s.want(n, boolNode, p) {
			v.SetBool(n.text == "true")
		}
	case reflect.Int64:
		if !s.want(n, numberNode, p) {
			return
		}
		i, err := strconv.ParseInt(n.text, 10, 64)
		if err != nil {
			s.add(p.at, "must be an integer of 64 bits")
			return
		}
		v.SetInt(i)
	default:
		s.add(p.at, "has the Go type %s, which documents cannot hold", v.Type())
	}
}

func (s *strict) duration(n *node, v reflect.Value, p place) {
	if !s.want(n, textNode, p) {
		return
	}
	parse := ParseDuration
	if strings.HasSuffix(p.at, ".timeout") {
		parse = parseTimeout
	}
	d, err := parse(n.text)
	if err != nil {
		s.add(p.at, "%w", err)
	}
	v.SetInt(int64(d))
}

func (s *strict) time(n *node, v reflect.Value, p place) {
	if !s.want(n, textNode, p) {
		return
	}
	t, err := time.Parse(time.RFC3339, n.text)
	if t = t.UTC(); err != nil || t.Year() < 1 || t.Year() > 9999 {
		s.add(p.at, "%s is no time: write it as 2006-01-02T15:04:05Z", quote(n.text))
		return
	}
	v.Set(reflect.ValueOf(t))
}

func (s *strict) list(n *node, v reflect.Value, p place) {
	if len(n.items) == 0 {
		return
	}
	out := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		s.value(item, out.Index(i), p.item(i))
	}
	v.Set(out)
}

func (s *strict) mapping(n *node, v reflect.Value, p place) {
	if len(n.fields) == 0 {
		return
	}
	out := reflect.MakeMapWithSize(v.Type(), len(n.fields))
	for _, f := range n.fields {
		key := reflect.ValueOf(f.name)
		if out.MapIndex(key).IsValid() {
			s.duplicate(p.key(f.name), f.line)
			continue
		}
		elem := reflect.New(v.Type().Elem()).Elem()
		s.value(f.value, elem, p.key(f.name))
		out.SetMapIndex(key, elem)
	}
	v.Set(out)
}

func (s *strict) duplicate(p place, line int) {
	s.note(&DocumentError{Field: p.at, Line: line, Err: errors.New("is given twice")})
}

func (s *strict) structure(n *node, v reflect.Value, p place) {
	fields := s.types.fields(v.Type())
	seen := make(map[string]bool, len(n.fields))
	for _, f := range n.fields {
		at := p.field(f.name)
		if seen[f.name] {
			s.duplicate(at, f.line)
			continue
		}
		seen[f.name] = f.value.kind != nullNode
		row := s.row(at)
		index, known := fields.index[f.name]
		switch {
		case row != nil && row.in&s.in == 0:
			s.add(at.at, "%s", row.elsewhere(s.kind))
		case !known && row != nil:
			s.deprecated(f.value, row, at)
		case !known:
			s.unknown(f, fields, at)
		case f.value.kind != nullNode:
			s.value(f.value, v.FieldByIndex(index), at)
		}
	}
	s.required(fields, seen, p)
}

// required reports the fields of the struct at p that are missing.
func (s *strict) required(fields *structFields, seen map[string]bool, p place) {
	for _, name := range fields.required {
		if row := s.row(p.field(name)); !seen[name] && (row == nil || row.optional&s.in == 0) {
			s.add(p.field(name).at, "is required")
		}
	}
}

func (s *strict) row(p place) *fieldRow {
	if s.kind == nil {
		return nil
	}
	return rowOf(s.kind.name, p.row)
}

// unknown reports a field that does not exist, and the one that was meant
// when only the case differs.
func (s *strict) unknown(f field, fields *structFields, p place) {
	hint := ""
	for name := range fields.index {
		if strings.EqualFold(name, f.name) {
			hint = ": did you mean " + name + "?"
		}
	}
	s.note(&DocumentError{Field: p.at, Line: f.line, Err: fmt.Errorf("unknown field%s", hint)})
}

// deprecated checks the value of a field that has no Go field and keeps it.
func (s *strict) deprecated(n *node, row *fieldRow, p place) {
	if n.kind == nullNode {
		return
	}
	s.value(n, reflect.New(row.shape).Elem(), p)
	s.warnings.add(p.at, "%s", row.note)
	s.legacy = append(s.legacy, legacyField{row, p.at, n.text})
}

// structFields are the fields of a Go struct by their JSON names.
type structFields struct {
	index    map[string][]int
	required []string // neither omitempty nor omitzero
}

// structTypes remembers the fields of struct types.
type structTypes map[reflect.Type]*structFields

// fields returns the fields of a struct type, those of embedded structs among them.
func (s structTypes) fields(t reflect.Type) *structFields {
	if known := s[t]; known != nil {
		return known
	}
	out := &structFields{index: make(map[string][]int)}
	s[t] = out
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || name == "-" || !f.IsExported() {
			continue
		}
		out.index[name] = f.Index
		if options == "" {
			out.required = append(out.required, name)
		}
	}
	return out
}
