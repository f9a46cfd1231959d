package yaml

import (
	"errors"
	"io"
)

var errTODO = errors.New("not done yet")

// A Kind is what an [Event] tells of.
type Kind uint8

// The kinds of events.
const (
	Scalar   Kind = iota + 1 // Value and Plain
	MapStart                 // then key, value, key, value …
	MapEnd
	SeqStart // then the elements
	SeqEnd
	Null // a node without text: "key:" and "- "
)

// An Event is one step through a document. Aliases are no events: what their
// anchor stands for comes in their place.
type Event struct {
	Kind  Kind
	Value []byte // of a scalar, its escapes and folds undone; good until the next call
	Plain bool   // a scalar without quotes, which may be a number, a boolean or null
	Tag   string // as it is spelled, "" for none
	Line  int    // where it begins, from 1
}

// Limits bound what a document may cost. The zero value of a field means its default.
type Limits struct {
	Depth   int // of collections within each other; default 100
	Scalar  int // bytes of one scalar; default 1 MiB
	Anchors int // bytes of all that aliases may stand for, and of what they stood for in all: 1 MiB and 16 MiB by default
}

// A Reader takes a document apart.
type Reader struct{}

// NewReader returns a reader of the first document in r.
func NewReader(r io.Reader, l Limits) *Reader { return &Reader{} }

// Next returns the next event, io.EOF after the last.
func (r *Reader) Next() (Event, error) { return Event{}, errTODO }

// Skip passes over what is left of the collection whose start was the last event.
func (r *Reader) Skip() error { return errTODO }
