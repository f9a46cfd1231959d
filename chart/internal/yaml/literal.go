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
	chomp, step, ok := r.blockHeader()
	if !ok {
		return false
	}
	deep := 0
	if step > 0 {
		deep = max(indent, 0) + step
	}
	out, lead := r.scratch[:0], 0 // lead: length of the break after the last line in out, which is not in it
	var leadText [4]byte
	r.breaks = r.breaks[:0]
	blank := false // the last line begins with a blank
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
		if !literal && !was && !blank && lead == 1 {
			if len(r.breaks) == 0 {
				out = append(out, ' ')
			}
		} else {
			out = append(out, leadText[:lead]...)
		}
		out = append(out, r.breaks...)
		r.breaks = r.breaks[:0]
		if out, ok = r.blockLine(out, line); !ok {
			return false
		}
		n := breakLen(r.buf, r.pos)
		lead = 0
		if n > 0 {
			lead = len(appendBreak(leadText[:0], r.buf, r.pos, n))
			r.pos += n
			r.newline()
		}
	}
	if chomp != strip {
		out = append(out, leadText[:lead]...)
	}
	if chomp == keep {
		out = append(out, r.breaks...)
	}
	r.scratch, r.value = out, out
	r.fresh = true
	r.ensure(window)
	return len(out) <= r.lim.Scalar || r.failAt(line, "a scalar is too long")
}

// blockHeader reads the indicators of a block scalar and the rest of their line.
func (r *Reader) blockHeader() (chomp, step int, ok bool) {
	r.pos++
	for range 2 {
		switch c := r.buf[r.pos]; {
		case c == '+' && chomp == 0:
			chomp = keep
		case c == '-' && chomp == 0:
			chomp = strip
		case c >= '1' && c <= '9' && step == 0:
			step = int(c - '0')
		default:
			continue
		}
		r.pos++
	}
	for {
		c := r.buf[r.pos]
		switch {
		case isBlank(c):
			r.pos++
			continue
		case c == '#':
			r.comment()
			continue
		case c == 0 && r.more():
			continue
		}
		r.ensure(slack)
		n := breakLen(r.buf, r.pos)
		if n == 0 && r.pos < r.end {
			return 0, 0, r.failHere("the end of the line expected after the beginning of a block scalar")
		}
		if n > 0 {
			r.pos += n
			r.newline()
		}
		return chomp, step, r.err == nil
	}
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
