package yaml

// scalar reads a plain or a quoted scalar that begins with c into value.
// indent is that of the block collection it is in.
func (r *Reader) scalar(c byte, flow bool, indent int) (plain, ok bool) {
	switch {
	case c == '"':
		return false, r.quoted(c, endsDouble)
	case c == '\'':
		return false, r.quoted(c, endsSingle)
	case class[c]&startsPlain != 0, r.plainStart(c, flow):
		return true, r.plain(flow, indent)
	case c == 0:
		return false, r.fail("a value expected, found the end of the document")
	}
	return false, r.failHere("a value expected")
}

// plainStart reports whether a plain scalar may begin with an indicator.
func (r *Reader) plainStart(c byte, flow bool) bool {
	switch c {
	case '-':
		return !blankAt(r.buf, r.pos+1)
	case '?', ':':
		return !flow && !blankAt(r.buf, r.pos+1)
	}
	return false
}

// plainEnds returns the class of what may end a run of a plain scalar.
func plainEnds(flow bool) uint8 {
	if flow {
		return endsFlow
	}
	return endsPlain
}

// plain reads a plain scalar. One that is on one line is taken from the buffer.
func (r *Reader) plain(flow bool, indent int) bool {
	ends := plainEnds(flow)
	buf, p := r.buf, r.pos
	last := p // where the text ends
	for {
		q := p
		for class[buf[p]]&ends == 0 {
			p++
		}
		if p > q {
			last = p
		}
		switch buf[p] {
		case ' ', '\t':
			for p++; isBlank(buf[p]); p++ {
			}
			if buf[p] == '#' {
				return r.plainEnd(last, p)
			}
			continue
		case ':':
			if blankAt(buf, p+1) && (p+1 < r.end || r.eof) {
				return r.plainEnd(last, p)
			}
			if p+1 >= r.end {
				return r.plainLong(flow, indent)
			}
		case '\n', '\r', 0:
			if r.plainLine(flow, indent, last, p) {
				return r.err == nil
			}
			return r.plainLong(flow, indent)
		case 0xC2, 0xE2:
			if breakLen(buf, p) > 0 || p+3 > r.end {
				return r.plainLong(flow, indent)
			}
		default:
			return r.plainEnd(last, p)
		}
		p++
		last = p
	}
}

// plainEnd makes the text up to last the value and goes on at p.
func (r *Reader) plainEnd(last, p int) bool {
	if last-r.pos > r.lim.Scalar {
		return r.fail("a scalar is too long")
	}
	r.value = r.buf[r.pos:last]
	r.pos = p
	return true
}

// plainLine ends a plain scalar at the line break or the end at p, if it ends there.
func (r *Reader) plainLine(flow bool, indent, last, p int) bool {
	buf := r.buf
	over := r.eof && r.bad == nil
	if p >= r.end {
		if over {
			r.plainEnd(last, p)
		}
		return over
	}
	p += breakLen(buf, p)
	begin := p
	for buf[p] == ' ' {
		p++
	}
	if !r.endsPlain(buf[p], flow, p-begin <= indent, over && p >= r.end) {
		return false
	}
	r.plainEnd(last, p)
	r.line++
	r.lineStart = begin
	r.fresh = true
	return true
}

// endsPlain reports whether a plain scalar surely ends before a line whose first
// character is c; over tells that there is no such line.
func (r *Reader) endsPlain(c byte, flow, shallow, over bool) bool {
	switch {
	case over || c == '#':
		return true
	case class[c]&endsLine != 0 || c == '\t':
		return false
	case flow:
		return c == ',' || c == ']' || c == '}'
	}
	return shallow
}

// plainLong reads a plain scalar of any number of lines into scratch.
func (r *Reader) plainLong(flow bool, indent int) bool {
	ends := plainEnds(flow)
	line := r.line
	out := r.scratch[:0]
	last := 0 // length of the text without the blanks at its end
	for end := false; !end; {
		p := r.pos
		for class[r.buf[p]]&ends == 0 {
			p++
		}
		if p > r.pos {
			out = append(out, r.buf[r.pos:p]...)
			last = len(out)
			r.pos = p
		}
		if last > r.lim.Scalar {
			return r.failAt(line, "a scalar is too long")
		}
		r.ensure(slack)
		switch c := r.buf[r.pos]; {
		case class[c]&ends == 0: // there is more of it now
		case c == 0:
			end = !r.more()
		case isBlank(c):
			if len(out) <= r.lim.Scalar {
				out = append(out, c)
			}
			r.pos++
			end = r.buf[r.pos] == '#'
		case breakLen(r.buf, r.pos) > 0:
			var goes bool
			out, goes = r.plainFold(out[:last], flow, indent)
			r.fresh = !goes
			end = !goes
		case c == ':' && !blankAt(r.buf, r.pos+1) || c >= 0x80:
			out = append(out, c)
			r.pos++
			last = len(out)
		default:
			end = true
		}
	}
	return r.err == nil && r.take(out, last)
}

// plainFold passes over line breaks within or after a plain scalar. It returns
// false when the scalar ended before them.
func (r *Reader) plainFold(out []byte, flow bool, indent int) ([]byte, bool) {
	out = r.fold(out, indent, false)
	if r.err != nil {
		return out, false
	}
	c := r.buf[r.pos]
	col := r.pos - r.lineStart
	switch {
	case c == 0, c == '#', col == 0 && r.marker():
		return out, false
	case c == ':' && blankAt(r.buf, r.pos+1):
		return out, false
	case flow:
		return out, c != ',' && c != '?' && c != '[' && c != ']' && c != '{' && c != '}'
	}
	return out, col > indent
}

// anyIndent allows tabs in the indentation.
const anyIndent = -2

// fold passes over line breaks and blanks and appends what they stand for: one
// break is a space, of several the first is nothing. Tabs have to be deeper than
// indent. escaped tells that a break before pos was escaped.
func (r *Reader) fold(out []byte, indent int, escaped bool) []byte {
	from, first, space := len(out), !escaped, false
	for {
		r.ensure(slack)
		n := breakLen(r.buf, r.pos)
		switch c := r.buf[r.pos]; {
		case n > 0 && first && n < 3:
			first, space = false, true
		case n > 0:
			first = false
			if len(out) <= r.lim.Scalar {
				out = appendBreak(out, r.buf, r.pos, n)
			}
		case c == '\t' && r.pos-r.lineStart <= indent:
			if !r.blankLine() {
				r.failHere("tab in the indentation")
				return out
			}
			continue
		case isBlank(c):
			r.pos++
			continue
		case c == 0 && r.more():
			continue
		default:
			if space && len(out) == from {
				out = append(out, ' ')
			}
			return out
		}
		r.pos += n
		r.newline()
	}
}
