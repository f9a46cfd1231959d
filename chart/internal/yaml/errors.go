package yaml

import (
	"fmt"
	"unicode/utf8"
)

// An Error tells why a document cannot be read.
type Error struct {
	Line    int    // from 1
	Problem string // at most 40 bytes of the document, quoted
}

// Error returns "line LINE: PROBLEM".
func (e *Error) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Problem) }

// quoteMax is how many bytes of a document an error quotes.
const quoteMax = 40

// quote returns the beginning of text in quotes.
func quote(text []byte) string {
	if len(text) <= quoteMax {
		return fmt.Sprintf("%q", text)
	}
	n := quoteMax
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return fmt.Sprintf("%q…", text[:n])
}

// fail ends the reading with an error at the current line; the first one counts.
func (r *Reader) fail(problem string) bool { return r.failAt(r.line, problem) }

func (r *Reader) failAt(line int, problem string) bool {
	if r.err == nil {
		r.err = &Error{Line: line, Problem: problem}
	}
	return false
}

// failHere is fail with the text that comes next.
func (r *Reader) failHere(problem string) bool {
	p := r.pos
	for p < r.end && p < r.pos+quoteMax+1 && breakLen(r.buf, p) == 0 {
		p++
	}
	if p == r.pos && p == r.end {
		return r.fail(problem + ", found the end of the document")
	}
	return r.fail(problem + ", found " + quote(r.buf[r.pos:p]))
}
