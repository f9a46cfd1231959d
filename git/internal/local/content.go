package local

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/klauspost/compress/zlib"

	"github.com/headgate-io/headgate/git/internal/object"
)

// An inflater is a zlib reader that is used again and again.
type inflater struct {
	in *bufio.Reader
	io.ReadCloser
}

func (r *Repo) inflater() *inflater { return r.pool.Get().(*inflater) }

// reset begins to read the stream in from.
func (z *inflater) reset(from io.Reader) (err error) {
	if z.in == nil {
		z.in = bufio.NewReaderSize(from, 16<<10)
		z.ReadCloser, err = zlib.NewReader(z.in)
		if err != nil {
			z.in = nil
		}
		return damaged(err)
	}
	z.in.Reset(from)
	return damaged(z.ReadCloser.(zlib.Resetter).Reset(z.in, nil))
}

// damaged makes an error of the inflater one about the object. Errors of the
// file below are passed on.
func damaged(err error) error {
	var path *fs.PathError
	if err == nil || err == io.EOF || errors.As(err, &path) {
		return err
	}
	return fmt.Errorf("%w: %w", object.ErrCorrupt, err)
}

// section returns the pack from an offset on.
func (p *pack) section(offset int64) io.Reader {
	return io.NewSectionReader(p.data, offset, p.dataSize-offset)
}

// A stream is the content of an object that is stored whole.
type stream struct {
	*inflater
	repo *Repo
	file *os.File // of a loose object
}

func (s *stream) Read(p []byte) (int, error) {
	if s.inflater == nil {
		return 0, fs.ErrClosed
	}
	n, err := s.inflater.Read(p)
	return n, damaged(err)
}

func (s *stream) Close() error {
	if s.inflater == nil {
		return fs.ErrClosed
	}
	s.repo.pool.Put(s.inflater)
	s.inflater = nil
	if s.file != nil {
		return s.file.Close()
	}
	return nil
}

// checked gives content of a known size, and its last byte only if it has the
// right ID.
type checked struct {
	io.ReadCloser
	id     object.ID
	left   int64
	hasher *object.Hasher
	err    error
}

func newChecked(id object.ID, t object.Type, size int64, content io.ReadCloser) *checked {
	c := &checked{ReadCloser: content, id: id, left: size, hasher: object.NewHasher(id.Format())}
	c.hasher.Begin(t, size)
	return c
}

func (c *checked) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.ReadCloser.Read(p[:min(int64(len(p)), c.left)])
	c.hasher.Write(p[:n])
	c.left -= int64(n)
	switch {
	case c.left == 0:
		c.err = c.check()
	case err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF):
		c.err = fmt.Errorf("object %v: %w: it is truncated", c.id, object.ErrCorrupt)
	default:
		c.err = wrap(c.id, err)
	}
	if c.err != nil {
		return 0, c.err
	}
	return n, nil
}

// check compares the content that was read with the ID.
func (c *checked) check() error {
	got, err := c.hasher.ID()
	if err == nil && got != c.id {
		err = fmt.Errorf("object %v: %w: its content is that of %v", c.id, object.ErrCorrupt, got)
	}
	return err
}
