package source

import (
	"errors"
	"io"
)

// A Set is what a stream of documents holds.
type Set struct {
	Objects  []Object          // in the order of the documents
	Secrets  map[string]Secret // Secret documents by NAMESPACE/NAME
	Skipped  int               // documents of foreign kinds
	Warnings []error           // deprecated fields, conflicting refs: each a *DocumentError
}

// A DocumentError says where an object is wrong and which rule it breaks.
type DocumentError struct {
	File     string // name of the file, "-" for standard input
	Document int    // 1-based
	Object   string // KIND/NAMESPACE/NAME as far as known
	Field    string // path of the field, for example spec.interval
	Err      error
}

func (e *DocumentError) Error() string { return e.Err.Error() }

// Unwrap returns the rule.
func (e *DocumentError) Unwrap() error { return e.Err }

// Decode reads the documents of file into s. The error joins one
// *DocumentError for each defect; good objects are in s all the same.
func (s *Set) Decode(file string, r io.Reader) error { return errors.ErrUnsupported }
