package yaml

// flow reads on in a flow collection.
func (r *Reader) flow(f *frame) bool {
	c, ok := r.space(true)
	if !ok {
		return false
	}
	switch f.state {
	case flowSeqNext, flowMapNext:
		switch {
		case c == f.closer():
			r.pos++
			return r.close(f)
		case c != ',':
			return r.failHere("',' or '" + string(f.closer()) + "' expected")
		}
		r.pos++
		if c, ok = r.space(true); !ok {
			return false
		}
		fallthrough
	case flowSeqFirst, flowMapFirst:
		if c == f.closer() {
			r.pos++
			return r.close(f)
		}
		return r.flowEntry(f, c)
	case flowMapColon:
		f.state = flowMapNext
		return r.flowValue(c)
	case pairKey:
		f.state = pairColon
		if c == ':' || c == ',' || c == ']' {
			return r.empty()
		}
		return r.flowNode(c, false, true)
	case pairColon:
		f.state = pairEnd
		return r.flowValue(c)
	case pairValue:
		f.state = pairEnd
		return r.flowNodeOrEmpty(c)
	}
	return r.pop(MapEnd) // pairEnd
}

// closer returns what ends the collection.
func (f *frame) closer() byte {
	if f.state == flowSeqFirst || f.state == flowSeqNext {
		return ']'
	}
	return '}'
}

func (r *Reader) close(f *frame) bool {
	k := MapEnd
	if f.closer() == ']' {
		k = SeqEnd
	}
	r.fresh = false
	return r.pop(k)
}

// empty gives a node without text.
func (r *Reader) empty() bool {
	r.outer.reset()
	return r.give(Null, r.line, &r.outer)
}

// flowEntry reads what begins an entry.
func (r *Reader) flowEntry(f *frame, c byte) bool {
	if f.closer() == ']' {
		f.state = flowSeqNext
		if c != '?' {
			return r.flowNode(c, true, false)
		}
		r.pos++
		r.outer.reset()
		return r.push(pairKey, f.indent) && r.give(MapStart, r.line, &r.outer)
	}
	f.state = flowMapColon
	if c != '?' {
		return r.flowNode(c, false, true)
	}
	r.pos++
	c, ok := r.space(true)
	if !ok {
		return false
	}
	if c == ':' || c == ',' || c == '}' {
		return r.empty()
	}
	return r.flowNode(c, false, true)
}

// flowValue reads ":" and a value, both of which may be missing.
func (r *Reader) flowValue(c byte) bool {
	if c != ':' {
		return r.empty()
	}
	r.pos++
	c, ok := r.space(true)
	if !ok {
		return false
	}
	return r.flowNodeOrEmpty(c)
}

func (r *Reader) flowNodeOrEmpty(c byte) bool {
	if c == ',' || c == r.outerCloser() {
		return r.empty()
	}
	return r.flowNode(c, false, false)
}

// outerCloser returns what ends the innermost bracket.
func (r *Reader) outerCloser() byte {
	if r.stack[len(r.stack)-1].state == pairEnd {
		return ']'
	}
	return '}'
}

// flowNode reads a node in flow context. pair tells that it may be the key of
// a mapping of one pair, key that it is a key.
func (r *Reader) flowNode(c byte, pair, key bool) bool {
	r.outer.reset()
	at := r.here(pair)
	c, ok := r.properties(c, true)
	if !ok {
		return false
	}
	indent := r.stack[len(r.stack)-1].indent
	switch c {
	case '[':
		r.pos++
		return r.joined() && r.open(flowSeqFirst, indent, SeqStart, key)
	case '{':
		r.pos++
		return r.joined() && r.open(flowMapFirst, indent, MapStart, key)
	case '*':
		return r.flowAlias(at, key)
	case ',', ']', '}', ':':
		return r.flowNothing(at)
	case '-', '.':
		if r.pos == r.lineStart && r.marker() {
			return r.failHere("the document ends within a collection")
		}
	}
	line := r.line
	plain, ok := r.scalar(c, true, indent)
	if !ok {
		return false
	}
	if r.colon(at, true) {
		return r.openPair(indent, pending{set: true, ev: Event{Kind: Scalar, Value: r.value, Plain: plain, Line: at.line}})
	}
	return r.joined() && r.giveScalar(plain, line, &r.outer)
}

// flowNothing gives a node that has properties but no text.
func (r *Reader) flowNothing(at spot) bool {
	if r.inner.line == 0 {
		return r.failHere("a value expected")
	}
	if r.colon(at, true) {
		return r.openPair(r.stack[len(r.stack)-1].indent, pending{set: true, ev: Event{Kind: Null, Line: at.line}})
	}
	return r.joined() && r.give(Null, at.line, &r.outer)
}

func (r *Reader) flowAlias(at spot, key bool) bool {
	if r.inner.line > 0 {
		return r.fail("an alias cannot have an anchor or a tag")
	}
	id, ok := r.alias()
	if !ok {
		return false
	}
	if r.colon(at, true) {
		return r.openPair(r.stack[len(r.stack)-1].indent, pending{set: true, alias: id + 1})
	}
	return r.startReplay(id, key)
}

// openPair begins a mapping of one pair, whose key has been read.
func (r *Reader) openPair(indent int, first pending) bool {
	first.ev.Tag = r.inner.tag
	r.key = first
	r.outer.reset()
	return r.push(pairValue, indent) && r.give(MapStart, r.line, &r.outer)
}
