package packfile

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/headgate-io/headgate/git/internal/object"
)

// inputBytes is the size of the stream's buffer.
const inputBytes = 128 << 10

// An input reads the stream of a pack: it buffers, counts, limits and hashes it.
type input struct {
	*bufio.Reader
	raw *checksumReader
}

func newInput(r io.Reader, f object.Format, limit int64) *input {
	raw := &checksumReader{r: r, limit: limit, size: f.Size()}
	// The trailer guards against damage, not against an attacker, who can
	// compute it as well: plain SHA-1 will do.
	if raw.sum = sha1.New(); f == object.SHA256 {
		raw.sum = sha256.New()
	}
	return &input{bufio.NewReaderSize(raw, inputBytes), raw}
}

// offset returns the number of bytes consumed.
func (in *input) offset() int64 { return in.raw.n - int64(in.Buffered()) }

// finish reads the trailer. It returns an error unless the trailer matches and ends
// the stream.
func (in *input) finish() error {
	trailer := make([]byte, in.raw.size)
	if _, err := io.ReadFull(in, trailer); err != nil {
		return truncatedError(err)
	}
	switch _, err := in.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: data after the end of the pack", object.ErrCorrupt)
	case err != io.EOF:
		return err
	}
	if !bytes.Equal(trailer, in.raw.sum.Sum(nil)) {
		return fmt.Errorf("%w: the checksum of the pack does not match: it was damaged on the way", object.ErrCorrupt)
	}
	return nil
}

// truncatedError turns an early end of the stream into an error that says so and wraps
// [object.ErrCorrupt]. It returns other errors unchanged.
func truncatedError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: the pack is truncated: %w", object.ErrCorrupt, io.ErrUnexpectedEOF)
	}
	return err
}

// A checksumReader reads r up to a limit. It hashes everything but the last size bytes, which
// are the checksum of the rest.
type checksumReader struct {
	r     io.Reader
	n     int64 // bytes read
	limit int64
	sum   hash.Hash
	size  int
	tail  []byte // the last bytes read, not hashed yet
}

func (s *checksumReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if s.n += int64(n); s.n > s.limit {
		return 0, &LimitError{"PackBytes", s.limit}
	}
	if n < s.size {
		s.tail = append(s.tail, p[:n]...)
		excess := max(0, len(s.tail)-s.size)
		s.sum.Write(s.tail[:excess])
		s.tail = append(s.tail[:0], s.tail[excess:]...)
		return n, err
	}
	s.sum.Write(s.tail)
	s.sum.Write(p[:n-s.size])
	s.tail = append(s.tail[:0], p[n-s.size:n]...)
	return n, err
}
