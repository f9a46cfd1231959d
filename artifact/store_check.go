package artifact

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
)

// A DigestError reports content that is not what its digest says.
type DigestError struct {
	Name string // path or URL of the content
	Want string // the digest it should have
	Got  string // the digest or the size it has
}

func (e *DigestError) Error() string {
	return fmt.Sprintf("%s is corrupt: want %s, got %s", e.Name, e.Want, e.Got)
}

// Check reports whether a is present and as recorded.
//
// It compares size, modification time and inode with those that the last full
// hash found, by [Store.Put] or [Store.Verify] of any process; only when they
// differ it hashes the file again. It costs no more than opening two files,
// and misses damage that leaves all three as they were: that is what
// [Store.Verify] is for.
//
// The error wraps [fs.ErrNotExist] when a is not in the store, and is a
// [DigestError] when its content is not what was stored.
func (s *Store) Check(a Artifact) error {
	err := s.examine(context.Background(), a, s.recorded)
	if err != nil {
		return fmt.Errorf("check artifact: %w", err)
	}
	return nil
}

// Verify hashes the whole of a and compares, with the errors of [Store.Check].
func (s *Store) Verify(ctx context.Context, a Artifact) error {
	never := func(place, *os.File, fs.FileInfo) string { return "" }
	if err := s.examine(ctx, a, never); err != nil {
		return fmt.Errorf("verify artifact: %w", err)
	}
	return nil
}

// examine hashes a, unless recorded knows its digest.
func (s *Store) examine(ctx context.Context, a Artifact, recorded func(place, *os.File, fs.FileInfo) string) error {
	p, f, info, err := s.open(a)
	if err != nil {
		return err
	}
	defer f.Close()
	if recorded(p, f, info) == a.Digest {
		return nil
	}
	r, err := newDigestReader(ctx, f, a.Path, a.Digest)
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	var corrupt *DigestError
	switch {
	case errors.As(err, &corrupt):
		s.root.Remove(p.record())
	case err == nil && unmoved(f, info):
		s.remember(p, a.Digest, f, info)
	}
	return err
}

// unmoved reports whether f is as it was when info was taken.
func unmoved(f *os.File, info fs.FileInfo) bool {
	now, err := f.Stat()
	return err == nil && now.Size() == info.Size() && now.ModTime().Equal(info.ModTime())
}

// Open opens a. Reading it fails at the end, with a [DigestError], when the
// content is not what was stored.
func (s *Store) Open(a Artifact) (io.ReadCloser, error) {
	_, f, _, err := s.open(a)
	if err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	r, err := newDigestReader(context.Background(), f, a.Path, a.Digest)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open artifact: %w", err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{r, f}, nil
}

// open opens the file of a, which has the size that a says.
func (s *Store) open(a Artifact) (place, *os.File, fs.FileInfo, error) {
	p, err := locate(a)
	if err != nil {
		return p, nil, nil, err
	}
	f, info, err := s.openRegular(p.path())
	if err != nil {
		return p, nil, nil, err
	}
	if a.Size > 0 && a.Size != info.Size() {
		err := &DigestError{Name: a.Path, Want: fmt.Sprintf("%d bytes", a.Size), Got: fmt.Sprintf("%d bytes", info.Size())}
		return p, nil, nil, errors.Join(err, f.Close())
	}
	return p, f, info, nil
}

// openRegular opens a regular file. Anything else, a link too, is no file of
// the store and does not exist.
func (s *Store) openRegular(name string) (*os.File, fs.FileInfo, error) {
	info, err := s.root.Lstat(name)
	if err == nil && !info.Mode().IsRegular() {
		err = &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if err != nil {
		return nil, nil, err
	}
	f, err := s.root.Open(name)
	if err != nil {
		return nil, nil, err
	}
	if info, err = f.Stat(); err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, info, nil
}

// The record of a file is one line: digest, size, modification time in
// nanoseconds, inode. It is a cache: a torn or lost one costs one hash, so
// errors of writing it do not matter.
const recordLine = "%s %d %d %d\n"

// remember records that f, which info describes, has digest.
func (s *Store) remember(p place, digest string, f *os.File, info fs.FileInfo) {
	if id, err := fileID(f); err == nil {
		line := fmt.Appendf(nil, recordLine, digest, info.Size(), info.ModTime().UnixNano(), id)
		s.root.WriteFile(p.record(), line, 0o600)
	}
}

// recorded returns the digest that the record has for f, "" when f is not as
// recorded.
func (s *Store) recorded(p place, f *os.File, info fs.FileInfo) string {
	digest, size, mtime, id := s.readRecord(p)
	now, err := fileID(f)
	if err != nil || size != info.Size() || mtime != info.ModTime().UnixNano() || id != now {
		return ""
	}
	return digest
}

// readRecord reads the record of p; without one the digest is "".
func (s *Store) readRecord(p place) (digest string, size, mtime int64, id uint64) {
	f, info, err := s.openRegular(p.record())
	if err != nil {
		return "", 0, 0, 0
	}
	defer f.Close()
	line := make([]byte, min(info.Size(), 512))
	if _, err := io.ReadFull(f, line); err != nil {
		return "", 0, 0, 0
	}
	_, err = fmt.Sscanf(string(line), recordLine, &digest, &size, &mtime, &id)
	if err != nil || line[len(line)-1] != '\n' {
		return "", 0, 0, 0
	}
	return digest, size, mtime, id
}

// A digestReader fails at the end of what it reads when that has another
// digest than it should.
type digestReader struct {
	ctx        context.Context
	r          io.Reader
	h          hash.Hash
	name, want string
}

func newDigestReader(ctx context.Context, r io.Reader, name, want string) (*digestReader, error) {
	algorithm, _, ok := splitDigest(want)
	if !ok {
		return nil, fmt.Errorf("digest %q: want ALGORITHM:HEX: %w", want, fs.ErrInvalid)
	}
	h, err := algorithm.New()
	if err != nil {
		return nil, err
	}
	return &digestReader{ctx: ctx, r: r, h: h, name: name, want: want}, nil
}

func (d *digestReader) Read(b []byte) (int, error) {
	if err := d.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := d.r.Read(b)
	d.h.Write(b[:n])
	if err == io.EOF {
		if mismatch := d.compare(); mismatch != nil {
			return n, mismatch
		}
	}
	return n, err
}

// compare reports whether what was read so far has the digest.
func (d *digestReader) compare() error {
	algorithm, want, _ := splitDigest(d.want)
	if got := hex.EncodeToString(d.h.Sum(nil)); got != want {
		return &DigestError{Name: d.name, Want: d.want, Got: string(algorithm) + ":" + got}
	}
	return nil
}
