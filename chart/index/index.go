package index

import (
	"errors"
	"io"
	"iter"
	"time"
)

var errTODO = errors.New("not done yet")

// An Entry is one version of a chart.
type Entry struct {
	Name        string
	Version     string // as it is spelled
	AppVersion  string
	Description string
	Type        string // application, library or ""
	Deprecated  bool
	Created     time.Time // zero when it is not told
	Digest      string    // sha256 in hex or sha256:HEX, "" when it is not told
	URLs        []string  // where its archive is, as they are spelled
	Line        int       // of the index, where the entry begins
}

// Entries returns the versions of the named chart, in the order of the index.
// What is malformed is passed over: see [Check]. The error, the last element,
// is that of r or tells that r is no index.
func Entries(r io.Reader, name string) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { yield(Entry{}, errTODO) }
}

// A Summary is what [Check] found.
type Summary struct {
	Charts, Versions int
	// Sum is the same for indexes that say the same: whatever the order of charts
	// and versions, the field generated, and how they are spelled.
	Sum          string
	Skipped      []Malformed // the first 100
	SkippedTotal int
}

// A Malformed is an entry that nobody can use (reference A12).
type Malformed struct {
	Chart, Version string
	Line           int
	Problem        string
}

// Check reads all of an index. Errors are those of r and tell that r is no index.
func Check(r io.Reader) (Summary, error) { return Summary{}, errTODO }

// Select returns the version that want, a version or a range, selects among
// entries (reference A13): one that is spelled like it, or the highest within
// the range; "" and * are the highest that is no pre-release. Of versions that
// differ in build metadata alone the last created counts.
//
// The error wraps fs.ErrNotExist when there is none.
func Select(entries iter.Seq2[Entry, error], want string) (Entry, error) { return Entry{}, errTODO }
