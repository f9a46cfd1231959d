package index

import (
	"bytes"
	"io"
)

// A Summary is what [Check] found.
type Summary struct {
	Charts   int // names under entries
	Versions int // that can be used
	// Sum is the same for indexes that say the same: whatever the order of charts
	// and versions, the field generated, and how they are spelled.
	Sum          string
	Skipped      []Malformed // the first 100
	SkippedTotal int
}

// A Malformed is an entry that nobody can use (reference A12). Its texts may
// hold anything but are short.
type Malformed struct {
	Chart, Version string
	Line           int
	Problem        string
}

// skippedLimit is how many malformed entries a summary names.
const skippedLimit = 100

// Check reads all of an index. Errors are those of r and tell that r is no index.
func Check(r io.Reader) (Summary, error) {
	var s Summary
	sum := new(sum)
	d := open(r)
	err := d.walk(visitor{
		field: func(key []byte, value *record) error {
			if !bytes.Equal(key, []byte("generated")) {
				sum.add("field", key, value)
			}
			return nil
		},
		chart:  func([]byte) bool { s.Charts++; return true },
		oddity: func(chart []byte, line int, problem error) { s.skip(Entry{Name: string(chart), Line: line}, problem) },
		version: func(chart []byte, value *record) error {
			e, problem := value.entry(chart)
			sum.add("version", chart, value)
			if problem != nil {
				s.skip(e, problem)
			} else {
				s.Versions++
			}
			return nil
		},
	})
	if err != nil {
		return Summary{}, err
	}
	s.Sum = sum.String()
	return s, nil
}

func (s *Summary) skip(e Entry, problem error) {
	if s.SkippedTotal++; len(s.Skipped) < skippedLimit {
		s.Skipped = append(s.Skipped, Malformed{Chart: cut([]byte(e.Name)), Version: cut([]byte(e.Version)), Line: e.Line, Problem: problem.Error()})
	}
}
