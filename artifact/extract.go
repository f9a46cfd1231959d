package artifact

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strings"

	"github.com/headgate-io/headgate/internal/durable"
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
func (x Extractor) Extract(ctx context.Context, tree fs.FS, dir string) (err error) {
	defer wrap(&err, "extract to %s", dir)
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := x.replaceable(ctx, dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	w, err := openExtraction(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.settle(ctx); err != nil {
		return err
	}
	written, err := writeTree(ctx, tree, w.path(newTree))
	if err != nil {
		return err
	}
	before, err := x.replaceable(ctx, dir) // writing takes time, in which dir may have changed
	if err != nil {
		return err
	}
	if err := w.record(before, written); err != nil {
		return err
	}
	if durable.Exchange(w.path(newTree), dir) != nil { // what was there is where the new was
		if err := replaceInTwo(w.path(newTree), dir, w.path(oldTree)); err != nil {
			return errors.Join(err, w.record(before))
		}
	}
	return os.RemoveAll(w.path(oldTree))
}

// replaceInTwo puts the directory fresh in the place of dir, and moves what was there to old.
func replaceInTwo(fresh, dir, old string) error {
	if err := ignore(os.Rename(dir, old), fs.ErrNotExist); err != nil {
		return err
	}
	err := os.Rename(fresh, dir)
	if err == nil {
		return nil
	}
	if failed := ignore(os.Rename(old, dir), fs.ErrNotExist); failed != nil {
		err = errors.Join(err, fmt.Errorf("what was there could not be moved back: it is in %s: %w", old, failed))
	}
	return err
}

// An extraction is the directory .NAME.headgate beside a directory NAME that
// Extract writes, held by a lock.
type extraction struct {
	dir  string // NAME
	lock *os.File
}

// Entries of the directory of an extraction.
const (
	lockFile   = "lock"
	newTree    = "new"    // the new content, after the exchange the old
	oldTree    = "old"    // the old content, where directories cannot be exchanged
	recordFile = "record" // what NAME holds, and what it held before: a killed Extract may leave either
)

func besideOf(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".headgate")
}

func (w *extraction) path(name string) string { return filepath.Join(besideOf(w.dir), name) }

// openExtraction makes the directory beside dir and waits for its lock.
func openExtraction(ctx context.Context, dir string) (*extraction, error) {
	lock, err := await(ctx, func() (*os.File, error) {
		beside := besideOf(dir)
		if err := ignore(os.Mkdir(beside, 0o700), fs.ErrExist); err != nil {
			return nil, err
		}
		info, err := os.Lstat(beside)
		if err == nil && !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory: remove it", beside)
		}
		root, err := os.OpenRoot(beside)
		if err != nil {
			return nil, ignore(err, fs.ErrNotExist) // another process removed it
		}
		defer root.Close()
		f, err := openLocked(root, lockFile, os.O_CREATE)
		return f, ignore(err, fs.ErrNotExist)
	})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &extraction{dir, lock}, nil
}

