package packfile

import (
	"encoding/binary"
	"fmt"

	"github.com/headgate-io/headgate/git/internal/object"
)

// An output is where an inflater writes: buf[at:end], with buf[from:at] in reach.
type output struct {
	buf           []byte
	from, at, end int
}

// The fast loop may write a match matchSlack bytes too far, and wants room for
// the longest one.
const (
	maxMatch   = 258
	matchSlack = 16
)

// refill makes sure that at least 56 bits are ahead.
func (f *inflater) refill() error {
	if f.pos+8 > len(f.src) {
		if err := f.more(); err != nil {
			return err
		}
	}
	f.bits |= binary.LittleEndian.Uint64(f.src[f.pos:]) << (f.count & 63)
	f.pos += int(63-f.count) >> 3
	f.count |= 56
	return nil
}

// take consumes up to 56 bits that are ahead.
func (f *inflater) take(n uint) uint {
	v := uint(f.bits & (1<<n - 1))
	f.bits >>= n
	f.count -= n
	return v
}

// giveBack returns the whole bytes that are ahead to the input.
func (f *inflater) giveBack() {
	f.pos -= int(f.count >> 3)
	f.count &= 7
	f.bits &= 1<<f.count - 1
}

// more reads input.
func (f *inflater) more() error {
	f.giveBack()
	f.in.Discard(f.pos)
	f.pos = 0
	if _, err := f.in.Peek(inputAhead); err != nil {
		f.src = nil
		return truncated(err)
	}
	var err error
	f.src, err = f.in.Peek(f.in.Buffered())
	return err
}

// fast decodes symbols while input and room are plenty, and little needs to be
// checked. It stops in front of what it cannot do, for slow to look at.
func (f *inflater) fast(o *output) {
	src, out, lit, dst := f.src, o.buf, f.lit, f.dst
	pos, at, bits, count := f.pos, o.at, f.bits, f.count
	end := min(o.end-3, len(out)-maxMatch-matchSlack)
	for pos+16 <= len(src) && at < end {
		bits |= binary.LittleEndian.Uint64(src[pos:]) << (count & 63)
		pos += int(63-count) >> 3
		count |= 56
		e := lit[bits&(1<<litBits-1)]
		for n := 0; n < 3 && e&isLiteral != 0; n++ {
			out[at] = byte(e >> 16)
			at++
			bits, count = bits>>(e&63), count-uint(e&63)
			e = lit[bits&(1<<litBits-1)]
		}
		if e&isLiteral != 0 {
			continue
		}
		wasBits, wasCount, wasPos := bits, count, pos // at least 23 bits are ahead: the longest length has 20
		if e&isSubtable != 0 {
			bits, count = bits>>litBits, count-litBits
			e = lit[(e>>16+uint32(bits)&(1<<(e>>8&15)-1))%uint32(len(lit))]
			if e&isLiteral != 0 {
				out[at] = byte(e >> 16)
				at++
				bits, count = bits>>(e&63), count-uint(e&63)
				continue
			}
		}
		length := int(e>>16) + int(bits&(1<<(e&63)-1)>>(e>>8&15))
		bits, count = bits>>(e&63), count-uint(e&63)
		bits |= binary.LittleEndian.Uint64(src[pos:]) << (count & 63)
		pos += int(63-count) >> 3
		count |= 56
		d := dst[bits&(1<<distBits-1)]
		if d&isSubtable != 0 {
			bits, count = bits>>distBits, count-distBits
			d = dst[(d>>16+uint32(bits)&(1<<(d>>8&15)-1))%uint32(len(dst))]
		}
		dist := int(d>>16) + int(bits&(1<<(d&63)-1)>>(d>>8&15))
		if (e|d)&isSpecial != 0 || dist > at-o.from || length > o.end-at {
			bits, count, pos = wasBits, wasCount, wasPos
			break
		}
		bits, count = bits>>(d&63), count-uint(d&63)
		copyFast(out, at, dist, length)
		at += length
	}
	f.pos, o.at, f.bits, f.count = pos, at, bits, count
}

// copyFast copies a match; it may write matchSlack bytes too many.
func copyFast(out []byte, at, dist, length int) {
	from := out[at-dist:]
	to := out[at : at+length+matchSlack]
	switch {
	case dist >= 8:
		for i := 0; i < length; i += 8 {
			binary.LittleEndian.PutUint64(to[i:], binary.LittleEndian.Uint64(from[i:]))
		}
	default:
		for i := range to[:length] {
			to[i] = from[i]
		}
	}
}

// slow decodes one symbol with all checks. Without any room, everything but the
// end of the block is an error.
func (f *inflater) slow(o *output) error {
	e, err := f.symbol(f.lit, litBits)
	if err != nil {
		return err
	}
	switch {
	case e&isLiteral != 0:
		if o.at == o.end {
			return errLarger
		}
		o.buf[o.at] = byte(e >> 16)
		o.at++
		return nil
	case e&isEnd != 0:
		f.state = atHeader
		return nil
	}
	f.length = int(e >> 16)
	if e, err = f.symbol(f.dst, distBits); err != nil {
		return err
	}
	f.dist = int(e >> 16)
	if f.dist > o.at-o.from && o.end > 0 {
		return fmt.Errorf("%w: an object is compressed with a match before its beginning", object.ErrCorrupt)
	}
	return nil
}

// symbol reads a symbol with its extra bits and returns its entry, to which they
// are added, or an error for one that no code has.
func (f *inflater) symbol(t *table, indexBits uint) (uint32, error) {
	if err := f.refill(); err != nil {
		return 0, err
	}
	e := t[f.bits&(1<<indexBits-1)]
	if e&isSubtable != 0 {
		f.take(indexBits)
		e = t[(e>>16+uint32(f.bits)&(1<<(e>>8&15)-1))%uint32(len(t))]
	}
	if e&isSpecial != 0 && e&isEnd == 0 {
		return 0, errCode
	}
	extra := f.take(uint(e&63)) >> (e >> 8 & 15)
	return e + uint32(extra)<<16, nil
}

// copyMatch copies what there is room for of a match.
func (f *inflater) copyMatch(o *output) {
	n := min(f.length, o.end-o.at)
	for range n {
		o.buf[o.at] = o.buf[o.at-f.dist]
		o.at++
	}
	f.length -= n
}
