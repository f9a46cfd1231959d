package document

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Fact is a statement about one field of a kind, in a table of such statements.
type Fact struct {
	At    string        // path of the value that is checked, such as spec.items[].name
	Field string        // below At, the field that errors name; "" for the value itself
	Must  []Requirement // requirements on the value, in order

	Default  any                // value of a missing field; nil for none
	Only     string             // the only version that has the field; "" for all versions
	Optional string             // version in which the field may be missing even if its tag makes it required
	Text     func(string) error // checks the text of the field in documents
	Shape    reflect.Type       // of a field that the Go type does not have: see [Rule]
	Warning  string             // about such a field
}

// A Requirement is one requirement on a value. If Required, Refused and Schema are all zero, only
// Go code can check it.
type Requirement struct {
	When     []Condition                             // the requirement applies if all of them hold
	Required bool                                    // the value must be set
	Refused  bool                                    // the value must not be set
	Schema   map[string]any                          // keywords of JSON Schema for the value
	Message  string                                  // the defect, unless Check returns it
	Check    func(object, value reflect.Value) error // nil if another function checks the value
}

// A Condition is about another field of the object. It holds if the text of the field is
// one of Is or, if Is is nil, if the field is set.
type Condition struct {
	At  string   // path without lists
	Is  []string // "" also matches a missing field
	Not bool     // negates the condition
}

func (c Condition) holds(object reflect.Value) bool {
	holds := slices.Contains(c.Is, "")
	for _, v := range At(object, c.At) {
		holds = slices.Contains(c.Is, v.String()) || c.Is == nil && isSet(v.Value)
	}
	return holds != c.Not
}

func isSet(v reflect.Value) bool {
	return !v.IsZero() && (v.Kind() != reflect.Slice || v.Len() > 0)
}

// violation returns what is wrong with a value of the object, or nil.
func (m *Requirement) violation(object, v reflect.Value) error {
	set := isSet(v)
	if v.Kind() == reflect.Pointer && !set && !m.Required || m.Required && set || m.Refused && !set ||
		slices.ContainsFunc(m.When, func(c Condition) bool { return !c.holds(object) }) {
		return nil
	}
	if v.Kind() == reflect.Pointer && set {
		v = v.Elem()
	}
	if m.Check != nil {
		return m.Check(object, v)
	}
	if m.Message != "" {
		return errors.New(m.Message)
	}
	return nil
}

// Check returns a requirement that a value satisfies if check returns nil for it.
func Check[T any](check func(T) error) Requirement {
	return Requirement{Check: func(_, v reflect.Value) error {
		if reflect.TypeFor[T]().Kind() == reflect.Pointer {
			v = v.Addr()
		}
		return check(v.Interface().(T))
	}}
}

// Value returns a fact about the value at a path, which must pass all checks, in order.
// Values behind a nil pointer are not checked.
func Value[T any](at string, checks ...func(T) error) Fact {
	fact := Fact{At: at}
	for _, check := range checks {
		fact.Must = append(fact.Must, Check(check))
	}
	return fact
}

// Related returns a fact about a field that depends on others: check receives the struct at
// a path, which contains them.
func Related[T any](at, field string, check func(*T) error) Fact {
	f := Value(at, check)
	f.Field = field
	return f
}

// Examine notes the facts that do not hold for the value that v points to, in their order.
// It skips fields that a finding of f or of before names.
func (f *Findings) Examine(v any, facts []Fact, before ...*Findings) {
	before, object := append(slices.Clip(before), f), reflect.ValueOf(v)
	for _, fact := range facts {
		if fact.Must == nil || fact.Shape != nil {
			continue
		}
		for _, v := range At(object, fact.At) {
			at := join(v.Path, fact.Field)
			named := func(f *Findings) bool {
				return slices.ContainsFunc(f.Errors, func(e *Error) bool { return e.Field == at })
			}
			for i := range fact.Must {
				if len(f.Errors) > maxFindings || slices.ContainsFunc(before, named) {
					break // Note would drop more
				}
				f.Check(at, fact.Must[i].violation(object, v.Value))
			}
		}
	}
}

// Fill sets missing fields of the value that v points to to the defaults in facts. It does
// not write to other fields.
func Fill(v any, facts []Fact) {
	for _, fact := range facts {
		if fact.Default == nil {
			continue
		}
		for _, v := range At(reflect.ValueOf(v), fact.At) {
			if v.IsZero() {
				v.Set(reflect.ValueOf(fact.Default).Convert(v.Type()))
			}
		}
	}
}

// A LocatedField is a field of an object, with its path.
type LocatedField struct {
	reflect.Value
	Path string
}

// At returns the fields of object at a path, such as spec.items[].name.
func At(object reflect.Value, path string) []LocatedField {
	return LocatedField{Value: object}.at(path)
}

func (l LocatedField) at(path string) (all []LocatedField) {
	if path == "" {
		return []LocatedField{l}
	}
	v := l.Value
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	name, path, _ := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	index, known := FieldsOf(v.Type()).Index[name]
	if !known {
		panic("document: no field " + join(l.Path, name)) // a mistake in a table, not in a document
	}
	field := LocatedField{v.FieldByIndex(index), join(l.Path, name)}
	if !list {
		return field.at(path)
	}
	for i := range field.Len() {
		all = append(all, LocatedField{field.Index(i), field.Path + "[" + strconv.Itoa(i) + "]"}.at(path)...)
	}
	return all
}

// The forms of names (RFC 1123).
const (
	DNSLabel = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	DNSName  = DNSLabel + `(\.` + DNSLabel + `)*`
)

var (
	subdomainForm = regexp.MustCompile("^" + DNSName + "$")
	labelForm     = regexp.MustCompile("^" + DNSLabel + "$")
)

// CheckName returns what is wrong with the name of an object, or nil.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is required")
	case !IsSubdomain(name):
		return fmt.Errorf("%s is no name: write at most 253 lower-case letters, digits, '-' and '.', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// CheckNamespace returns what is wrong with the name of a namespace, or nil.
func CheckNamespace(name string) error {
	if len(name) > 63 || !labelForm.MatchString(name) {
		return fmt.Errorf("%s is no namespace: write at most 63 lower-case letters, digits and '-', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// IsSubdomain reports whether name has the form of a DNS name in lower case.
func IsSubdomain(name string) bool { return len(name) <= 253 && subdomainForm.MatchString(name) }

// DurationForm is the form of time spans.
const DurationForm = `^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`

var durationForm = regexp.MustCompile(DurationForm)

// ParseDuration reads a time span as an API server accepts it: an unsigned
// sequence of decimal numbers with the units ms, s, m and h.
func ParseDuration(text string) (time.Duration, error) {
	if !durationForm.MatchString(text) {
		return 0, fmt.Errorf("%s is no duration: write unsigned numbers with the units ms, s, m and h, such as 1m30s", Quote(text))
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, fmt.Errorf("%s is too long: the limit is 292 years", Quote(text))
	}
	return d, nil
}

// FormatDuration returns d in a form that [ParseDuration] accepts when d is not negative.
func FormatDuration(d time.Duration) string {
	if d <= -time.Millisecond || d == 0 || d >= time.Millisecond {
		return d.String()
	}
	// The API does not know the units µs and ns of the Go form.
	return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'f', -1, 64) + "ms"
}
