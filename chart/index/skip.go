package index

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// A skipper passes over one value in JSON, piece by piece. It understands a
// little more than JSON, but no scalar of YAML that may have brackets or
// quotes in it: there it stops.
type skipper struct {
	depth   int  // brackets that are open
	quoted  bool // within a string
	escaped bool // behind a backslash that escapes what follows
	after   flowPart
}

// A flowPart is what a skipper has just passed over, but for spaces.
type flowPart uint8

const (
	flowPunctuation flowPart = iota // a value may come next
	flowWhole                       // a string or a collection
	flowWord                        // a number or a name
)

// What a skipper came to.
type skipState uint8

const (
	skipMore skipState = iota // the end of the text
	skipDone                  // the comma or the bracket behind the value
	skipUnclear
)

// What a byte is outside of strings.
const (
	flowOther = iota
	flowSpace
	flowLetter // of numbers and names
	flowComma
	flowColon
	flowOpen
	flowClose
	flowQuote
)

var flowClass = func() (t [256]byte) {
	for from, to := range map[string]byte{
		" \t\r\n": flowSpace, ",": flowComma, ":": flowColon, "[{": flowOpen, "]}": flowClose, `"`: flowQuote,
		"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.": flowLetter,
	} {
		for _, b := range []byte(from) {
			t[b] = to
		}
	}
	return t
}()

// skip reads text, which goes on where that of the last call ended. It returns
// how much of it was read.
func (s *skipper) skip(text []byte) (int, skipState) {
	i := 0
	for {
		if s.quoted {
			if i = s.string(text, i); s.quoted {
				return i, skipMore
			}
		}
		if i = s.fast(text, i); i == len(text) {
			return i, skipMore
		}
		switch s.mark(text[i]) {
		case skipDone:
			return i, skipDone
		case skipUnclear:
			return i, skipUnclear
		}
		i++
	}
}

const (
	ones   = 0x0101_0101_0101_0101
	highs  = 0x8080_8080_8080_8080
	blanks = 0x2020_2020_2020_2020
	quotes = 0x2222_2222_2222_2222
	slash  = 0x5c5c_5c5c_5c5c_5c5c
)

// reach is how far fast and plainString look ahead of where they are.
const reach = 32

// fast passes over strings and brackets with nothing but colons, commas and
// spaces between them, which is most of an index, and returns where something
// else begins, the value ends or the text is about to. It does no more than mark
// would do without it.
func (s *skipper) fast(text []byte, i int) int {
	for s.depth > 0 && i+reach <= len(text) {
		if c := text[i]; s.after == flowWhole && (c == ',' || c == ':') {
			s.after = flowPunctuation
			i++
		}
		if i = indent(text, i); i+reach > len(text) {
			return i
		}
		switch c := text[i]; {
		case c == '"' && s.after == flowPunctuation:
			s.after = flowWhole
			if i = s.plainString(text, i+1); s.quoted {
				return i
			}
		case (c == '{' || c == '[') && s.after == flowPunctuation:
			s.depth++
			i++
		case c == '}' || c == ']':
			s.depth--
			s.after = flowWhole
			i++
		default:
			return i
		}
	}
	return i
}

// indent returns the index behind a space, or behind a line break and the spaces
// that follow it.
func indent(text []byte, i int) int {
	if text[i] == ' ' {
		i++
	}
	if text[i] != '\n' {
		return i
	}
	for i++; i+8 <= len(text); i += 8 {
		if x := binary.LittleEndian.Uint64(text[i:]) ^ blanks; x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	return i
}

// plainString passes over a string whose text begins at i: there are at least 16
// bytes. It is mostly shorter, and without escapes.
func (s *skipper) plainString(text []byte, i int) int {
	for range 2 {
		// The lowest bit of found is that of the first quote or backslash, whatever is
		// borrowed above it.
		x := binary.LittleEndian.Uint64(text[i:])
		q, e := x^quotes, x^slash
		if found := ((q-ones)&^q | (e-ones)&^e) & highs; found != 0 {
			i += bits.TrailingZeros64(found) / 8
			if text[i] == '"' {
				return i + 1
			}
			break
		}
		i += 8
	}
	s.quoted = true
	return s.string(text, i)
}

// mark passes over a byte outside of strings. A colon is one only behind a
// string: that in a:"b is part of a scalar of YAML, and so is the quote.
func (s *skipper) mark(b byte) skipState {
	class, after := flowClass[b], s.after
	switch class {
	case flowSpace:
	case flowLetter:
		s.after = flowWord
	case flowComma, flowClose:
		if s.depth == 0 {
			return skipDone
		}
		s.after = flowPunctuation
		if class == flowClose {
			s.depth--
			s.after = flowWhole
		}
	case flowColon:
		if after != flowWhole {
			return skipUnclear
		}
		s.after = flowPunctuation
	case flowOpen:
		if after != flowPunctuation {
			return skipUnclear
		}
		s.depth++
	case flowQuote:
		if after != flowPunctuation {
			return skipUnclear
		}
		s.quoted, s.after = true, flowWhole
	default:
		return skipUnclear
	}
	return skipMore
}

// string reads on to behind the end of a string. What it returns is the length
// of text when that comes first.
func (s *skipper) string(text []byte, i int) int {
	if s.escaped && i < len(text) {
		s.escaped = false
		i++
	}
	for from := i; ; {
		n := bytes.IndexByte(text[i:], '"')
		end := i + n
		if n < 0 {
			end = len(text)
		}
		slashes := 0
		for end-slashes > from && text[end-slashes-1] == '\\' {
			slashes++
		}
		switch {
		case n < 0:
			s.escaped = slashes%2 == 1
			return end
		case slashes%2 == 0:
			s.quoted = false
			return end + 1
		}
		i, from = end+1, end+1
	}
}
