package journal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Query selects entries; zero fields select all.
type Query struct {
	Object   source.Reference // also with empty parts; the kind as [source.ParseKind] reads it
	Severity string           // at least: trace, info, error; default info
	Since    time.Time
	After    int64 // only those with a higher ID
	Limit    int   // the newest; 0 for all

	Select func(*Entry) bool // what else has to hold, before entries are counted; nil for nothing
}

// trace is the severity that is least.
const trace = "trace"

// ranks orders severities.
var ranks = map[string]int{trace: 1, "info": 2, "error": 3}

// A filter is a query that was checked.
type filter struct {
	Query
	least int
	parts [][]byte // that the text of each entry has which is selected
}

func (q Query) filter() (*filter, error) {
	f := &filter{Query: q, least: ranks["info"]}
	if q.Severity != "" {
		least, known := ranks[q.Severity]
		if !known {
			return nil, fmt.Errorf("journal: severity %q is not known: use trace, info or error", q.Severity)
		}
		f.least = least
	}
	if q.Object.Kind != "" {
		kind, known := source.ParseKind(q.Object.Kind)
		if !known {
			return nil, fmt.Errorf("journal: kind %q is not known", q.Object.Kind)
		}
		f.Object.Kind = kind
	}
	f.part("name", q.Object.Name)
	f.part("namespace", q.Object.Namespace)
	if f.least == ranks["error"] {
		f.part("severity", "error")
	}
	return f, nil
}

// part has entries without a field of that value passed over before they are decoded.
func (f *filter) part(field, value string) {
	if value != "" {
		text, _ := json.Marshal(value)
		f.parts = append(f.parts, append([]byte(`"`+field+`":`), text...))
	}
}

// decode returns the entry in a line of a segment. It is false when there is none, or none
// that is selected.
func (f *filter) decode(line []byte, segment int64) (e Entry, ok bool) {
	for _, part := range f.parts {
		if !bytes.Contains(line, part) {
			return e, false
		}
	}
	if json.Unmarshal(line, &e) != nil || !valid(e, segment) {
		return Entry{}, false
	}
	return e, f.selects(&e) && (f.Select == nil || f.Select(&e))
}

func (f *filter) selects(e *Entry) bool {
	o := &e.InvolvedObject
	switch {
	case ranks[e.Severity] < f.least, e.ID <= f.After, e.Timestamp.Before(f.Since):
		return false
	case f.Object.Name != "" && f.Object.Name != o.Name, f.Object.Namespace != "" && f.Object.Namespace != o.Namespace:
		return false
	case f.Object.Kind == "":
		return true
	}
	kind, _ := source.ParseKind(o.Kind)
	return kind == f.Object.Kind
}

// IDs are below maxID, and those of a segment less than maxSpan above its
// first, so that a defective line cannot use them up.
const (
	maxID   = 1 << 62
	maxSpan = 1 << 50
)

// valid reports whether an entry is one that was written to the segment.
func valid(e Entry, segment int64) bool {
	return e.ID >= segment && e.ID-segment < maxSpan && ranks[e.Severity] > 0
}

// lines yields the whole lines of text, and returns the length of them all.
func lines(text []byte, yield func(line []byte) bool) (n int) {
	for {
		i := bytes.IndexByte(text[n:], '\n')
		if i < 0 || !yield(text[n:n+i]) {
			return n
		}
		n += i + 1
	}
}
