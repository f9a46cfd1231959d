package yaml

import "io"

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
	Line  int    // where it begins, from 1; of the alias for what an alias stands for
}

// Limits bound what a document may cost. The zero value of a field means its default.
type Limits struct {
	Depth   int // of collections within each other; default 100
	Scalar  int // bytes of one scalar; default 1 MiB
	Anchors int // bytes held for aliases; default 1 MiB. Aliases may stand for 16 times as much in all
}

// aliasFactor is how often the bytes held for aliases may come back.
const aliasFactor = 16

// A Reader takes a document apart.
type Reader struct {
	input
	lim Limits
	err error // of all further calls

	ev    Event
	stack []frame
	// fresh tells that a block collection may begin here: at the beginning of a
	// line and after "- ", "? " and the ": " of an explicit key.
	fresh bool

	value        []byte // of the last scalar
	scratch      []byte // holds value when it is not a part of buf
	breaks       []byte // of a block scalar
	outer, inner props  // of the node that is being read, and of its first key
	key          pending

	tags    map[string]string
	anchors anchors
}

// NewReader returns a reader of the first document in r.
func NewReader(r io.Reader, l Limits) *Reader {
	if l.Depth == 0 {
		l.Depth = 100
	}
	if l.Scalar == 0 {
		l.Scalar = 1 << 20
	}
	if l.Anchors == 0 {
		l.Anchors = 1 << 20
	}
	return &Reader{
		input: input{src: r, buf: make([]byte, bufSize+slack), line: 1},
		lim:   l, fresh: true,
		stack: append(make([]frame, 0, 16), frame{state: atStart, indent: -1}),
	}
}

// Next returns the next event, io.EOF after the last. Other errors are [*Error]
// and, wrapped, those of the reader; they come again.
func (r *Reader) Next() (Event, error) {
	if !r.next() {
		return Event{}, r.err
	}
	return r.ev, nil
}

// next puts the next event into ev. When it returns false there is err.
func (r *Reader) next() bool {
	switch {
	case r.err != nil:
		return false
	case r.anchors.replaying():
		return r.replay()
	case r.key.set:
		return r.giveKey()
	}
	return r.step()
}

// Skip passes over what is left of the collection whose start was the last event.
func (r *Reader) Skip() error {
	for depth := 1; depth > 0; {
		if !r.next() {
			return r.err
		}
		switch r.ev.Kind {
		case MapStart, SeqStart:
			depth++
		case MapEnd, SeqEnd:
			depth--
		}
	}
	return nil
}
