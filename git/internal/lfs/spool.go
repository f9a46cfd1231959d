package lfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// An Object is one that is to be fetched.
type Object struct {
	Pointer
	Path   string // of a file that it stands in, for messages
	offset int64  // in the spool
}

// A Spool holds objects in one temporary file, each in its own place. It is safe
// for concurrent use.
type Spool struct {
	file *os.File
	name string // to be removed with Close, "" when it has none

	mu       sync.Mutex
	done     int64
	total    int64
	progress func(done, total int64)
}

// newSpool creates the spool with temp; nil means a file in [os.TempDir].
func newSpool(temp func() (*os.File, error), total int64, progress func(done, total int64)) (*Spool, error) {
	s := &Spool{total: total, progress: progress}
	var err error
	if temp != nil {
		s.file, err = temp()
	} else if s.file, err = os.CreateTemp("", "headgate-lfs-*"); err == nil {
		if s.name = s.file.Name(); os.Remove(s.name) == nil { // where an open file can lose its name
			s.name = ""
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create spool: %w", err)
	}
	return s, nil
}

// Close removes the spool.
func (s *Spool) Close() error {
	err := s.file.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// open returns the content of an object.
func (s *Spool) open(o Object) io.ReaderAt { return io.NewSectionReader(s.file, o.offset, o.Size) }

// A ContentError says that what was received is not what the pointer tells.
type ContentError struct{ problem string }

func (e *ContentError) Error() string { return e.problem }

// Receive takes the content of an object from r and checks it. It reads at most
// one byte more than it wants. The error is a [*ContentError] when there is more,
// or other content, and wraps [io.ErrUnexpectedEOF] when there is less; then the
// object can be received again.
func (s *Spool) Receive(ctx context.Context, o Object, r io.Reader) error {
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(io.NewOffsetWriter(s.file, o.offset), sum, counter{ctx, s}), io.LimitReader(r, o.Size))
	if err == nil && n == o.Size {
		if more, _ := io.ReadFull(r, make([]byte, 1)); more > 0 {
			err = &ContentError{fmt.Sprintf("more than the %d bytes that its pointer tells", o.Size)}
		}
	}
	switch digest := hex.EncodeToString(sum.Sum(nil)); {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
	case n < o.Size:
		err = fmt.Errorf("it ends after %d of %d bytes: %w", n, o.Size, io.ErrUnexpectedEOF)
	case digest != o.OID:
		err = &ContentError{fmt.Sprintf("its SHA-256 is %s, not that of its pointer", digest)}
	}
	if err != nil {
		s.report(-n)
	}
	return err
}

// A counter reports the bytes that are written to it, and fails when ctx ends.
type counter struct {
	ctx   context.Context
	spool *Spool
}

func (c counter) Write(p []byte) (int, error) {
	c.spool.report(int64(len(p)))
	return len(p), c.ctx.Err()
}

// report adds n bytes to the progress.
func (s *Spool) report(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.done += n; s.progress != nil && n > 0 {
		s.progress(s.done, s.total)
	}
}
