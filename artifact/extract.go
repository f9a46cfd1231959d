package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Extract is [Extractor.Extract] of the zero Extractor.
func Extract(ctx context.Context, tree fs.FS, dir string) error {
	return Extractor{}.Extract(ctx, tree, dir)
}

// An Extractor writes trees to directories.
type Extractor struct {
	// Force lets Extract replace a directory that it did not write, or that
	// was changed since. It does not open what is never replaced.
	Force bool
}

// Extract replaces the directory dir by the content of tree: nothing that was
// there before stays. Directories and executable files get mode 0755, other
// files 0644, whatever the umask. Only directories and regular files are
// written, and no symbolic link is followed below dir.
//
// A directory is replaced when it is missing or empty, or when an earlier
// Extract wrote it and nothing in it was changed since; Force replaces others
// too. The root of a file system, the working directory, a home directory, and
// a directory that contains one of them are never replaced, nor is what lies in
// a [Store], nor what holds, however deep, a Store or a git repository that
// Extract did not write. The error is a [*RefusedError].
//
// Beside dir stands the directory .NAME.headgate, with the names and sums of
// what was written, the new content while it is written, and a lock: a second
// Extract to dir waits until the first has ended, or ctx ends, and removes what
// a killed one left.
//
// The new content takes its place at once: on Linux there is no moment without
// dir, elsewhere a very short one, after which the next Extract puts the old
// content back if the process was killed in it. With any error, the end of ctx
// included, dir is what it was and no content is left beside it; only what was
// there may be left, when it can be neither removed nor moved back: then the
// error says where. Missing parents of dir are made.
//
// The error wraps [fs.ErrInvalid] when a name in tree cannot be written on
// this system.
func (x Extractor) Extract(ctx context.Context, tree fs.FS, dir string) error {
	if err := x.extract(ctx, tree, dir); err != nil {
		return fmt.Errorf("extract to %s: %w", dir, err)
	}
	return nil
}

func (x Extractor) extract(ctx context.Context, tree fs.FS, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := x.replaceable(ctx, dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	w, err := openWorkplace(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return err
	}
	list, err := writeTree(ctx, tree, w.path(newTree))
	if err != nil {
		return err
	}
	if err := writeRecord(w.path(nextRecord), list); err != nil {
		return err
	}
	// Writing takes time, in which dir may have changed.
	if err := x.replaceable(ctx, dir); err != nil {
		return err
	}
	if err := replace(w.path(newTree), dir, w.path(oldTree)); err != nil {
		return err
	}
	return errors.Join(os.Rename(w.path(nextRecord), w.path(lastRecord)), os.RemoveAll(w.path(oldTree)))
}

// replace puts the directory fresh in the place of dir. What was there moves
// to fresh or to old.
func replace(fresh, dir, old string) error {
	err := exchange(fresh, dir)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return os.Rename(fresh, dir)
	}
	return replaceInTwo(fresh, dir, old)
}

// replaceInTwo does what replace does in two steps.
func replaceInTwo(fresh, dir, old string) error {
	if err := ignore(os.Rename(dir, old), fs.ErrNotExist); err != nil {
		return err
	}
	if err := os.Rename(fresh, dir); err != nil {
		return errors.Join(err, restore(old, dir))
	}
	return nil
}

// errStranded is wrapped by the error about content that could not be moved back.
var errStranded = errors.New("what was there could not be moved back")

// restore moves what was at dir back from old.
func restore(old, dir string) error {
	err := ignore(os.Rename(old, dir), fs.ErrNotExist)
	if err != nil {
		return fmt.Errorf("%w: it is in %s: %w", errStranded, old, err)
	}
	return nil
}
