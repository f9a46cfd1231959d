package yaml

// Chomping of the line breaks at the end of a block scalar.
const (
	clip = iota
	strip
	keep
)

// block reads a block scalar, literal or folded, into value.
func (r *Reader) block(literal bool, indent int) bool {
	line := r.line
	r.pos++
	chomp, step := r.blockIndicators()
	if !r.blockHeaderEnd() {
		return false
	}
	deep := 0
	if step > 0 {
		deep = max(indent, 0) + step
	}
	var space [4]byte
	out, lead := r.scratch[:0], space[:0] // lead: the break after the last line, which is not in out
	blank := false                        // the last line begins with a blank
	r.breaks = r.breaks[:0]
	for {
		deep = r.blockBreaks(deep, indent)
		if r.err != nil {
			return false
		}
		c := r.buf[r.pos]
		if c == 0 || r.pos-r.lineStart != deep {
			break
		}
		was := blank
		blank = isBlank(c)
		out = joinLines(out, lead, r.breaks, !literal && !was && !blank)
		r.breaks = r.breaks[:0]
		var ok bool
		if out, ok = r.blockLine(out, line); !ok {
			return false
		}
		lead = r.lineBreak(lead[:0])
	}
	switch chomp {
	case clip:
		out = append(out, lead...)
	case keep:
		out = append(append(out, lead...), r.breaks...)
	}
	if len(out) > r.lim.Scalar {
		return r.failAt(line, "a scalar is too long")
	}
	r.fresh = true
	return r.take(out, len(out))
}

// lineBreak passes over the line break at pos, if any, and appends it.
func (r *Reader) lineBreak(out []byte) []byte {
	n := breakLen(r.buf, r.pos)
	if n == 0 {
		return out
	}
	out = appendBreak(out, r.buf, r.pos, n)
	r.pos += n
	r.newline()
	return out
}

// joinLines appends what is between two lines of a block scalar: the break after
// the first one, which may be folded, and those of empty lines.
func joinLines(out, lead, breaks []byte, fold bool) []byte {
	switch {
	case !fold || len(lead) != 1:
		out = append(out, lead...)
	case len(breaks) == 0:
		out = append(out, ' ')
	}
	return append(out, breaks...)
}

// blockIndicators reads how a block scalar is chomped and how much deeper it is
// than what it is in, 0 when that is not told.
func (r *Reader) blockIndicators() (chomp, step int) {
	for range 2 {
		switch c := r.buf[r.pos]; {
		case c == '+' && chomp == clip:
			chomp = keep
		case c == '-' && chomp == clip:
			chomp = strip
		case c >= '1' && c <= '9' && step == 0:
			step = int(c - '0')
		default:
			return chomp, step
		}
		r.pos++
	}
	return chomp, step
}

// blockHeaderEnd passes over the rest of the first line of a block scalar.
func (r *Reader) blockHeaderEnd() bool {
	for r.pos < r.end || r.more() {
		switch c := r.buf[r.pos]; {
		case isBlank(c):
			r.pos++
			continue
		case c == '#':
			r.comment()
			continue
		}
		r.ensure(slack)
		n := breakLen(r.buf, r.pos)
		if n == 0 {
			return r.failHere("the end of the line expected after the beginning of a block scalar")
		}
		r.pos += n
		r.newline()
		return true
	}
	return r.err == nil
}

// blockBreaks passes over indentation and empty lines, whose breaks it appends
// to breaks. It returns the indentation, which it finds out when deep is 0.
func (r *Reader) blockBreaks(deep, indent int) int {
	most := 0
	for {
		p := r.pos
		for r.buf[p] == ' ' && (deep == 0 || p-r.lineStart < deep) {
			p++
		}
		r.pos = p
		r.ensure(slack)
		col := r.pos - r.lineStart
		c := r.buf[r.pos]
		if c == 0 && r.more() {
			continue
		}
		most = max(most, col)
		if c == '\t' && (deep == 0 || col < deep) {
			r.failHere("tab in the indentation of a block scalar")
			return deep
		}
		n := breakLen(r.buf, r.pos)
		if n == 0 {
			break
		}
		if len(r.breaks) <= r.lim.Scalar {
			r.breaks = appendBreak(r.breaks, r.buf, r.pos, n)
		}
		r.pos += n
		r.newline()
	}
	if deep == 0 {
		return max(most, indent+1, 1)
	}
	return deep
}

// blockLine appends what is left of the line.
func (r *Reader) blockLine(out []byte, line int) ([]byte, bool) {
	for {
		p := r.pos
		for class[r.buf[p]]&endsLine == 0 {
			p++
		}
		out = append(out, r.buf[r.pos:p]...)
		r.pos = p
		if len(out) > r.lim.Scalar {
			return out, r.failAt(line, "a scalar is too long")
		}
		r.ensure(slack)
		c := r.buf[r.pos]
		switch {
		case c == 0:
			if !r.more() {
				return out, r.err == nil
			}
		case breakLen(r.buf, r.pos) > 0:
			return out, true
		default:
			out = append(out, c)
			r.pos++
		}
	}
}
