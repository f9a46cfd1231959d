package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Extract replaces the directory dir by the content of tree: nothing that was
// there before stays. Directories and executable files get mode 0755, other
// files 0644, whatever the umask. Only directories and regular files are
// written, and no symbolic link is followed below dir.
//
// The new content is written beside dir and takes its place at once: on Linux
// there is no moment without dir, elsewhere a very short one. With any error,
// the end of ctx included, dir is what it was and nothing is left beside it;
// only what was there may be left, when it can be neither removed nor moved
// back: then the error says where. Missing parents of dir are made.
//
// The error wraps [fs.ErrInvalid] when dir is there and not a directory, is
// the working directory or above it, or holds, however deep, a git repository
// or a [Store] that is not the tree's own, and when a name in tree cannot be
// written on this system.
func Extract(ctx context.Context, tree fs.FS, dir string) error {
	if err := extract(ctx, tree, dir); err != nil {
		return fmt.Errorf("extract to %s: %w", dir, err)
	}
	return nil
}

func extract(ctx context.Context, tree fs.FS, dir string) (err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := replaceable(ctx, tree, dir); err != nil {
		return err
	}
	parent, base := filepath.Split(dir)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	beside, err := os.MkdirTemp(parent, "."+base+".tmp-")
	if err != nil {
		return err
	}
	// In the end this holds the new content, the old, or none.
	defer func() { err = discard(beside, err) }()
	fresh := filepath.Join(beside, "new")
	if err := writeTree(ctx, tree, fresh); err != nil {
		return err
	}
	return replace(fresh, dir, filepath.Join(beside, "old"))
}

// replaceable checks that dir is a directory that can be replaced by tree, or
// nothing.
func replaceable(ctx context.Context, tree fs.FS, dir string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: it is not a directory: remove it or choose another name", fs.ErrInvalid)
	}
	if err := elsewhere(info); err != nil {
		return err
	}
	return expendable(ctx, tree, dir)
}

// elsewhere checks that the working directory is not in a directory.
func elsewhere(dir fs.FileInfo) error {
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	for at := here; ; at = filepath.Dir(at) {
		if other, err := os.Stat(at); err == nil && os.SameFile(dir, other) {
			return fmt.Errorf("%w: the working directory is in it, and all of it would be replaced: choose a directory below", fs.ErrInvalid)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// precious has the names by which a directory shows that it is more than the
// content of an artifact.
var precious = map[string]string{".git": "a git repository", privateDir: "a store of artifacts"}

// expendable checks that dir holds nothing precious but what tree holds too.
func expendable(ctx context.Context, tree fs.FS, dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		what := precious[filepath.Base(name)]
		if err != nil || what == "" || name == dir {
			return ignore(err, fs.ErrNotExist) // somebody else may be cleaning up
		}
		local, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if _, err := fs.Stat(tree, filepath.ToSlash(local)); err == nil {
			return nil
		}
		return fmt.Errorf("%w: it holds %s, %s, which would be lost: choose another directory, or remove that first", fs.ErrInvalid, what, local)
	})
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

// discard removes the directory beside, unless err says that somebody's
// content is stranded there.
func discard(beside string, err error) error {
	if errors.Is(err, errStranded) {
		return err
	}
	return errors.Join(err, os.RemoveAll(beside))
}
