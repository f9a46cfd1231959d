package document

import (
	"reflect"
	"slices"
	"strings"
)

// A Rule is what Go types do not say of a field. The zero Rule is no exception.
type Rule struct {
	Refused  string             // why documents may not have it
	Ignored  bool               // it may be unknown to the Go type, and is skipped then
	Optional bool               // it may be missing although its tag says that it is required
	Text     func(string) error // checks the text of a value that implements [encoding.TextUnmarshaler]; nil for no check
	Instead  string             // what is done with a text that cannot be read; "" makes it a defect, else it is left out with a warning

	// Shape is the type of a field that the Go type does not have. The value is
	// checked and put into Retired, with Warning among the warnings.
	Shape   reflect.Type
	Warning string
}

// A Retired field is one that has a meaning and no Go field.
type Retired struct {
	Path  string // of its [Rule]
	Field string // as errors name it
	Value *Node
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
		if name == "" && options == "inline" {
			s.inline(out, f)
			continue
		}
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

// inline adds the fields of a field of a struct type to those of its struct.
func (s structTypes) inline(out *structFields, f reflect.StructField) {
	inner := s.fields(f.Type)
	for name, index := range inner.index {
		out.index[name] = append(slices.Clone(f.Index), index...)
	}
	out.required = append(out.required, inner.required...)
}
