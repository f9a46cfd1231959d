package packfile

import (
	"fmt"

	"github.com/headgate-io/headgate/git/internal/object"
)

// inputAhead is how many bytes of input the inflater wants to see. A stream ends
// at least this far from the end of a pack: its checksum (4 bytes) and the
// trailer (20 or 32) follow.
const inputAhead = 16

// historyBytes is how far back a match can reach.
const historyBytes = 32 << 10

// An inflater decompresses the zlib streams (RFC 1950, 1951) of an input, one
// after the other. It decodes straight into the memory where the object is to
// be, twice as fast as a general reader that keeps a window and a copy of it,
// and consumes no byte beyond the stream.
type inflater struct {
	in  *input
	src []byte // the buffered input; in is behind by pos
	pos int

	bits  uint64 // read ahead, the next bit is the lowest; bits above count may be set
	count uint   // of bits

	state  state
	final  bool // the block is the last one
	stored int  // bytes to come of a stored block
	length int  // bytes to come of a match, for which there was no room
	dist   int  // of that match

	lit, dst           *table // those of the block
	dynLit, dynDst     table
	fixedLit, fixedDst table
	lens               table
	coder              coder
	litSyms, dstSyms   symbols
	lenSyms            symbols
}

// A state is what comes next in a stream.
type state uint8

const (
	atHeader state = iota
	inStored
	inCodes
	atEnd
)

func newInflater(in *input) *inflater {
	f := &inflater{in: in, litSyms: literalSymbols(), dstSyms: distanceSymbols(), lenSyms: lengthSymbols()}
	var lit [288]uint8
	for i := range lit {
		switch {
		case i < 144 || i >= 280:
			lit[i] = 8
		case i < 256:
			lit[i] = 9
		default:
			lit[i] = 7
		}
	}
	var dst [32]uint8
	for i := range dst {
		dst[i] = 5
	}
	if f.coder.build(&f.fixedLit, lit[:], &f.litSyms, litBits) != nil ||
		f.coder.build(&f.fixedDst, dst[:], &f.dstSyms, distBits) != nil {
		panic("unreachable: the fixed code is complete")
	}
	return f
}

// begin starts a stream.
func (f *inflater) begin() error {
	f.src, f.pos, f.bits, f.count = nil, 0, 0, 0
	f.state, f.final, f.length = atHeader, false, 0
	if err := f.refill(); err != nil {
		return err
	}
	head := f.take(16)
	if head&0x0f != 8 || head&0x2000 != 0 || (head<<8&0xff00|head>>8)%31 != 0 {
		return fmt.Errorf("%w: an object is not compressed by zlib", object.ErrCorrupt)
	}
	return nil
}

// fill inflates into buf[at:end], where buf[from:at] is what came before of the
// same stream, as far as a match can reach. It may write beyond end.
func (f *inflater) fill(buf []byte, from, at, end int) (err error) {
	out := output{buf: buf[:cap(buf)], from: from, at: at, end: end}
	for out.at < out.end && err == nil {
		err = f.step(&out)
	}
	return err
}

// end makes sure that the stream holds nothing more, and gives the input back.
func (f *inflater) end() error {
	var none output
	for f.state != atEnd {
		var err error
		switch f.state {
		case atHeader:
			err = f.header()
		case inStored:
			err = f.copyStored(&none)
		default:
			err = f.slow(&none)
		}
		if err == nil && (f.length > 0 || f.state == inStored && f.stored > 0) {
			err = errLarger
		}
		if err != nil {
			return err
		}
	}
	f.giveBack()
	f.in.Discard(f.pos)
	_, err := f.in.Discard(4) // the checksum
	return truncated(err)
}

var errLarger = fmt.Errorf("%w: an object is larger than it says", object.ErrCorrupt)

// step does the next part of the stream: a header, or as much of a block as there
// is room for.
func (f *inflater) step(out *output) error {
	switch f.state {
	case atHeader:
		return f.header()
	case inStored:
		return f.copyStored(out)
	case inCodes:
		if f.length > 0 {
			f.copyMatch(out)
			return nil
		}
		if f.fast(out); out.at < out.end {
			return f.slow(out)
		}
		return nil
	}
	return fmt.Errorf("%w: an object is smaller than it says", object.ErrCorrupt)
}

