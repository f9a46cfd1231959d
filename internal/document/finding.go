package document

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/headgate-io/headgate/internal/redact"
)

// An Error is a defect of an object: its location, and the rule that it breaks.
type Error struct {
	File     string `json:"file,omitempty"`     // name of the file, "-" for standard input; "" for an object made in Go
	Document int    `json:"document,omitempty"` // 1-based, 0 if it is not about one document
	Line     int    `json:"line,omitempty"`     // of the file, 1-based; 0 when unknown
	Object   string `json:"object,omitempty"`   // KIND/NAMESPACE/NAME as far as known
	Field    string `json:"field,omitempty"`    // path of the field, for example spec.interval
	Err      error  `json:"-"`                  // the rule
}

// Limits of the parts of an error, in bytes. The name of an object is repeated in all
// errors about it; the text of a rule may repeat a value.
const (
	maxObject = 400
	maxRule   = 4 << 10
)

// Error returns FILE:LINE: document N: OBJECT: FIELD: RULE, without the parts
// that are not known. Control characters are replaced, long names shortened.
func (e *Error) Error() string {
	file, number := e.File, ""
	if file != "" && e.Line > 0 {
		file += ":" + strconv.Itoa(e.Line)
	}
	if e.Document > 0 {
		number = "document " + strconv.Itoa(e.Document)
	}
	parts := []string{file, number, shorten(e.Object, maxObject), e.Field, shorten(e.Err.Error(), maxRule)}
	return printable(strings.Join(slices.DeleteFunc(parts, func(part string) bool { return part == "" }), ": "))
}

// Unwrap returns the rule.
func (e *Error) Unwrap() error { return e.Err }

// Findings collects defects or warnings of one object, in order.
type Findings struct{ Errors []*Error }

// maxFindings is the maximum number of findings about one object.
const maxFindings = 100

// Add notes a defect of a field.
func (f *Findings) Add(field, format string, args ...any) {
	f.Note(&Error{Field: field, Err: fmt.Errorf(format, args...)})
}

// Check notes err about a field, unless it is nil.
func (f *Findings) Check(field string, err error) {
	if err != nil {
		f.Note(&Error{Field: field, Err: err})
	}
}

// AddIf notes a defect of a field if wrong is true.
func (f *Findings) AddIf(wrong bool, field, format string, args ...any) {
	if wrong {
		f.Add(field, format, args...)
	}
}

// Note notes e. After maxFindings it only notes once that there are more.
func (f *Findings) Note(e *Error) {
	switch n := len(f.Errors); {
	case n < maxFindings:
		f.Errors = append(f.Errors, e)
	case n == maxFindings:
		f.Errors = append(f.Errors, &Error{Err: fmt.Errorf("has more than %d defects", maxFindings)})
	}
}

// About reports whether something was noted about the field or about one
// above or below it.
func (f *Findings) About(field string) bool {
	return slices.ContainsFunc(f.Errors, func(e *Error) bool {
		return e.Field == field || isBelow(e.Field, field) || isBelow(field, e.Field)
	})
}

// Adopt adds the findings of rules about fields that f has no findings about.
func (f *Findings) Adopt(rules *Findings) {
	known := Findings{f.Errors[:len(f.Errors):len(f.Errors)]}
	for _, e := range rules.Errors {
		if !known.About(e.Field) {
			f.Note(e)
		}
	}
}

// isBelow reports whether the field at path is inside the one at parent.
func isBelow(path, parent string) bool {
	rest, found := strings.CutPrefix(path, parent)
	return found && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

// ErrorsFor returns the findings as errors about the object called name.
func (f *Findings) ErrorsFor(name string) []error {
	var out []error
	for _, e := range f.Errors {
		e.Object = name
		out = append(out, e)
	}
	return out
}

// Quote quotes a value of a document for an error, shortened to 80 bytes.
func Quote(s string) string { return strconv.Quote(shorten(s, 80)) }

// shorten returns s, or its beginning if it has more than limit bytes.
func shorten(s string, limit int) string {
	const more = "..."
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit-len(more)], "") + more
	}
	return s
}

// printable replaces control characters, so that a document cannot drive a
// terminal, and writes bytes that are not UTF-8 as \xNN.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, redact.Escape(s))
}

// Split returns the errors that err joins, recursively. It returns err itself if err joins
// none, and nil for nil.
func Split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok && err == nil {
		return nil
	}
	if !ok {
		return []error{err}
	}
	var all []error
	for _, err := range joined.Unwrap() {
		all = append(all, Split(err)...)
	}
	return all
}
