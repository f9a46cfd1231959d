package index

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"io"
)

// A Summary is the result of [Check].
type Summary struct {
	Charts   int // names under entries
	Versions int // usable ones
	// Sum is the same for indexes that differ only in the order of charts and
	// versions and in the field generated.
	Sum          string
	Skipped      []Malformed // the first 100
	SkippedTotal int
}

// A Malformed is an entry that cannot be used (reference A12). Its texts may contain any
// bytes, but are short.
type Malformed struct {
	Chart, Version string
	Line           int
	Problem        string
}

// skippedLimit is the number of malformed entries that a summary names.
const skippedLimit = 100

// Check reads all of an index. Errors are those of r, or say that r is not an index.
func Check(r io.ReadSeeker) (Summary, error) {
	var s Summary
	sum := new(sum)
	err := walk(r, &visitor{
		begin:     func() { s, *sum = Summary{}, [4]uint64{} },
		chart:     func(string) bool { s.Charts++; return true },
		malformed: func(chart string, line int, problem error) { s.skip(Entry{Name: chart, Line: line}, problem) },
		version: func(chart string, v version) error {
			if e, problem := v.entry(chart); problem != nil {
				s.skip(e, problem)
			} else {
				s.Versions++
			}
			return nil
		},
		sum: sum,
	})
	if err != nil {
		return Summary{}, err
	}
	s.Sum = sum.String()
	return s, nil
}

func (s *Summary) skip(e Entry, problem error) {
	if s.SkippedTotal++; len(s.Skipped) < skippedLimit {
		s.Skipped = append(s.Skipped, Malformed{Chart: truncate(e.Name), Version: truncate(e.Version), Line: e.Line, Problem: problem.Error()})
	}
}

// A sum distinguishes indexes. It adds the digests of their parts, in four lanes, so that
// the order of the parts does not matter. It does not resist an author who constructs two
// indexes with the same sum: such an author might as well publish neither.
type sum [4]uint64

// add adds the digest of a part.
func (s *sum) add(h hash.Hash) {
	digest := h.Sum(nil)
	for i := range s {
		s[i] += binary.LittleEndian.Uint64(digest[8*i:])
	}
}

// String returns a digest of the sum.
func (s *sum) String() string {
	var all []byte
	for _, lane := range s {
		all = binary.LittleEndian.AppendUint64(all, lane)
	}
	digest := sha256.Sum256(all)
	return "sha256:" + hex.EncodeToString(digest[:])
}
