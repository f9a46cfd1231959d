package index

import (
	"io"
	"iter"
)

// All returns the versions of all charts, in the order of the index. What is
// malformed is passed over: see [Check]. The error, the last element, is that
// of r or tells that r is no index.
func All(r io.Reader) iter.Seq2[Entry, error] {
	return open(r).matching(func([]byte) bool { return true })
}
