package lfs

import "strings"

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s.bit(c) != 0 }

// bit is 1 for the members and 0 for all others.
func (s *byteSet) bit(c byte) int { return int(s[c>>6] >> (c & 63) & 1) }

// span adds the bytes from low to high, both included.
func (s *byteSet) span(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		s.add(byte(c))
	}
}

// matching returns s as what a token of a pattern may match: its complement
// where negate is set, and never a /.
func (s *byteSet) matching(negate bool) byteSet {
	t := *s
	if negate {
		for i := range t {
			t[i] = ^t[i]
		}
	}
	t['/'>>6] &^= 1 << ('/' & 63)
	return t
}

func (s *byteSet) union(t byteSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

// bracket reads the bracket expression whose text starts at g[i], after the [,
// and returns where it ends, after the ]. ok is false where it is malformed.
func bracket(g string, i int) (set byteSet, next int, ok bool) {
	b := bracketReader{text: g[i:]}
	negate := b.at(0) == '!' || b.at(0) == '^'
	if negate {
		b.pos++
	}
	for first := true; first || b.at(0) != ']'; first = false { // a first ] is a member
		if !b.item() {
			return byteSet{}, i, false
		}
	}
	return b.set.matching(negate), i + b.pos + 1, true
}

// A bracketReader reads the items of a bracket expression.
type bracketReader struct {
	text string
	pos  int
	set  byteSet
	low  byte // the byte that a range could start from, or 0
}

// at returns the byte n after the position, 0 beyond the end: no pattern holds a NUL.
func (b *bracketReader) at(n int) byte {
	if b.pos+n < len(b.text) {
		return b.text[b.pos+n]
	}
	return 0
}

// item reads a byte, a range's second half or a named class.
func (b *bracketReader) item() bool {
	if b.at(0) == '[' && b.at(1) == ':' {
		class, n, ok := namedClass(b.text[b.pos+2:])
		if !ok {
			return false
		}
		if n > 0 {
			b.set.union(class)
			b.pos, b.low = b.pos+2+n, 0
			return true
		}
	}
	if b.at(0) == '-' && b.low != 0 && b.at(1) != 0 && b.at(1) != ']' {
		b.pos++
		high := b.byte()
		b.set.span(b.low, high)
		b.low = 0
		return high != 0
	}
	b.low = b.byte()
	b.set.add(b.low)
	return b.low != 0
}

// byte reads a byte, which a backslash may quote, and returns 0 at the end.
func (b *bracketReader) byte() byte {
	if b.at(0) == '\\' {
		b.pos++
	}
	c := b.at(0)
	b.pos++
	return c
}

// namedClass reads NAME:] at the start of g and returns its length. The length
// is 0 where no :] closes it, and ok false where nothing closes it or no class
// has the name.
func namedClass(g string) (set byteSet, n int, ok bool) {
	end := strings.IndexByte(g, ']')
	if end < 0 {
		return set, 0, false
	}
	name, closed := strings.CutSuffix(g[:end], ":")
	if !closed {
		return set, 0, true
	}
	for _, c := range classes {
		if c.name == name {
			for s := c.spans; s != ""; s = s[2:] {
				set.span(s[0], s[1])
			}
			return set, end + 1, true
		}
	}
	return set, 0, false
}

// classes are the named classes as git has them: ASCII, and a form feed or a
// vertical tab is no space. Each pair of bytes is a span.
var classes = [...]struct{ name, spans string }{
	{"alnum", "09AZaz"},
	{"alpha", "AZaz"},
	{"blank", "\t\t  "},
	{"cntrl", "\x00\x1f\x7f\x7f"},
	{"digit", "09"},
	{"graph", "!~"},
	{"lower", "az"},
	{"print", " ~"},
	{"punct", "!/:@[`{~"},
	{"space", "\t\n\r\r  "},
	{"upper", "AZ"},
	{"xdigit", "09AFaf"},
}
