package packfile

import (
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"

	"github.com/headgate-io/headgate/git/internal/object"
)

// An inflater decompresses one zlib stream (RFC 1950) after the other from an
// input, of which it consumes no byte too many.
type inflater struct {
	in *input
	z  io.ReadCloser
}

func newInflater(in *input) *inflater { return &inflater{in, flate.NewReader(in)} }

// begin starts a stream.
func (f *inflater) begin() error {
	head, err := f.in.Peek(2)
	if err != nil {
		return truncated(err)
	}
	if head[0]&0x0f != 8 || head[1]&0x20 != 0 || (int(head[0])<<8|int(head[1]))%31 != 0 {
		return fmt.Errorf("%w: an object is not compressed by zlib", object.ErrCorrupt)
	}
	f.in.Discard(2)
	return f.z.(flate.Resetter).Reset(f.in.Reader, nil)
}

// fill inflates into all of p.
func (f *inflater) fill(p []byte) error {
	if _, err := io.ReadFull(f.z, p); err != nil {
		return inflateError(err)
	}
	return nil
}

// end makes sure that the stream holds nothing more.
func (f *inflater) end() error {
	var one [1]byte
	if n, err := f.z.Read(one[:]); n != 0 || err == nil {
		return fmt.Errorf("%w: an object is larger than it says", object.ErrCorrupt)
	} else if err != io.EOF {
		return inflateError(err)
	}
	if _, err := f.in.Discard(4); err != nil {
		return truncated(err)
	}
	return nil
}

// inflateError tells damage of the stream from an error of the reader below.
func inflateError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) {
		return fmt.Errorf("%w: an object is not compressed correctly: %w", object.ErrCorrupt, err)
	}
	return truncated(err)
}