// header reads the header of a block.
func (f *inflater) header() error {
	if f.final {
		f.state = atEnd
		return nil
	}
	if err := f.refill(); err != nil {
		return err
	}
	f.final = f.take(1) == 1
	switch f.take(2) {
	case 0:
		return f.storedHeader()
	case 1:
		f.lit, f.dst = &f.fixedLit, &f.fixedDst
	case 2:
		if err := f.codes(); err != nil {
			return err
		}
		f.lit, f.dst = &f.dynLit, &f.dynDst
	default:
		return fmt.Errorf("%w: an object is compressed with an unknown kind of block", object.ErrCorrupt)
	}
	f.state = inCodes
	return nil
}

// storedHeader reads the length of a stored block, which begins at a byte.
func (f *inflater) storedHeader() error {
	f.giveBack()
	f.bits, f.count = 0, 0
	if err := f.refill(); err != nil {
		return err
	}
	n, inverse := f.take(16), f.take(16)
	if n != inverse^0xffff {
		return fmt.Errorf("%w: an object has a stored block whose length is damaged", object.ErrCorrupt)
	}
	f.giveBack()
	f.stored, f.state = int(n), inStored
	return nil
}

// copyStored copies what it can of a stored block.
func (f *inflater) copyStored(out *output) error {
	if f.stored == 0 {
		f.state = atHeader
		return nil
	}
	if f.pos == len(f.src) {
		if err := f.more(); err != nil {
			return err
		}
	}
	n := copy(out.buf[out.at:out.end], f.src[f.pos:min(len(f.src), f.pos+f.stored)])
	f.pos += n
	f.stored -= n
	out.at += n
	return nil
}

// codeOrder is the order in which the lengths of the code for lengths are sent.
var codeOrder = [19]uint8{16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15}

// codes reads the Huffman codes of a block (RFC 1951, 3.2.7).
func (f *inflater) codes() error {
	nlit, ndst, nlen := int(f.take(5))+257, int(f.take(5))+1, int(f.take(4))+4
	if nlit > 286 || ndst > 30 {
		return errCode
	}
	var lengths [286 + 30]uint8
	for _, symbol := range codeOrder[:nlen] {
		if f.count < 3 {
			if err := f.refill(); err != nil {
				return err
			}
		}
		lengths[symbol] = uint8(f.take(3))
	}
	if err := f.coder.build(&f.lens, lengths[:19], &f.lenSyms, lengthBits); err != nil {
		return err
	}
	clear(lengths[:19])
	if err := f.lengths(lengths[:nlit+ndst]); err != nil {
		return err
	}
	if lengths[256] == 0 {
		return errCode
	}
	if err := f.coder.build(&f.dynLit, lengths[:nlit], &f.litSyms, litBits); err != nil {
		return err
	}
	return f.coder.build(&f.dynDst, lengths[nlit:nlit+ndst], &f.dstSyms, distBits)
}

// repeats are the symbols above 15 of the code for lengths: a repetition of at
// least first times, which so many more bits add to.
var repeats = [3]struct{ first, bits uint }{{3, 2}, {3, 3}, {11, 7}}

// lengths reads code lengths.
func (f *inflater) lengths(all []uint8) error {
	for i := 0; i < len(all); {
		if err := f.refill(); err != nil {
			return err
		}
		e := f.lens[f.bits&(1<<lengthBits-1)]
		if e&isSpecial != 0 {
			return errCode
		}
		f.take(uint(e & 63))
		symbol := e >> 16
		if symbol < 16 {
			all[i] = uint8(symbol)
			i++
			continue
		}
		r := repeats[symbol-16]
		n := int(r.first) + int(f.take(r.bits))
		if n > len(all)-i || symbol == 16 && i == 0 {
			return errCode
		}
		for range n {
			if symbol == 16 {
				all[i] = all[i-1]
			}
			i++
		}
	}
	return nil
}
