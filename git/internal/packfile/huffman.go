package packfile

import (
	"fmt"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A table decodes one Huffman code (RFC 1951, 3.2.2). It is indexed by the next
// bits of the input; a code longer than the index leads to a table further back.
// Its length is a power of two, so that an index can be masked and not checked.
type table [4096]uint32

// The entries of a table. The lowest six bits of an entry are always the number
// of bits to consume.
//
//	literal   1 at 31, byte at 16, code length at 8
//	base      base value at 16, code length at 8; the bits to consume include the extra bits
//	subtable  1 at 15 and 14, its index at 16, the number of its index bits at 8
//	end       1 at 15 and 13
//	invalid   1 at 15
const (
	isLiteral  = 1 << 31
	isSpecial  = 1 << 15
	isSubtable = 1 << 14
	isEnd      = 1 << 13
)

// The index bits of the tables.
const (
	litBits    = 11
	distBits   = 8
	lengthBits = 7

	maxCode = 15 // bits of the longest code
)

// symbols gives the entry of each symbol, without its code length.
type symbols [288]uint32

// bases are the entries of the length and distance symbols: groups of n symbols,
// each symbol standing for 1<<extra values (RFC 1951, 3.2.5).
func bases(first uint32, groups [][2]uint32) (entries []uint32) {
	for _, g := range groups {
		for range g[0] {
			entries = append(entries, first<<16|g[1])
			first += 1 << g[1]
		}
	}
	return entries
}

// literalSymbols returns the entries of the alphabet of literals and lengths.
func literalSymbols() (s symbols) {
	for i := range s {
		s[i] = isSpecial
		if i < 256 {
			s[i] = isLiteral | uint32(i)<<16
		}
	}
	s[256] = isSpecial | isEnd
	copy(s[257:], bases(3, [][2]uint32{{8, 0}, {4, 1}, {4, 2}, {4, 3}, {4, 4}, {4, 5}}))
	s[285] = 258 << 16
	return s
}

// distanceSymbols returns the entries of the alphabet of distances.
func distanceSymbols() (s symbols) {
	for i := range s {
		s[i] = isSpecial
	}
	groups := [][2]uint32{{4, 0}}
	for extra := range uint32(13) {
		groups = append(groups, [2]uint32{2, extra + 1})
	}
	copy(s[:], bases(1, groups))
	return s
}

// lengthSymbols returns the entries of the alphabet of code lengths.
func lengthSymbols() (s symbols) {
	for i := range s {
		s[i] = uint32(i) << 16
	}
	return s
}

var errCode = fmt.Errorf("%w: an object is compressed with an impossible code", object.ErrCorrupt)

// A coder holds what building a table needs.
type coder struct {
	count  [maxCode + 1]uint16 // of codes by length
	sorted [288]uint16         // symbols by length, then value
}

// build fills t with the code that has the given length for each symbol, 0 for
// none. As in other implementations, a code must be complete, except that it may
// be empty or have one symbol of one bit.
func (c *coder) build(t *table, lengths []uint8, syms *symbols, indexBits uint) error {
	c.count = [maxCode + 1]uint16{}
	for _, n := range lengths {
		c.count[n&maxCode]++
	}
	used := len(lengths) - int(c.count[0])
	c.count[0] = 0
	free := c.free()
	if free < 0 {
		return errCode
	}
	if used == 0 || free > 0 {
		if used > 1 || used == 1 && c.count[1] == 0 {
			return errCode
		}
		for i := range t[:1<<indexBits] {
			t[i] = isSpecial
		}
	}
	c.sort(lengths)
	if used == 1 && free > 0 {
		for i := 0; i < 1<<indexBits; i += 2 {
			t[i] = syms[c.sorted[0]] + 0x101
		}
		return nil
	}
	return c.fill(t, syms, used, indexBits)
}

// free returns how many words of the greatest length the code leaves over, and a
// negative number if it has too many words.
func (c *coder) free() int {
	free := 1
	for n := 1; n <= maxCode && free >= 0; n++ {
		free = free<<1 - int(c.count[n])
	}
	return free
}

// sort fills c.sorted.
func (c *coder) sort(lengths []uint8) {
	var at [maxCode + 2]uint16
	for n := 1; n <= maxCode; n++ {
		at[n+1] = at[n] + c.count[n]
	}
	for symbol, n := range lengths {
		if n &= maxCode; n != 0 {
			c.sorted[at[n]] = uint16(symbol)
			at[n]++
		}
	}
}

// fill writes a complete code into t. While code lengths grow, the part of the
// table that is filled doubles; the index is the code with its bits reversed.
func (c *coder) fill(t *table, syms *symbols, used int, indexBits uint) error {
	code, length, size := uint(0), uint(0), uint(1)
	left := uint16(0) // codes to come of this length
	sub := subtable{next: 1 << indexBits}
	for _, symbol := range c.sorted[:used] {
		for left == 0 {
			length++
			left = c.count[length]
			if length <= indexBits {
				copy(t[size:2*size], t[:size])
				size *= 2
			}
		}
		left--
		if length <= indexBits {
			t[code] = syms[symbol] + uint32(length)*0x101
		} else {
			if prefix := code & (1<<indexBits - 1); sub.size == 0 || prefix != sub.prefix {
				if sub.open(t, c, prefix, length, left+1, indexBits) {
					return errCode
				}
			}
			sub.fill(t, code>>indexBits, length-indexBits, syms[symbol])
		}
		code = nextCode(code, length)
	}
	for ; size < 1<<indexBits; size *= 2 {
		copy(t[size:2*size], t[:size])
	}
	return nil
}

// nextCode adds one to a code of reversed bits.
func nextCode(code, length uint) uint {
	bit := uint(1) << (length - 1)
	for code&bit != 0 {
		code ^= bit
		bit >>= 1
	}
	return code | bit
}

// A subtable is the part of a table for the codes that share a prefix.
type subtable struct {
	prefix, start, size, next uint
}

// open begins the subtable of a prefix: its first code has the given length, of
// which left are to come. It reports whether the table is full.
func (s *subtable) open(t *table, c *coder, prefix, length uint, left uint16, indexBits uint) (full bool) {
	bits := length - indexBits
	for room := 1<<bits - int(left); room > 0 && bits+indexBits < maxCode; {
		bits++
		room = room<<1 - int(c.count[bits+indexBits])
	}
	s.prefix, s.start, s.size = prefix, s.next, 1<<bits
	s.next += s.size
	if s.next > uint(len(t)) {
		return true
	}
	t[prefix] = isSpecial | isSubtable | uint32(s.start)<<16 | uint32(bits)<<8 | uint32(indexBits)
	return false
}

// fill enters a code whose first bits are the prefix and whose others, reversed, are rest.
func (s *subtable) fill(t *table, rest, length uint, entry uint32) {
	entry += uint32(length) * 0x101
	for i := rest; i < s.size; i += 1 << length {
		t[s.start+i] = entry
	}
}
