package artifact

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
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
func (s *Store) Put(ctx context.Context, dir, file string, write func(io.Writer) error) (Artifact, error) {
	a, err := s.put(ctx, dir, file, write)
	if err != nil {
		return Artifact{}, fmt.Errorf("store %q of %s: %w", file, dir, err)
	}
	return a, nil
}

func (s *Store) put(ctx context.Context, dir, file string, write func(io.Writer) error) (Artifact, error) {
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
	defer t.discard()
	out := &sink{ctx: ctx, w: io.MultiWriter(roomyWriter{t.File, s}, h), sum: func() string { return string(s.algorithm) + ":" + hex.EncodeToString(h.Sum(nil)) }}
	err = write(out)
	if err = cmp.Or(err, out.err, ctx.Err()); err != nil {
		return Artifact{}, err
	}
	digest := out.Sum()
	_, sum, _ := strings.Cut(digest, ":")
	return s.publish(ctx, t, storePath{dir: dir, hex: sum, file: file}, digest)
}

// publish moves t to p, unless the same content is there already.
func (s *Store) publish(ctx context.Context, t *scratchFile, p storePath, digest string) (Artifact, error) {
	kept, err := s.retain(ctx, p, digest)
	if err != nil {
		return Artifact{}, err
	}
	if !kept {
		now := s.now()
		if err := cmp.Or(s.root.Chtimes(t.name, now, now), t.Sync()); err != nil {
			return Artifact{}, err
		}
		if err := s.moveIn(t, p.path()); err != nil {
			return Artifact{}, err
		}
	}
	if err := s.syncUp(p.folder()); err != nil {
		if !kept {
			err = errors.Join(err, s.root.Remove(p.path()))
		}
		return Artifact{}, err
	}
	f, err := s.root.Open(p.path())
	if err != nil {
		return Artifact{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Artifact{}, err
	}
	s.remember(p, digest, f, info)
	return s.describe(p, digest, info), nil
}

// retain reports whether p holds the content of digest already, and makes it
// the newest of its object.
func (s *Store) retain(ctx context.Context, p storePath, digest string) (bool, error) {
	err := s.Verify(ctx, Artifact{Path: p.path(), Digest: digest})
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

// moveIn renames t to name. A [Store.Sweep] elsewhere may remove the directory
// while it is still empty: then it is made again.
func (s *Store) moveIn(t *scratchFile, name string) (err error) {
	for range 100 {
		if err = s.makeDir(path.Dir(name)); err == nil {
			err = t.rename(name)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return err
}

// makeDir makes a directory and its parents, while a [Store.Sweep] elsewhere
// may be removing them.
func (s *Store) makeDir(dir string) (err error) {
	for range 100 {
		err = s.root.MkdirAll(dir, 0o700)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return err
}

// syncUp makes the entries of dir, and of each directory above it, durable.
func (s *Store) syncUp(dir string) error {
	for ; ; dir = path.Dir(dir) {
		if err := s.syncDir(dir); err != nil || dir == "." {
			return err
		}
	}
}

func (s *Store) syncDir(dir string) error {
	d, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(durable.SyncDir(d), d.Close())
}

// describe returns the artifact at p.
func (s *Store) describe(p storePath, digest string, info fs.FileInfo) Artifact {
	return Artifact{
		Path:           p.path(),
		URL:            s.URL(p.path()),
		Digest:         digest,
		LastUpdateTime: info.ModTime().UTC().Truncate(time.Second),
		Size:           info.Size(),
	}
}

// Temp opens an anonymous file in the store's own temporary directory. It has
// no name: closing it, or the end of the process, removes it.
func (s *Store) Temp() (*os.File, error) {
	f, err := s.temp.anonymous()
	if err != nil {
		return nil, fmt.Errorf("temporary file in the store: %w", err)
	}
	return f, nil
}

// A sink refuses to write once its context has ended, and remembers that a
// write failed even if its user forgets.
type sink struct {
	ctx context.Context
	w   io.Writer
	sum func() string
	err error
}

// Sum returns the digest of what was written.
func (s *sink) Sum() string { return s.sum() }

func (s *sink) Write(b []byte) (int, error) {
	if s.err == nil {
		s.err = s.ctx.Err()
	}
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(b)
	s.err = err
	return n, err
}
