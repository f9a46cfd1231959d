package yaml

import "io"

// A state is what may come next in a collection.
type state uint8

const (
	atStart   state = iota // of the document
	atEnd                  // of the document
	mapKey                 // block mapping: a key or the end
	mapColon               // … the ":" of an explicit key, if any
	mapValue               // … the value of a simple key
	seqEntry               // block sequence: "- " or the end
	flatEntry              // … at the indentation of the key before it
	flowSeqFirst
	flowSeqNext // "," or "]"
	flowMapFirst
	flowMapNext  // "," or "}"
	flowMapColon // ":" or else the value is empty
	pairKey      // mapping of one pair within a flow sequence: after "?"
	pairColon
	pairValue
	pairEnd
)

// A frame is a collection that is open, or the document.
type frame struct {
	state  state
	indent int // column of the innermost block collection, -1 for none
	anchor int // 1 + index of its anchor, 0 for none
}

// pending is the first key of a mapping, whose start is the event before it.
type pending struct {
	set   bool
	alias int // 1 + index of the anchor it stands for, 0 when it is no alias
	ev    Event
}

func (r *Reader) step() bool {
	f := &r.stack[len(r.stack)-1]
	switch f.state {
	case mapKey:
		return r.mapKey(f)
	case mapValue:
		f.state = mapKey
		return r.node(f.indent, true, false)
	case seqEntry, flatEntry:
		return r.seqEntry(f)
	case mapColon:
		return r.mapColon(f)
	case atStart:
		f.state = atEnd
		return r.document()
	case atEnd:
		if !r.fresh && r.colon(r.here(true), false) {
			return r.fail(strayColon)
		}
		r.err = io.EOF
		return false
	}
	return r.flow(f)
}

// push opens a collection.
func (r *Reader) push(s state, indent int) bool {
	if len(r.stack) > r.lim.Depth {
		return r.fail("too many collections within each other")
	}
	r.stack = append(r.stack, frame{state: s, indent: indent})
	return true
}

// pop closes the innermost collection.
func (r *Reader) pop(k Kind) bool {
	f := r.stack[len(r.stack)-1]
	r.stack = r.stack[:len(r.stack)-1]
	r.ev = Event{Kind: k, Line: r.line}
	if r.anchors.open > 0 {
		return r.recordEnd(f.anchor)
	}
	return true
}

// give makes an event of a node with properties p.
func (r *Reader) give(k Kind, line int, p *props) bool {
	r.ev = Event{Kind: k, Line: line}
	if p.line > 0 {
		r.ev.Line, r.ev.Tag = p.line, p.tag
	}
	return r.record(p)
}

// giveScalar makes an event of the last scalar.
func (r *Reader) giveScalar(plain bool, line int, p *props) bool {
	r.ev = Event{Kind: Scalar, Value: r.value, Plain: plain, Line: line}
	if p.line > 0 {
		r.ev.Line, r.ev.Tag = p.line, p.tag
	}
	return r.record(p)
}

// giveKey makes an event of the first key of a mapping.
func (r *Reader) giveKey() bool {
	r.key.set = false
	if r.key.alias > 0 {
		return r.startReplay(r.key.alias-1, true)
	}
	r.ev = r.key.ev
	return r.record(&r.inner)
}

// space passes over blanks, line breaks and comments up to the next token, and
// makes a window of text follow it. It returns 0 at the end of the document.
func (r *Reader) space(flow bool) (byte, bool) {
	for {
		switch c := r.buf[r.pos]; c {
		case ' ':
			r.pos++
		case '\n':
			r.pos++
			r.newline()
			r.fresh = true
		case '\t':
			if flow || !r.fresh {
				r.pos++
			} else if !r.blankLine() {
				return c, r.failHere("tab in the indentation")
			}
		case '#':
			r.comment()
		case '\r', 0xC2, 0xE2:
			r.ensure(4)
			n := breakLen(r.buf, r.pos)
			if n == 0 {
				r.ensure(window)
				return c, true
			}
			r.pos += n
			r.newline()
			r.fresh = true
		case 0:
			if !r.more() {
				return 0, r.err == nil
			}
		default:
			r.ensure(window)
			return c, true
		}
	}
}

// newline notes that a line begins at pos.
func (r *Reader) newline() {
	r.line++
	r.lineStart = r.pos
}

// comment passes over what is left of the line.
func (r *Reader) comment() {
	for {
		p := r.pos
		for class[r.buf[p]]&endsLine == 0 {
			p++
		}
		r.pos = p
		r.ensure(4)
		switch {
		case r.buf[r.pos] == 0:
			if !r.more() {
				return
			}
		case breakLen(r.buf, r.pos) > 0:
			return
		default:
			r.pos++
		}
	}
}

// blankLine passes over the blanks at pos when nothing but a comment is left of
// the line after them.
func (r *Reader) blankLine() bool {
	r.ensure(window)
	p := r.pos
	for isBlank(r.buf[p]) {
		p++
	}
	if r.buf[p] != '#' && r.buf[p] != 0 && breakLen(r.buf, p) == 0 {
		return false
	}
	r.pos = p
	return true
}

// column returns the column of the token c at pos, -1 when the document ends there.
func (r *Reader) column(c byte) int {
	col := r.pos - r.lineStart
	if c == 0 || col == 0 && (c == '%' || r.marker()) {
		return -1
	}
	return col
}

// marker reports whether the line that begins at pos begins with --- or ... .
func (r *Reader) marker() bool {
	r.ensure(slack)
	b, p := r.buf, r.pos
	c := b[p]
	return (c == '-' || c == '.') && b[p+1] == c && b[p+2] == c && blankAt(b, p+3)
}

// document begins the document: directives, "---" and the root node.
func (r *Reader) document() bool {
	directives := false
	r.ensure(window)
	for {
		c, ok := r.space(r.json)
		if !ok {
			return false
		}
		switch {
		case c == '%' && r.pos == r.lineStart:
			directives = true
			r.comment()
			continue
		case c == '-' && r.pos == r.lineStart && r.marker():
			r.pos += 3
			r.fresh = false
			return r.node(-1, false, false)
		case directives:
			return r.failHere("--- expected after a directive")
		case r.column(c) < 0:
			r.err = io.EOF
			return false
		}
		return r.node(-1, false, false)
	}
}
