package source

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// A DocumentError says where an object is wrong and which rule it breaks.
type DocumentError struct {
	File     string // name of the file, "-" for standard input; "" for an object made in Go
	Document int    // 1-based, 0 when it is not about one document
	Line     int    // of the file, 1-based; 0 when unknown
	Object   string // KIND/NAMESPACE/NAME as far as known
	Field    string // path of the field, for example spec.interval
	Err      error  // the rule
}

// Error returns FILE:LINE: document N: OBJECT: FIELD: RULE, without the parts
// that are not known. Control characters are quoted.
func (e *DocumentError) Error() string {
	var parts []string
	switch {
	case e.File != "" && e.Line > 0:
		parts = append(parts, fmt.Sprintf("%s:%d", e.File, e.Line))
	case e.File != "":
		parts = append(parts, e.File)
	}
	if e.Document > 0 {
		parts = append(parts, fmt.Sprintf("document %d", e.Document))
	}
	for _, s := range []string{e.Object, e.Field} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	return printable(strings.Join(append(parts, e.Err.Error()), ": "))
}

// Unwrap returns the rule.
func (e *DocumentError) Unwrap() error { return e.Err }

// findings collects defects or warnings of one object, in order.
type findings struct{ errs []*DocumentError }

// maxFindings bounds what is noted about one object.
const maxFindings = 100

// add notes what is wrong with a field.
func (f *findings) add(field, format string, args ...any) {
	f.note(&DocumentError{Field: field, Err: fmt.Errorf(format, args...)})
}

// note notes e, unless enough was noted already.
func (f *findings) note(e *DocumentError) {
	switch n := len(f.errs); {
	case n < maxFindings:
		f.errs = append(f.errs, e)
	case n == maxFindings:
		f.errs = append(f.errs, &DocumentError{Err: fmt.Errorf("has more than %d defects", maxFindings)})
	}
}

// about reports whether something was noted about the field or about one
// above or below it.
func (f *findings) about(field string) bool {
	for _, e := range f.errs {
		if e.Field == field || below(e.Field, field) || below(field, e.Field) {
			return true
		}
	}
	return false
}

// adopt adds what was found about fields that nothing was noted about.
func (f *findings) adopt(rules *findings) {
	known := findings{f.errs[:len(f.errs):len(f.errs)]}
	for _, e := range rules.errs {
		if !known.about(e.Field) {
			f.note(e)
		}
	}
}

// below reports whether the field at path is inside the one at parent.
func below(path, parent string) bool {
	rest, found := strings.CutPrefix(path, parent)
	return found && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// errors returns what was noted about the object called name.
func (f *findings) errors(name string) []error {
	var out []error
	for _, e := range f.errs {
		e.Object = name
		out = append(out, e)
	}
	return out
}

// quote quotes a value of a document for an error, shortened to 80 bytes.
func quote(s string) string {
	if len(s) > 80 {
		s = strings.ToValidUTF8(s[:77], "") + "..."
	}
	return strconv.Quote(s)
}

// printable replaces control characters, so that a document cannot drive a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, s)
}
