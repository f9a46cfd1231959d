package bucket

import (
	"encoding/hex"
	"strings"
)

// A record is one object of a [listing]: the key, the ETag, the version, each
// with its length before it, and the size. An ETag of lower-case hexadecimal digits,
// as most stores give, is packed into half as many bytes. What follows the
// record in its block may follow in the text.
type record string

// packed is the bit in the length of an ETag that says that it is packed.
const packed = 1

// recordSize returns how many bytes o takes at most.
func recordSize(o Object) int {
	const numbers = 4 * 10
	return len(o.Key) + len(o.ETag) + len(o.Version) + numbers
}

// appendRecord appends o to b.
func appendRecord(b *strings.Builder, o Object) {
	appendText(b, o.Key)
	if isHex(o.ETag) {
		appendNumber(b, uint64(len(o.ETag)/2)<<1|packed)
		for i := 0; i < len(o.ETag); i += 2 {
			b.WriteByte(nibble(o.ETag[i])<<4 | nibble(o.ETag[i+1]))
		}
	} else {
		appendNumber(b, uint64(len(o.ETag))<<1)
		b.WriteString(o.ETag)
	}
	appendText(b, o.Version)
	appendNumber(b, uint64(o.Size))
}

func appendText(b *strings.Builder, s string) {
	appendNumber(b, uint64(len(s)))
	b.WriteString(s)
}

// appendNumber writes n in groups of 7 bits, the lowest first.
func appendNumber(b *strings.Builder, n uint64) {
	for ; n >= 0x80; n >>= 7 {
		b.WriteByte(byte(n) | 0x80)
	}
	b.WriteByte(byte(n))
}

// number cuts a number off r.
func (r *record) number() uint64 {
	var n uint64
	for i, shift := 0, 0; ; i, shift = i+1, shift+7 {
		c := (*r)[i]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			*r = (*r)[i+1:]
			return n
		}
	}
}

// cut cuts n bytes off r.
func (r *record) cut(n uint64) string {
	s := (*r)[:n]
	*r = (*r)[n:]
	return string(s)
}

// text cuts a text off r.
func (r *record) text() string { return r.cut(r.number()) }

// tag cuts an ETag off r: its digits, or its bytes when it is packed.
func (r *record) tag() (tag string, isPacked bool) {
	n := r.number()
	return r.cut(n >> 1), n&packed != 0
}

// object returns what r holds.
func (r record) object() Object {
	o := Object{Key: r.text()}
	tag, isPacked := r.tag()
	if isPacked {
		tag = hex.EncodeToString([]byte(tag))
	}
	o.ETag, o.Version, o.Size = tag, r.text(), int64(r.number())
	return o
}

// appendLine appends what the text of a revision says of r (reference A4).
func (r record) appendLine(line []byte) []byte {
	line = append(append(line, r.text()...), ' ')
	tag, isPacked := r.tag()
	if !isPacked {
		return append(append(line, tag...), '\n')
	}
	const digits = "0123456789abcdef"
	for i := range len(tag) {
		line = append(line, digits[tag[i]>>4], digits[tag[i]&15])
	}
	return append(line, '\n')
}

// isHex reports whether s is an even number of lower-case hexadecimal digits, some at least.
func isHex(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(s) > 0 && len(s)%2 == 0
}

func nibble(c byte) byte {
	if c >= 'a' {
		return c - 'a' + 10
	}
	return c - '0'
}
