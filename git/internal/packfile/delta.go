package packfile

import (
	"bufio"
	"fmt"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A delta is the size of its base, the size of its result and then instructions
// that make the result: copy bytes of the base, or insert bytes that follow.

// resultBufferBytes is the size of the buffer of a resultWriter.
const resultBufferBytes = 64 << 10

// A resultWriter hashes the result of a delta and writes it to the spool.
type resultWriter struct {
	spool     io.WriterAt
	hasher    *object.Hasher
	buf       []byte // not written yet
	offset    int64  // of buf in the spool
	remaining int64  // bytes of the result that are still to come
}

func (s *resultWriter) begin(t object.Type, size, offset int64) {
	s.buf, s.offset, s.remaining = s.buf[:0], offset, size
	s.hasher.Begin(t, size)
}

// next returns a slice of up to n bytes to be filled, which then counts as written.
func (s *resultWriter) next(n int64) ([]byte, error) {
	if len(s.buf) == cap(s.buf) {
		if err := s.flush(); err != nil {
			return nil, err
		}
	}
	at := len(s.buf)
	n = min(n, int64(cap(s.buf)-at))
	s.buf = s.buf[:at+int(n)]
	s.remaining -= n
	return s.buf[at:], nil
}

func (s *resultWriter) flush() error {
	s.hasher.Write(s.buf)
	_, err := s.spool.WriteAt(s.buf, s.offset)
	s.offset += int64(len(s.buf))
	s.buf = s.buf[:0]
	return err
}

// deltaSize reads a size: 7 bits a byte, the least significant first.
func deltaSize(delta *bufio.Reader) (size int64, err error) {
	for shift := 0; ; shift += 7 {
		b, err := delta.ReadByte()
		if err != nil {
			return 0, deltaError(err)
		}
		if shift > 55 {
			return 0, fmt.Errorf("%w: a delta with a size of more than 62 bits", object.ErrCorrupt)
		}
		size |= int64(b&0x7f) << shift
		if b&0x80 == 0 {
			return size, nil
		}
	}
}

// deltaError turns an early end of a delta into an error that wraps
// [object.ErrCorrupt].
func deltaError(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("%w: a delta is truncated", object.ErrCorrupt)
	}
	return err
}

// apply runs the instructions of delta. Their result must have exactly the declared
// size.
func apply(out *resultWriter, base io.ReaderAt, baseSize int64, delta *bufio.Reader) error {
	for {
		op, err := delta.ReadByte()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		switch {
		case op&0x80 != 0:
			err = copyBase(out, base, baseSize, delta, op)
		case op != 0:
			err = insert(out, delta, int64(op))
		default:
			err = fmt.Errorf("%w: a delta with the reserved instruction 0", object.ErrCorrupt)
		}
		if err != nil {
			return err
		}
	}
	if out.remaining != 0 {
		return fmt.Errorf("%w: a delta makes %d bytes less than it says", object.ErrCorrupt, out.remaining)
	}
	return out.flush()
}

// copyBase runs a copy instruction: the low seven bits of op say which bytes of
// offset (4) and size (3) follow; size 0 means 64 KiB.
func copyBase(out *resultWriter, base io.ReaderAt, baseSize int64, delta *bufio.Reader, op byte) error {
	var args [7]int64
	for i := range args {
		if op>>i&1 != 0 {
			b, err := delta.ReadByte()
			if err != nil {
				return deltaError(err)
			}
			args[i] = int64(b)
		}
	}
	offset := args[0] | args[1]<<8 | args[2]<<16 | args[3]<<24
	size := args[4] | args[5]<<8 | args[6]<<16
	if size == 0 {
		size = 64 << 10
	}
	if offset+size > baseSize || size > out.remaining {
		return fmt.Errorf("%w: a delta copies what its base does not have, or more than it says", object.ErrCorrupt)
	}
	for size > 0 {
		p, err := out.next(size)
		if err != nil {
			return err
		}
		if _, err := base.ReadAt(p, offset); err != nil && err != io.EOF {
			return err
		}
		offset += int64(len(p))
		size -= int64(len(p))
	}
	return nil
}

// insert runs an insert instruction of n bytes.
func insert(out *resultWriter, delta *bufio.Reader, n int64) error {
	if n > out.remaining {
		return fmt.Errorf("%w: a delta makes more bytes than it says", object.ErrCorrupt)
	}
	for n > 0 {
		p, err := out.next(n)
		if err != nil {
			return err
		}
		if _, err := io.ReadFull(delta, p); err != nil {
			return deltaError(err)
		}
		n -= int64(len(p))
	}
	return nil
}
