package artifact

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
)

// Put stores the output of write as file of the object dir (KIND/NAMESPACE/NAME) and returns the
// artifact without Revision and Metadata.
//
// Nothing is visible before the whole file has reached the disk, and nothing remains if write
// returns an error or panics, if one of its writes failed, or if ctx ends. If the volume is full,
// Put deletes entries of the store's cache and retries the write. Content that the object already
// has under the same file name is kept; its update time changes only if a newer artifact had
// superseded it.
//
// The writer passed to write has a method Sum() string, which returns the digest of the bytes
// written so far, in the algorithm of the store. A caller that knows the expected digest need not
// hash the bytes again.
//
// A caller that also prunes must hold [Store.Lock] during both.
func (s *Store) Put(ctx context.Context, dir, file string, write func(io.Writer) error) (_ Artifact, err error) {
	defer wrap(&err, "store %q of %s", file, dir)
	if err := cmp.Or(checkDir(dir), checkName(file), ctx.Err()); err != nil {
		return Artifact{}, err
	}
	h, err := s.algorithm.New()
	if err != nil {
		return Artifact{}, err
	}
	t, err := s.temp.create()
	if err != nil {
		return Artifact{}, err
	}
	defer t.Close()
	defer t.discard()
	out := &putWriter{ctx: ctx, store: s, file: t, hash: h}
	err = write(out)
	if err = cmp.Or(err, out.err, ctx.Err()); err != nil {
		return Artifact{}, err
	}
	digest := out.Sum()
	return s.publish(ctx, t, storePath{dir: dir, hex: digest[len(s.algorithm)+1:], file: file}, digest)
}

// publish moves t to p, unless p already has the same content.
func (s *Store) publish(ctx context.Context, t *tempFile, p storePath, digest string) (Artifact, error) {
	reused, err := s.reuse(ctx, p, digest)
	if err != nil {
		return Artifact{}, err
	}
	if reused {
		err = durable.SyncUp(s.root, p.folder())
	} else {
		now := s.now()
		if err = s.root.Chtimes(t.name, now, now); err == nil {
			err = s.moveDurably(t, p.path())
		}
		if err != nil && t.name == "" {
			err = errors.Join(err, s.root.Remove(p.path()))
		}
	}
	if err != nil {
		return Artifact{}, err
	}
	f, err := s.open(p, digest)
	if err != nil {
		return Artifact{}, err
	}
	defer f.Close()
	s.writeRecord(f, digest)
	return s.describe(stored{p, f.info}, digest), nil
}

// reuse reports whether p already has the content of digest; if so, it makes p the newest of its
// object.
func (s *Store) reuse(ctx context.Context, p storePath, digest string) (bool, error) {
	f, err := s.open(p, digest)
	if err == nil {
		err = errors.Join(s.hash(ctx, f), f.Close())
	}
	_, corrupt := errors.AsType[*DigestError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist), corrupt:
		return false, nil
	case err != nil:
		return false, err
	}
	list, err := s.list(p.dir)
	if err != nil || len(list) == 0 || list[0].storePath == p {
		return err == nil, err
	}
	now := s.now()
	return true, s.root.Chtimes(p.path(), now, now)
}

// moveDurably moves t to a path in the store, durably: first the content, then the entries of the
// directory and of each parent.
func (s *Store) moveDurably(t *tempFile, name string) error {
	if err := t.Sync(); err != nil {
		return err
	}
	if err := t.move(name); err != nil {
		return err
	}
	return durable.SyncUp(s.root, path.Dir(name))
}

// Temp opens an anonymous file in the store's own temporary directory. It has no name and is
// deleted when it is closed or the process ends.
func (s *Store) Temp() (_ *os.File, err error) {
	defer wrap(&err, "temporary file in the store")
	f, err := s.temp.create()
	if err != nil {
		return nil, err
	}
	if err := s.root.Remove(f.name); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.File, nil
}

// A boundedWriter accepts a limited number of bytes until its context ends. It remembers the first failure
// even if the caller ignores it.
type boundedWriter struct {
	ctx      context.Context
	w        io.Writer
	n, limit int64
	err      error
}

func (s *boundedWriter) Write(b []byte) (n int, err error) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err == nil && int64(len(b)) > s.limit-s.n {
		s.err = &LimitError{What: "bytes", Limit: s.limit}
	}
	if s.err != nil {
		return 0, s.err
	}
	n, s.err = s.w.Write(b)
	s.n += int64(n)
	return n, s.err
}

// A putWriter writes to a file of a store until its context ends, and hashes the bytes written. It
// remembers the first failure even if the caller ignores it.
type putWriter struct {
	ctx   context.Context
	store *Store
	file  *tempFile
	hash  hash.Hash
	err   error
}

// Write implements [io.Writer]. If the volume is full, it deletes cache entries and retries.
func (w *putWriter) Write(p []byte) (n int, err error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	for w.err == nil && n < len(p) {
		m, err := w.file.Write(p[n:])
		w.hash.Write(p[n : n+m])
		n += m
		if !durable.IsNoSpace(err) || !w.store.shrinkCache(2) {
			w.err = err
		}
	}
	return n, w.err
}

