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

// A Fact is what must hold for one field of an object. The admission rules of
// a kind are a table of them.
type Fact struct {
	At    string // path of the value that is checked, such as spec.items[].name
	Field string // below At, the field that is to blame; "" for the value itself

	check func(reflect.Value) error
}

// Value returns the fact that checks, in order, say nothing about the value at
// a path. Values behind a pointer that is nil are not checked.
func Value[T any](at string, checks ...func(T) error) Fact {
	return Fact{At: at, check: func(v reflect.Value) error {
		if reflect.TypeFor[T]().Kind() == reflect.Pointer {
			v = v.Addr()
		}
		for _, check := range checks {
			if err := check(v.Interface().(T)); err != nil {
				return err
			}
		}
		return nil
	}}
}

// Related returns a fact about a field that depends on others: check sees the
// struct around them, the one at a path.
func Related[T any](at, field string, check func(*T) error) Fact {
	f := Value(at, check)
	f.Field = field
	return f
}

// Examine notes which facts do not hold for the value that v points to, in
// their order. It passes over fields that a finding of f or of before names.
func (f *Findings) Examine(v any, facts []Fact, before ...*Findings) {
	before = append(slices.Clip(before), f)
	for _, fact := range facts {
		Each(reflect.ValueOf(v), fact.At, "", func(v reflect.Value, at string) {
			at = join(at, fact.Field)
			if v.Kind() == reflect.Pointer {
				if v.IsNil() {
					return
				}
				v = v.Elem()
			}
			if len(f.Errors) > maxFindings {
				return // more are not noted
			}
			for _, other := range before {
				if slices.ContainsFunc(other.Errors, func(e *Error) bool { return e.Field == at }) {
					return
				}
			}
			f.Check(at, fact.check(v))
		})
	}
}

// Fill sets the fields of what v points to that are missing to their defaults,
// by paths as those of a [Fact]. It does not write to others.
func Fill(v any, defaults map[string]any) {
	for at, value := range defaults {
		Each(reflect.ValueOf(v), at, "", func(v reflect.Value, _ string) {
			if v.IsZero() {
				v.Set(reflect.ValueOf(value).Convert(v.Type()))
			}
		})
	}
}

// Each calls do with the fields at a path below v, which is at another path, and where each of them is.
func Each(v reflect.Value, path, at string, do func(v reflect.Value, at string)) {
	if path == "" {
		do(v, at)
		return
	}
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	name, path, _ := strings.Cut(path, ".")
	name, list := strings.CutSuffix(name, "[]")
	index, known := fieldsOf(v.Type()).index[name]
	if !known {
		panic("document: no field " + join(at, name)) // of a table, not of a document
	}
	v, at = v.FieldByIndex(index), join(at, name)
	if !list {
		Each(v, path, at, do)
		return
	}
	for i := range v.Len() {
		Each(v.Index(i), path, at+"["+strconv.Itoa(i)+"]", do)
	}
}

// The forms of names (RFC 1123).
var (
	subdomainForm = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	labelForm     = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
)

// CheckName says what is wrong with the name of an object.
func CheckName(name string) error {
	switch {
	case name == "":
		return errors.New("is required")
	case !Subdomain(name):
		return fmt.Errorf("%s is no name: write at most 253 lower-case letters, digits, '-' and '.', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// CheckNamespace says what is wrong with the name of a namespace.
func CheckNamespace(name string) error {
	if len(name) > 63 || !labelForm.MatchString(name) {
		return fmt.Errorf("%s is no namespace: write at most 63 lower-case letters, digits and '-', "+
			"with a letter or digit at both ends", Quote(name))
	}
	return nil
}

// Subdomain reports whether name has the form of a DNS name in lower case.
func Subdomain(name string) bool { return len(name) <= 253 && subdomainForm.MatchString(name) }

var durationForm = regexp.MustCompile(`^([0-9]+(\.[0-9]+)?(ms|s|m|h))+$`)

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
	// The units µs and ns of the Go form are not in the API's.
	sign, n := "", d
	if d < 0 {
		sign, n = "-", -d
	}
	return sign + "0." + strings.TrimRight(fmt.Sprintf("%06d", int64(n)), "0") + "ms"
}