// settle ends what a killed Extract began: the old content moves back where
// nothing is in its place, and is removed where the new is.
func (w *extraction) settle(ctx context.Context) error {
	old := w.path(oldTree)
	if _, err := os.Lstat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if err := ignore(os.Rename(old, w.dir), fs.ErrNotExist); err != nil {
			return err
		}
	} else if _, err := os.Lstat(old); err == nil {
		// Content that could not be moved back stays: then dir was not written here.
		if tree, _, err := recorded(ctx, w.dir); err == nil && tree != nil {
			if err := os.RemoveAll(old); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(w.path(newTree))
}

// close removes the content that is left, and all of the directory unless it
// says what dir holds.
func (w *extraction) close() error {
	err := os.RemoveAll(w.path(newTree))
	if _, err := os.Lstat(w.path(recordFile)); errors.Is(err, fs.ErrNotExist) {
		os.Remove(w.path(lockFile)) // while no other process can have it
		defer os.Remove(besideOf(w.dir))
	}
	return errors.Join(err, w.lock.Close())
}

// A RefusedError reports a directory that [Extractor.Extract] does not replace.
// It wraps [fs.ErrInvalid].
type RefusedError struct {
	Why   string
	Never bool // Force does not help
}

func (e *RefusedError) Error() string {
	if e.Never {
		return e.Why + ", and is never replaced: choose another directory"
	}
	return e.Why + ", and is not replaced unless that is forced: choose another directory"
}

func (e *RefusedError) Unwrap() error { return fs.ErrInvalid }

func never(format string, args ...any) error {
	return &RefusedError{Why: fmt.Sprintf(format, args...), Never: true}
}

// Check reports whether Extract would replace the directory dir now. The error
// is a [*RefusedError] when it would not.
func (x Extractor) Check(ctx context.Context, dir string) (err error) {
	defer wrap(&err, "extract to %s", dir)
	abs, err := filepath.Abs(dir)
	if err == nil {
		_, err = x.replaceable(ctx, abs)
	}
	return err
}

// replaceable returns the tree that dir is as an Extract left it, nil for none.
// The error is a [*RefusedError] unless dir may be replaced.
func (x Extractor) replaceable(ctx context.Context, dir string) (listing, error) {
	for at := range upwards(dir) {
		if info, err := os.Lstat(filepath.Join(at, filepath.FromSlash(tempPath))); err == nil && info.IsDir() {
			return nil, never("it is or lies in the store %s", at)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, ignore(err, fs.ErrNotExist)
	}
	if !info.IsDir() {
		return nil, never("it is not a directory")
	}
	if err := unreserved(dir, info); err != nil {
		return nil, err
	}
	tree, why, err := recorded(ctx, dir)
	if err != nil || why == "" {
		return tree, err
	}
	if err := expendable(ctx, dir); err != nil || x.Force {
		return nil, err
	}
	return nil, &RefusedError{Why: why}
}

// upwards yields the real path of path, or of the part of it that exists, and
// of each directory above.
func upwards(path string) iter.Seq[string] {
	return func(yield func(string) bool) {
		at, err := filepath.EvalSymlinks(path)
		for errors.Is(err, fs.ErrNotExist) && path != filepath.Dir(path) {
			path = filepath.Dir(path)
			at, err = filepath.EvalSymlinks(path)
		}
		for ; err == nil && yield(at) && at != filepath.Dir(at); at = filepath.Dir(at) {
		}
	}
}

// unreserved checks that the directory dir, which info describes, is neither
// the root of a file system nor the working directory nor a home directory, and
// holds none of them.
func unreserved(dir string, info fs.FileInfo) error {
	if dir == filepath.Dir(dir) {
		return never("it is the root of a file system")
	}
	holds := func(path string) bool {
		for at := range upwards(path) {
			if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
				return true
			}
		}
		return false
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if holds(here) {
		return never("the working directory is in it, and all of it would be replaced")
	}
	for _, home := range homes() {
		if filepath.IsAbs(home) && holds(home) {
			return never("it is or holds the home directory %s", home)
		}
	}
	return nil
}

// homes returns the home directories that are known: that of the environment,
// which sudo may have changed, and where the system has a list of accounts
// those of all.
func homes() []string {
	home, _ := os.UserHomeDir()
	all := []string{home}
	accounts, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(accounts)) {
		if fields := strings.Split(line, ":"); len(fields) > 5 {
			all = append(all, fields[5])
		}
	}
	return all
}

// precious has the names by which a directory shows that it is more than the
// content of an artifact.
var precious = map[string]string{".git": "a git repository", privateDir: "a store of artifacts"}

// expendable checks that dir, which Extract did not write, holds nothing precious.
func expendable(ctx context.Context, dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		what := precious[filepath.Base(name)]
		if err != nil || what == "" || name == dir {
			return ignore(err, fs.ErrNotExist) // another process may be cleaning up
		}
		local, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return never("it holds %s, %s, which would be lost", what, local)
	})
}
