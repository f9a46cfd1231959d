package packfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/headgate-io/headgate/git/internal/object"
)

// An inflater decompresses the zlib streams (RFC 1950) of an input, one after the
// other. The input is an io.ByteReader, so flate consumes no byte beyond the end of a
// stream.
type inflater struct {
	in    *input
	flate io.ReadCloser
}

func newInflater(in *input) *inflater {
	return &inflater{in, flate.NewReader(in.Reader)}
}

// begin starts a stream.
func (f *inflater) begin() error {
	var head [2]byte
	if _, err := io.ReadFull(f.in, head[:]); err != nil {
		return truncatedError(err)
	}
	if head[0]&0x0f != 8 || head[1]&0x20 != 0 || (uint(head[0])<<8|uint(head[1]))%31 != 0 {
		return fmt.Errorf("%w: an object is not compressed by zlib", object.ErrCorrupt)
	}
	return f.flate.(flate.Resetter).Reset(f.in.Reader, nil)
}

// fill inflates into the whole of buf.
func (f *inflater) fill(buf []byte) error {
	for len(buf) > 0 {
		n, err := f.flate.Read(buf)
		buf = buf[n:]
		switch {
		case err == io.EOF && len(buf) > 0:
			return fmt.Errorf("%w: an object is smaller than it says", object.ErrCorrupt)
		case err != nil && err != io.EOF:
			return inflateError(err)
		}
	}
	return nil
}

// end makes sure that the stream holds nothing more, and skips its checksum.
func (f *inflater) end() error {
	var more [1]byte
	switch n, err := f.flate.Read(more[:]); {
	case n > 0:
		return fmt.Errorf("%w: an object is larger than it says", object.ErrCorrupt)
	case err != io.EOF:
		return inflateError(err)
	}
	_, err := f.in.Discard(4)
	return truncatedError(err)
}

// inflateError wraps errors of flate in [object.ErrCorrupt] and passes on errors of
// the input.
func inflateError(err error) error {
	if corrupt, ok := errors.AsType[flate.CorruptInputError](err); ok {
		return fmt.Errorf("%w: an object is not compressed well: %w", object.ErrCorrupt, corrupt)
	}
	return truncatedError(err)
}
