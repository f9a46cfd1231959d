package wire

import (
	"fmt"
	"strings"
)

// A selection collects the refs that match a query.
type selection struct {
	RefQuery
	missing map[string]bool // exact names not yet seen
	refs    []Ref
	total   int // refs that the server has named
}

func newSelection(q RefQuery) (*selection, error) {
	if q.MaxRefs == 0 {
		q.MaxRefs = defaultRefs
	}
	if q.MaxBytes == 0 {
		q.MaxBytes = defaultRefBytes
	}
	s := &selection{RefQuery: q, missing: map[string]bool{}}
	for _, name := range q.Exact {
		if !validRef(name) {
			return nil, fmt.Errorf("%.80q is not the name of a ref", name)
		}
		s.missing[name] = true
	}
	for _, p := range q.Prefixes {
		if strings.ContainsAny(p, "\x00\n") || p == "" || len(p) > maxMessage {
			return nil, fmt.Errorf("%.80q is not the start of the name of a ref", p)
		}
	}
	return s, nil
}

// complete reports whether nothing more can match.
func (s *selection) complete() bool {
	return len(s.Exact) > 0 && len(s.Prefixes) == 0 && len(s.missing) == 0
}

// take counts a ref that the server has named, and reports whether it is wanted.
func (s *selection) take(name string) bool {
	s.total++
	return s.matches(name) && validRef(name)
}

func (s *selection) add(ref Ref) error {
	if len(s.refs) == s.MaxRefs {
		return fmt.Errorf("%w: more than %d refs match", ErrLimit, s.MaxRefs)
	}
	delete(s.missing, ref.Name)
	s.refs = append(s.refs, ref)
	return nil
}

// peels reports whether the peeled id of a tag is wanted: that of the last ref.
func (s *selection) peels(tag string) bool {
	n := len(s.refs)
	return s.Peel && n > 0 && s.refs[n-1].Name == tag
}

func (s *selection) matches(name string) bool {
	for _, n := range s.Exact {
		if n == name {
			return true
		}
	}
	for _, p := range s.Prefixes {
		if strings.HasPrefix(name, p) {
			return true
		}
	}
	return len(s.Exact)+len(s.Prefixes) == 0
}
