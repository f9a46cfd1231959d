package source

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// CanonicalSpec returns the spec of obj, defaults filled in, as compact JSON
// with a stable order of fields: equal specs give equal bytes, however they
// were written. It is nil for an object that has no JSON encoding.
func CanonicalSpec(obj Object) []byte {
	text, err := json.Marshal(obj)
	if err != nil {
		return nil
	}
	full := blank(obj)
	if json.Unmarshal(text, full) != nil {
		return nil
	}
	Default(full)
	n, err := tree(full)
	if err != nil {
		return nil
	}
	spec := n.At("spec")
	if spec == nil {
		return []byte("{}")
	}
	return spec.AppendJSON(nil)
}

// blank returns an object of the type of obj that holds nothing.
func blank(obj Object) Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(Object)
}

// AssignGeneration sets metadata.generation of an object whose document says
// none: 1 at first sight; otherwise that of saved, the object as it was last
// time, plus 1 when the spec has changed since. saved may be nil.
func AssignGeneration(obj, saved Object) {
	m := &obj.Head().Metadata
	switch {
	case m.Generation != 0:
	case saved == nil || saved.Head().Metadata.Generation == 0:
		m.Generation = 1
	case sameSpec(obj, saved) || bytes.Equal(CanonicalSpec(obj), CanonicalSpec(saved)):
		m.Generation = saved.Head().Metadata.Generation
	default:
		m.Generation = saved.Head().Metadata.Generation + 1
	}
}

// sameSpec reports whether the specs of both are the same, as they are. Others
// may still be equal.
func sameSpec(a, b Object) bool {
	x, y := reflect.ValueOf(a).Elem(), reflect.ValueOf(b).Elem()
	if x.Type() != y.Type() || a.Head().APIVersion != b.Head().APIVersion {
		return false
	}
	s, t := x.FieldByName("Spec"), y.FieldByName("Spec")
	return s.IsValid() && reflect.DeepEqual(s.Interface(), t.Interface())
}
