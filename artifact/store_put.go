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

// Put stores what write writes as file of the object dir
// (KIND/NAMESPACE/NAME), and returns the artifact without Revision and
// Metadata.
//
// Nothing is visible before the whole file has reached the disk, and nothing
// remains when write returns an error or panics, when any of its writes
// failed, or when ctx ends. A write for which there is no space is tried again
// when the cache of the store has given way. Content that the object already has under the same
// file name is kept; its time of update changes only when something newer had
// superseded it.
//
// The writer that write gets has a method Sum() string, which returns the
// digest of what was written to it so far, in the algorithm of the store: who
// knows what it must be need not hash the same bytes again.
//
// A caller that also prunes holds [Store.Lock] over both.
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

// publish moves t to p, unless the same content is there already.
func (s *Store) publish(ctx context.Context, t *tempFile, p storePath, digest string) (Artifact, error) {
	kept, err := s.retain(ctx, p, digest)
	if err != nil {
		return Artifact{}, err
	}
	if kept {
		err = durable.SyncUp(s.root, p.folder())
	} else {
		now := s.now()
		if err = s.root.Chtimes(t.name, now, now); err == nil {
			err = s.place(t, p.path())
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
	s.remember(f, digest)
	return s.describe(stored{p, f.info}, digest), nil
}

// retain reports whether p holds the content of digest already, and makes it
// the newest of its object.
func (s *Store) retain(ctx context.Context, p storePath, digest string) (bool, error) {
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

// place gives t the name of a path in the store, durably: the content, then the
// entries of the directory and of each one above it.
func (s *Store) place(t *tempFile, name string) error {
	if err := t.Sync(); err != nil {
		return err
	}
	if err := t.move(name); err != nil {
		return err
	}
	return durable.SyncUp(s.root, path.Dir(name))
}

// Temp opens an anonymous file in the store's own temporary directory. It has
// no name: closing it, or the end of the process, removes it.
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

// A sink takes a limited number of bytes until its context ends, and remembers
// the first failure even if its user forgets it.
type sink struct {
	ctx      context.Context
	w        io.Writer
	n, limit int64
	err      error
}

func (s *sink) Write(b []byte) (n int, err error) {
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

// A putWriter writes to a file of a store until its context ends, and hashes what it
// wrote. It remembers the first failure even if its user forgets it.
type putWriter struct {
	ctx   context.Context
	store *Store
	file  *tempFile
	hash  hash.Hash
	err   error
}

// Write implements [io.Writer]. The cache of the store gives way when there is no space.
func (w *putWriter) Write(p []byte) (n int, err error) {
	if w.err == nil {
		w.err = w.ctx.Err()
	}
	for w.err == nil && n < len(p) {
		m, err := w.file.Write(p[n:])
		w.hash.Write(p[n : n+m])
		n += m
		if !durable.NoSpace(err) || !w.store.giveWay(2) {
			w.err = err
		}
	}
	return n, w.err
}

// Sum returns the digest of what was written.
func (w *putWriter) Sum() string {
	return string(w.store.algorithm) + ":" + hex.EncodeToString(w.hash.Sum(nil))
}

// Point makes the pointer name of the object dir lead to a, an artifact of the
// same object, and returns its URL, for status.url: [Store.Handler] serves a
// there. The change is atomic and durable.
//
// A pointer is no file that others can read. A store without a base URL serves
// nothing, so the URL is that of a itself.
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
	return s.place(t, objectDir+"/"+dir+"/"+name)
}

// target reads a pointer, and when it was moved.
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

// Lock takes the lock of the object dir (KIND/NAMESPACE/NAME), which orders
// writers, of one process and of several. It waits until it has the lock or
// ctx ends. The lock ends with unlock, which may be called more than once, or
// with the process.
func (s *Store) Lock(ctx context.Context, dir string) (unlock func(), err error) {
	defer wrap(&err, "lock %s", dir)
	if err := checkDir(dir); err != nil {
		return nil, err
	}
	return s.locks.take(ctx, s.root, lockPath(dir))
}

func lockPath(dir string) string { return objectDir + "/" + dir + "/.lock" }

// A SpaceError is a failure for want of space on the volume of a store, after
// its cache gave way. It unwraps to the failure.
type SpaceError struct{ Err error }

func (e *SpaceError) Error() string { return e.Err.Error() }

// Unwrap returns the failure.
func (e *SpaceError) Unwrap() error { return e.Err }

func mebibytes(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

// WithRoom calls do, and calls it again when it fails for want of space and the
// cache of the store can give way: first without the half of its bytes that was
// used longest ago, then without any. When that is not enough the error is a
// *[SpaceError].
func (s *Store) WithRoom(do func() error) error {
	err := do()
	for _, share := range []int64{2, 1} {
		if !durable.NoSpace(err) {
			return err
		}
		if s.giveWay(share) {
			err = do()
		}
	}
	if _, told := errors.AsType[*SpaceError](err); told || !durable.NoSpace(err) {
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

// giveWay has the cache lose one part of share of its bytes, those used longest
// ago. It reports whether anything went.
func (s *Store) giveWay(share int64) bool {
	if s.cache == nil {
		return false
	}
	n, _, _, _ := s.cache.shrink(func(total int64) int64 { return total - total/share })
	return n > 0
}

// Writable returns nil when something can be stored: it writes a little, and
// forgets it. The error is a *[SpaceError] where there is no space for it.
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
