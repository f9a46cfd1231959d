package source

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// A spot is where a document is.
type spot struct {
	file     string
	line     int
	document int // 1-based
}

func (s spot) String() string { return fmt.Sprintf("%s:%d (document %d)", s.file, s.line, s.document) }

// file notes where an object is, and refuses one that is in the set already. The
// error calls it shown.
func (s *Set) file(name, shown string, here spot) error {
	if there, found := s.places[name]; found {
		return &DocumentError{
			File: here.file, Document: here.document, Line: here.line, Object: shown,
			Err: fmt.Errorf("is in %s already: remove one of the two", there),
		}
	}
	if s.places == nil {
		s.places = make(map[string]spot)
	}
	s.places[name] = here
	return nil
}

// Add adds what other holds, as if its streams had been decoded into s after
// those of s: of two documents of one object the one in s stays, and the error
// joins a *DocumentError for each that names both places. They share objects
// and Secrets afterwards.
func (s *Set) Add(other *Set) error {
	var errs []error
	admit := func(name, shown string) bool {
		err := s.file(name, shown, other.places[name])
		errs = append(errs, err)
		return err == nil
	}
	for _, obj := range other.Objects {
		if admit(ReferenceTo(obj).String(), obj.Head().String()) {
			s.Objects = append(s.Objects, obj)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.Secrets)) {
		if admit("Secret/"+name, "Secret/"+name) {
			put(&s.Secrets, name, other.Secrets[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(other.accounts)) {
		if admit("ServiceAccount/"+name, "ServiceAccount/"+name) {
			put(&s.accounts, name, other.accounts[name])
		}
	}
	for name, why := range other.defective {
		if s.defective[name] == nil {
			put(&s.defective, name, why)
		}
	}
	s.Skipped += other.Skipped
	s.Others = append(s.Others, other.Others...)
	s.Warnings = append(s.Warnings, other.Warnings...)
	return errors.Join(errs...)
}

// put adds to a map, which it makes when there is none.
func put[V any](m *map[string]V, key string, value V) {
	if *m == nil {
		*m = make(map[string]V)
	}
	(*m)[key] = value
}
