package yaml

// keyMax is how many bytes there may be from the beginning of a simple key to its ":".
const keyMax = window / 2

const collectionKey = "a collection as key is not supported"

// strayColon is the problem of a ":" that does not follow a simple key.
const strayColon = "':' cannot be here: it follows a key on one line, of at most 4096 bytes, that is no collection and begins where a key may begin"

// A spot is where a simple key may begin.
type spot struct {
	allowed bool
	offset  int64
	line    int
	column  int
}

func (r *Reader) here(allowed bool) spot {
	return spot{allowed, r.base + int64(r.pos), r.line, r.pos - r.lineStart}
}

// mapKey reads a key of a block mapping, or its end.
func (r *Reader) mapKey(f *frame) bool {
	c, ok := r.space(false)
	if !ok {
		return false
	}
	col := r.column(c)
	if col < f.indent {
		return r.pop(MapEnd)
	}
	if col > f.indent || !r.fresh {
		if c == ':' {
			return r.fail(strayColon)
		}
		return r.failHere("the next key expected")
	}
	if r.indicator(c, '?') {
		r.pos++
		f.state = mapColon
		return r.node(f.indent, false, true)
	}
	f.state = mapValue
	return r.simpleKey(c)
}

// simpleKey reads a key and its ":".
func (r *Reader) simpleKey(c byte) bool {
	at := r.here(true)
	r.fresh = false
	c, ok := r.properties(c, false)
	if !ok {
		return false
	}
	switch {
	case r.line != at.line:
		return r.failAt(at.line, "a key and ':' expected")
	case r.colon(at, false):
		return r.inner.line > 0 && r.give(Null, at.line, &r.inner) || r.failHere("a key expected before ':'")
	case c == '*':
		return r.aliasKey(at)
	case c == '|' || c == '>' || c == '[' || c == '{':
		return r.failHere("a scalar expected as key")
	}
	plain, ok := r.scalar(c, false, r.stack[len(r.stack)-1].indent)
	if !ok {
		return false
	}
	if !r.colon(at, false) {
		return r.failAt(at.line, "':' expected after "+quote(r.value))
	}
	r.fresh = false
	return r.giveScalar(plain, at.line, &r.inner)
}

func (r *Reader) aliasKey(at spot) bool {
	id, ok := r.alias()
	if !ok || r.inner.line > 0 && !r.fail("an alias cannot have an anchor or a tag") {
		return false
	}
	if !r.colon(at, false) {
		return r.failAt(at.line, "':' expected after an alias")
	}
	return r.startReplay(id, true)
}

// colon passes over the ":" of the simple key that begins at the spot and ends
// at pos. The text up to it stays in the buffer.
func (r *Reader) colon(at spot, flow bool) bool {
	if !at.allowed || r.line != at.line {
		return false
	}
	p := r.pos
	for isBlank(r.buf[p]) {
		p++
	}
	if r.buf[p] != ':' || !flow && !blankAt(r.buf, p+1) || r.base+int64(p)-at.offset > keyMax {
		return false
	}
	r.pos = p + 1
	return true
}

// mapColon reads the value of an explicit key.
func (r *Reader) mapColon(f *frame) bool {
	c, ok := r.space(false)
	if !ok {
		return false
	}
	f.state = mapKey
	if r.column(c) != f.indent || !r.fresh || !r.indicator(c, ':') {
		r.outer.reset()
		return r.give(Null, r.line, &r.outer)
	}
	r.pos++
	return r.node(f.indent, true, false)
}

// seqEntry reads an entry of a block sequence, or its end.
func (r *Reader) seqEntry(f *frame) bool {
	c, ok := r.space(false)
	if !ok {
		return false
	}
	col := r.column(c)
	if col < f.indent {
		return r.pop(SeqEnd)
	}
	if col == f.indent && r.fresh {
		if r.indicator(c, '-') {
			r.pos++
			return r.node(f.indent, false, false)
		}
		if f.state == flatEntry {
			return r.pop(SeqEnd)
		}
	}
	return r.failHere("'- ' expected")
}

