package artifact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/headgate-io/headgate/internal/durable"
)

// Check reports whether a is present and as recorded.
//
// It compares size, modification time and inode with those that the last full
// hash found, by [Store.Put] or [Store.Verify] of any process; only when they
// differ it hashes the file again. It costs no more than opening two files, and
// misses damage that leaves all three as they were: [Store.Verify] finds that.
//
// The error wraps [fs.ErrNotExist] when a is not in the store, and is a
// [DigestError] when its content is not what was stored.
func (s *Store) Check(a Artifact) error {
	if err := s.examine(a, func(p storePath, digest string, f *os.File, info fs.FileInfo) error {
		return s.intact(p, digest, f, info)
	}); err != nil {
		return fmt.Errorf("check artifact %q: %w", a.Path, err)
	}
	return nil
}

// Verify hashes the whole of a and compares, with the errors of [Store.Check].
func (s *Store) Verify(ctx context.Context, a Artifact) error {
	if err := s.examine(a, func(p storePath, digest string, f *os.File, info fs.FileInfo) error {
		return s.hash(ctx, p, digest, f, info)
	}); err != nil {
		return fmt.Errorf("verify artifact %q: %w", a.Path, err)
	}
	return nil
}

// examine opens a and has check judge it.
func (s *Store) examine(a Artifact, check func(p storePath, digest string, f *os.File, info fs.FileInfo) error) error {
	p, digest, err := locate(a)
	if err != nil {
		return err
	}
	f, info, err := s.openRegular(p.path())
	if err != nil {
		return err
	}
	defer f.Close()
	return check(p, digest, f, info)
}

// intact checks that f, which lies at p and which info describes, has digest.
// It hashes f unless f is as recorded.
func (s *Store) intact(p storePath, digest string, f *os.File, info fs.FileInfo) error {
	algorithm, _, _ := strings.Cut(digest, ":")
	switch found := s.recorded(p, f, info); {
	case found == digest:
		return nil
	case strings.HasPrefix(found, algorithm+":"):
		return &DigestError{Want: digest, Got: found}
	}
	return s.hash(context.Background(), p, digest, f, info)
}

// hash hashes the whole of f, which lies at p and which info describes, and
// records what it found. The error is a [DigestError] when that is not digest.
func (s *Store) hash(ctx context.Context, p storePath, digest string, f *os.File, info fs.FileInfo) error {
	r, err := VerifyReader(f, digest)
	if err == nil {
		_, err = io.Copy(&sink{ctx: ctx, w: io.Discard}, r)
	}
	found := digest
	corrupt, damaged := errors.AsType[*DigestError](err)
	if damaged {
		found = corrupt.Got
	}
	if (err == nil || damaged) && unmoved(f, info) {
		s.remember(p, found, f, info)
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
	p, digest, err := locate(a)
	if err != nil {
		return nil, fmt.Errorf("open artifact %q: %w", a.Path, err)
	}
	f, _, err := s.openRegular(p.path())
	if err != nil {
		return nil, fmt.Errorf("open artifact: %w", err)
	}
	r, err := VerifyReader(f, digest)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open artifact %q: %w", a.Path, err), f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{r, f}, nil
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

// The record of a file is one line: the digest that its content has, size,
// modification time in nanoseconds, inode. It is a cache: a torn or lost one
// costs one hash, so errors of writing it do not matter.
const recordLine = "%s %d %d %d\n"

// remember records that f, which info describes, has digest.
func (s *Store) remember(p storePath, digest string, f *os.File, info fs.FileInfo) {
	if id, err := durable.FileID(f); err == nil {
		line := fmt.Appendf(nil, recordLine, digest, info.Size(), info.ModTime().UnixNano(), id)
		s.root.WriteFile(p.record(), line, 0o600)
	}
}

// recorded returns the digest that the last full hash of f found, "" when f has
// changed since.
func (s *Store) recorded(p storePath, f *os.File, info fs.FileInfo) string {
	digest, size, mtime, id := s.readRecord(p)
	now, err := durable.FileID(f)
	if err != nil || size != info.Size() || mtime != info.ModTime().UnixNano() || id != now {
		return ""
	}
	return digest
}

// readRecord reads the record of p; without one the digest is "".
func (s *Store) readRecord(p storePath) (digest string, size, mtime int64, id uint64) {
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