// Sum returns the digest of what was written.
func (w *putWriter) Sum() string {
	return string(w.store.algorithm) + ":" + hex.EncodeToString(w.hash.Sum(nil))
}

// Point makes the pointer name of the object dir refer to a, an artifact of the same object, and
// returns its URL for status.url, at which [Store.Handler] serves a. The change is atomic and
// durable.
//
// Only the handler resolves pointers. A store without a base URL serves nothing, so the returned
// URL is that of a itself.
func (s *Store) Point(dir, name string, a Artifact) (_ string, err error) {
	defer wrap(&err, "point %q of %s to artifact", name, dir)
	if err := s.point(dir, name, a); err != nil {
		return "", err
	}
	if strings.HasPrefix(s.base, "file:") {
		return s.URL(a.Path), nil
	}
	return s.URL(dir + "/" + name), nil
}

func (s *Store) point(dir, name string, a Artifact) error {
	if err := cmp.Or(checkDir(dir), checkName(name)); err != nil {
		return err
	}
	p, _, err := locate(a)
	if err != nil {
		return err
	}
	if p.dir != dir {
		return fmt.Errorf("%w target: artifact %q is another object's", fs.ErrInvalid, a.Path)
	}
	if _, err := s.root.Lstat(p.path()); err != nil {
		return err
	}
	if old, _, err := s.target(dir, name); err == nil && old == p {
		return nil
	}
	t, err := s.temp.create()
	if err != nil {
		return err
	}
	defer t.Close()
	defer t.discard()
	if _, err := io.WriteString(t, p.path()); err != nil {
		return err
	}
	return s.moveDurably(t, objectDir+"/"+dir+"/"+name)
}

// target returns the target of a pointer and when the pointer last changed.
func (s *Store) target(dir, name string) (p storePath, moved time.Time, err error) {
	pointer := objectDir + "/" + dir + "/" + name
	f, info, err := s.openRegular(pointer)
	if err != nil {
		return storePath{}, time.Time{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return storePath{}, time.Time{}, err
	}
	p, ok := parsePath(string(text))
	if !ok || p.dir != dir {
		return storePath{}, time.Time{}, &fs.PathError{Op: "read pointer", Path: pointer, Err: fs.ErrInvalid}
	}
	return p, info.ModTime(), nil
}

// Lock acquires the lock of the object dir (KIND/NAMESPACE/NAME), which serializes writers in this
// process and in others. It waits until it has the lock or ctx ends. The lock is released by
// unlock, which may be called more than once, or when the process exits.
func (s *Store) Lock(ctx context.Context, dir string) (unlock func(), err error) {
	defer wrap(&err, "lock %s", dir)
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	return s.locks.acquire(ctx, s.root, lockPath(dir))
}

func lockPath(dir string) string { return objectDir + "/" + dir + "/.lock" }

// A SpaceError reports that the volume of a store is full even after its cache was emptied. It
// unwraps to the original error.
type SpaceError struct{ Err error }

func (e *SpaceError) Error() string { return e.Err.Error() }

// Unwrap returns the original error.
func (e *SpaceError) Unwrap() error { return e.Err }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// WithRoom calls do. If do fails because the volume is full, WithRoom deletes the least recently
// used half of the bytes in the store's cache and calls do again, and then once more with an empty
// cache. If that is not enough, the error is a *[SpaceError].
func (s *Store) WithRoom(do func() error) error {
	err := do()
	for _, share := range []int64{2, 1} {
		if !durable.IsNoSpace(err) {
			return err
		}
		if s.shrinkCache(share) {
			err = do()
		}
	}
	if _, ok := errors.AsType[*SpaceError](err); ok || !durable.IsNoSpace(err) {
		return err
	}
	var stored int64
	for a := range s.All() {
		stored += a.Size
	}
	cache := "it has no cache"
	if s.cache != nil {
		size, _ := s.cache.Size()
		cache = fmt.Sprintf("its cache %s %s", s.cache.root.Name(), mebibytes(size))
	}
	return &SpaceError{fmt.Errorf("%w: the volume is full: the store %s has %s of artifacts, %s: make room on it, or keep fewer superseded artifacts",
		err, s.root.Name(), mebibytes(stored), cache)}
}

// shrinkCache deletes 1/share of the bytes in the cache, least recently used entries first. It reports
// whether it deleted anything.
func (s *Store) shrinkCache(share int64) bool {
	if s.cache == nil {
		return false
	}
	n, _, _, _ := s.cache.shrink(func(total int64) int64 { return total - total/share })
	return n > 0
}

// Writable returns nil if the store can be written: it writes a small temporary file and deletes
// it. The error is a *[SpaceError] if the volume is full.
func (s *Store) Writable() error {
	return s.WithRoom(func() error {
		f, err := s.Temp()
		if err != nil {
			return err
		}
		_, err = f.Write(make([]byte, 64<<10))
		return errors.Join(err, f.Close())
	})
}