// node reads a node in block context. indent is that of the collection it is in;
// flat tells that a sequence may be indented like that; key that the node is a key.
func (r *Reader) node(indent int, flat, key bool) bool {
	r.outer.reset()
	r.inner.reset()
	var at spot
	for {
		line := r.line
		c, ok := r.space(false)
		if !ok {
			return false
		}
		if at.line == 0 || line != r.line {
			at = r.here(r.fresh)
			if !r.joined() {
				return false
			}
		}
		col := r.column(c)
		if col < indent || col == indent && c != '|' && c != '>' {
			return r.joined() && r.shallow(c, col, indent, flat, key)
		}
		if c != '&' && c != '!' {
			return r.content(c, at, indent, key)
		}
		r.fresh = false
		if !r.property(c, &r.inner) {
			return false
		}
	}
}

// shallow gives a node whose content is not deeper than indent: a sequence that
// may be as deep, or nothing.
func (r *Reader) shallow(c byte, col, indent int, flat, key bool) bool {
	if flat && col == indent && r.indicator(c, '-') {
		return r.open(flatEntry, indent, SeqStart, key)
	}
	return r.give(Null, r.line, &r.outer)
}

// indicator reports whether c, which is at pos, is that block indicator.
func (r *Reader) indicator(c, which byte) bool {
	return c == which && blankAt(r.buf, r.pos+1)
}

// content reads the content of a node in block context.
func (r *Reader) content(c byte, at spot, indent int, key bool) bool {
	switch c {
	case '-', '?', ':':
		if blankAt(r.buf, r.pos+1) {
			return r.blockCollection(c, at, key)
		}
	case '[':
		r.pos++
		return r.joined() && r.open(flowSeqFirst, indent, SeqStart, key)
	case '{':
		r.pos++
		return r.joined() && r.open(flowMapFirst, indent, MapStart, key)
	case '|', '>':
		line := r.line
		return r.joined() && r.block(c == '|', indent) && r.giveScalar(false, line, &r.outer)
	case '*':
		return r.aliasNode(at, key)
	}
	line := r.line
	r.fresh = false
	plain, ok := r.scalar(c, false, indent)
	if !ok {
		return false
	}
	if r.colon(at, false) {
		return r.openAt(at, key, pending{set: true, ev: Event{Kind: Scalar, Value: r.value, Plain: plain}})
	}
	return r.joined() && r.giveScalar(plain, line, &r.outer)
}

// blockCollection begins a collection with an indicator: "- ", "? ", or the ":"
// of a key that has properties but no text.
func (r *Reader) blockCollection(c byte, at spot, key bool) bool {
	switch {
	case c == ':' && r.inner.line > 0 && r.colon(at, false):
		return r.openAt(at, key, pending{set: true, ev: Event{Kind: Null}})
	case c == ':':
		return r.failHere("a key expected before ':'")
	case !r.fresh:
		return r.failHere("a collection cannot begin here")
	case c == '-':
		return r.joined() && r.open(seqEntry, at.column, SeqStart, key)
	}
	return r.joined() && r.open(mapKey, at.column, MapStart, key)
}

// open begins a collection with the properties of the node.
func (r *Reader) open(s state, indent int, k Kind, key bool) bool {
	if key {
		return r.fail(collectionKey)
	}
	line := r.line
	return r.push(s, indent) && r.give(k, line, &r.outer)
}

// openAt begins a block mapping with its first key.
func (r *Reader) openAt(at spot, key bool, first pending) bool {
	r.fresh = false
	first.ev.Line, first.ev.Tag = at.line, r.inner.tag
	r.key = first
	return r.open(mapValue, at.column, MapStart, key)
}

// aliasNode reads an alias, which may be the first key of a mapping.
func (r *Reader) aliasNode(at spot, key bool) bool {
	r.fresh = false
	props := r.inner.line > 0
	id, ok := r.alias()
	if !ok {
		return false
	}
	if !r.colon(at, false) {
		props = props || r.outer.line > 0
		return !props && r.startReplay(id, key) || r.fail("an alias cannot have an anchor or a tag")
	}
	if props {
		return r.fail("an alias cannot have an anchor or a tag")
	}
	return r.openAt(at, key, pending{set: true, alias: id + 1})
}
