package yaml

import "unicode/utf8"

// quoted reads a quoted scalar. One that is on one line and has no escapes is
// taken from the buffer.
func (r *Reader) quoted(quote byte, ends uint8) bool {
	buf, p := r.buf, r.pos+1
	for {
		for class[buf[p]]&ends == 0 {
			p++
		}
		switch c := buf[p]; {
		case c == quote:
			if quote == '\'' && (buf[p+1] == '\'' || p+1 >= r.end && !r.eof) {
				return r.quotedLong(quote, ends)
			}
			if r.value = buf[r.pos+1 : p]; len(r.value) > r.lim.Scalar {
				return r.fail("a scalar is too long")
			}
			r.pos = p + 1
			return true
		case c < 0x80, p+3 > r.end, !r.json && breakLen(buf, p) > 0:
			return r.quotedLong(quote, ends)
		}
		p++
	}
}

// quotedLong reads a quoted scalar into scratch.
func (r *Reader) quotedLong(quote byte, ends uint8) bool {
	line := r.line
	out := r.scratch[:0]
	floor := 0 // blanks of the text before are kept
	r.pos++
	for {
		p := r.pos
		for class[r.buf[p]]&ends == 0 {
			p++
		}
		out = append(out, r.buf[r.pos:p]...)
		r.pos = p
		if len(out) > r.lim.Scalar {
			return r.failAt(line, "a scalar is too long")
		}
		r.ensure(16)
		switch c := r.buf[r.pos]; {
		case c == quote:
			r.pos++
			if quote != '\'' || r.buf[r.pos] != '\'' {
				return r.take(out, len(out))
			}
			out = append(out, c)
			r.pos++
			floor = len(out)
		case c == '\\':
			var ok bool
			if out, ok = r.escape(out); !ok {
				return false
			}
			floor = len(out)
		case c == 0:
			if !r.more() {
				return r.failAt(line, "a quoted scalar is not closed")
			}
		case breakLen(r.buf, r.pos) > 0 && (c < 0x80 || !r.json):
			out = r.fold(trimBlanks(out, floor), anyIndent, false)
			floor = len(out)
			if !r.afterFold() {
				return false
			}
		default:
			out = append(out, c)
			r.pos++
		}
	}
}

// take makes the first n bytes of out, which is scratch, the value.
func (r *Reader) take(out []byte, n int) bool {
	r.scratch, r.value = out, out[:n]
	r.ensure(window)
	return true
}

// trimBlanks cuts blanks off the end of out, but not of out[:floor].
func trimBlanks(out []byte, floor int) []byte {
	for len(out) > floor && isBlank(out[len(out)-1]) {
		out = out[:len(out)-1]
	}
	return out
}

// afterFold checks what follows line breaks within a quoted scalar.
func (r *Reader) afterFold() bool {
	if r.err == nil && r.pos == r.lineStart && r.marker() {
		return r.fail("the document ends within a quoted scalar")
	}
	return r.err == nil
}

// simpleEscapes are what single letters after a backslash stand for.
var simpleEscapes = [256]string{
	'0': "\x00", 'a': "\a", 'b': "\b", 't': "\t", '\t': "\t", 'n': "\n", 'v': "\v",
	'f': "\f", 'r': "\r", 'e': "\x1B", ' ': " ", '"': "\"", '\'': "'", '/': "/",
	'\\': "\\", 'N': "\u0085", '_': "\u00A0", 'L': "\u2028", 'P': "\u2029",
}

// escape appends what the backslash at pos and the text after it stand for.
func (r *Reader) escape(out []byte) ([]byte, bool) {
	c := r.buf[r.pos+1]
	if s := simpleEscapes[c]; s != "" {
		r.pos += 2
		return append(out, s...), true
	}
	if n := breakLen(r.buf, r.pos+1); n > 0 {
		r.pos += 1 + n
		r.newline()
		out = r.fold(out, anyIndent, true)
		return out, r.afterFold()
	}
	return r.hexEscape(out, c)
}

// hexEscape appends the character that \x, \u or \U at pos stands for. Two \u
// for a surrogate pair are one character.
func (r *Reader) hexEscape(out []byte, letter byte) ([]byte, bool) {
	digits := 0
	switch letter {
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return out, r.failHere("an escape expected")
	}
	v, ok := r.hex(r.pos+2, digits)
	if !ok {
		return out, r.failHere("an escape with hexadecimal digits expected")
	}
	if digits == 4 && v>>10 == 0xD800>>10 {
		if low, ok := r.lowSurrogate(r.pos + 6); ok {
			v = 0x10000 + (v-0xD800)<<10 + (low - 0xDC00)
			r.pos += 6
		}
	}
	if v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
		if !r.json || digits != 4 {
			return out, r.failHere("an escape of a character expected")
		}
		v = utf8.RuneError
	}
	r.pos += 2 + digits
	return utf8.AppendRune(out, rune(v)), true
}

// lowSurrogate returns what the \u escape at p stands for, if it is a low surrogate.
func (r *Reader) lowSurrogate(p int) (uint32, bool) {
	if r.buf[p] != '\\' || r.buf[p+1] != 'u' {
		return 0, false
	}
	v, ok := r.hex(p+2, 4)
	return v, ok && v>>10 == 0xDC00>>10
}

// hex returns the value of n hexadecimal digits.
func (r *Reader) hex(p, n int) (v uint32, ok bool) {
	for _, c := range r.buf[p : p+n] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		v = v<<4 | uint32(c)
	}
	return v, true
}
