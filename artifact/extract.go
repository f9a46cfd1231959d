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

// Extract calls [Extractor.Extract] of the zero Extractor.
func Extract(ctx context.Context, tree fs.FS, dir string) error {
	return Extractor{}.Extract(ctx, tree, dir)
}

// An Extractor writes trees to directories.
type Extractor struct {
	// Force lets Extract replace a directory that it did not write, or that was changed since. It
	// does not affect directories that are never replaced.
	Force bool
}

// Extract replaces the directory dir by the content of tree: nothing of the earlier content stays.
// Directories and executable files get mode 0755, other files 0644, whatever the umask. Extract
// writes only directories and regular files and follows no symbolic link below dir.
//
// Extract replaces a directory that is missing or empty, or that an earlier Extract wrote and in
// which nothing was changed since; with Force, it replaces others too. It never replaces the root
// of a file system, the working directory, a home directory, a directory that contains one of them,
// a directory in a [Store], or a directory that contains, at any depth, a Store or a git repository
// that Extract did not write. The error is then a [*RefusedError].
//
// Beside dir, Extract keeps the directory .NAME.headgate. It has the names and checksums of the
// written files, the new content while it is being written, and a lock: a second Extract to dir
// waits until the first has ended, or ctx ends, and removes the leftovers of a killed one.
//
// The new content replaces dir at once: on Linux dir exists at every moment. On other systems it is
// missing for a very short time; if the process is killed then, the next Extract restores the old
// content. On any error, including the end of ctx, dir is unchanged and no content is left beside
// it. The exception is old content that can be neither removed nor moved back: the error then says
// where it is. Extract creates missing parents of dir.
//
// The error wraps [fs.ErrInvalid] if a name in tree cannot be written on this system.
func (x Extractor) Extract(ctx context.Context, tree fs.FS, dir string) (err error) {
	defer wrap(&err, "extract to %s", dir)
	dir, err = filepath.Abs(dir)
	if err != nil {
		return err
	}
	if _, err := x.checkReplaceable(ctx, dir); err != nil {
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
	if err := w.repair(ctx); err != nil {
		return err
	}
	written, err := writeTree(ctx, tree, w.path(newTree))
	if err != nil {
		return err
	}
	before, err := x.checkReplaceable(ctx, dir) // dir may have changed during the writing
	if err != nil {
		return err
	}
	if err := w.record(before, written); err != nil {
		return err
	}
	if durable.Exchange(w.path(newTree), dir) != nil { // afterwards newTree has the old content
		if err := replaceInTwo(w.path(newTree), dir, w.path(oldTree)); err != nil {
			return errors.Join(err, w.record(before))
		}
	}
	return os.RemoveAll(w.path(oldTree))
}

// replaceInTwo moves dir to old and newDir to dir, in two steps.
func replaceInTwo(newDir, dir, old string) error {
	if err := ignoreErr(os.Rename(dir, old), fs.ErrNotExist); err != nil {
		return err
	}
	err := os.Rename(newDir, dir)
	if err == nil {
		return nil
	}
	if failed := ignoreErr(os.Rename(old, dir), fs.ErrNotExist); failed != nil {
		err = errors.Join(err, fmt.Errorf("what was there could not be moved back: it is in %s: %w", old, failed))
	}
	return err
}

// An extraction is the directory .NAME.headgate beside a directory NAME that Extract writes. It is
// locked.
type extraction struct {
	dir  string // NAME
	lock *os.File
}

// Entries of the directory .NAME.headgate.
const (
	lockFile   = "lock"
	newTree    = "new"    // the new content; after the exchange, the old content
	oldTree    = "old"    // the old content, if directories cannot be exchanged
	recordFile = "record" // the possible contents of NAME: after a killed Extract, it has the old or the new
)

func extractionDir(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".headgate")
}

func (w *extraction) path(name string) string { return filepath.Join(extractionDir(w.dir), name) }

// openExtraction makes the directory beside dir and waits for its lock.
func openExtraction(ctx context.Context, dir string) (*extraction, error) {
	lock, err := poll(ctx, func() (*os.File, error) {
		lockDir := extractionDir(dir)
		if err := ignoreErr(os.Mkdir(lockDir, 0o700), fs.ErrExist); err != nil {
			return nil, err
		}
		info, err := os.Lstat(lockDir)
		if err == nil && !info.IsDir() {
			return nil, fmt.Errorf("%s is not a directory: remove it", lockDir)
		}
		root, err := os.OpenRoot(lockDir)
		if err != nil {
			return nil, ignoreErr(err, fs.ErrNotExist) // another process removed it
		}
		defer root.Close()
		f, err := openLocked(root, lockFile, os.O_CREATE)
		return f, ignoreErr(err, fs.ErrNotExist)
	})
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	return &extraction{dir, lock}, nil
}

// repair completes what a killed Extract began: it moves the old content back if dir is missing,
// and removes it if dir has the new content.
func (w *extraction) repair(ctx context.Context) error {
	old := w.path(oldTree)
	if _, err := os.Lstat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if err := ignoreErr(os.Rename(old, w.dir), fs.ErrNotExist); err != nil {
			return err
		}
	} else if _, err := os.Lstat(old); err == nil {
		// Old content that could not be moved back is kept: then Extract did not write dir.
		if tree, _, err := matchRecord(ctx, w.dir); err == nil && tree != nil {
			if err := os.RemoveAll(old); err != nil {
				return err
			}
		}
	}
	return os.RemoveAll(w.path(newTree))
}

// close removes leftover content, and the whole directory unless it has a record of dir.
func (w *extraction) close() error {
	err := os.RemoveAll(w.path(newTree))
	if _, err := os.Lstat(w.path(recordFile)); errors.Is(err, fs.ErrNotExist) {
		os.Remove(w.path(lockFile)) // while no other process can hold it
		defer os.Remove(extractionDir(w.dir))
	}
	return errors.Join(err, w.lock.Close())
}

// A RefusedError reports a directory that [Extractor.Extract] refuses to replace. It wraps
// [fs.ErrInvalid].
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

// Check returns nil if Extract would replace the directory dir now. The error is a [*RefusedError]
// if it would not.
func (x Extractor) Check(ctx context.Context, dir string) (err error) {
	defer wrap(&err, "extract to %s", dir)
	abs, err := filepath.Abs(dir)
	if err == nil {
		_, err = x.checkReplaceable(ctx, abs)
	}
	return err
}

// checkReplaceable returns the tree in dir if an Extract wrote it and it is unchanged, else nil. The
// error is a [*RefusedError] if dir must not be replaced.
func (x Extractor) checkReplaceable(ctx context.Context, dir string) (listing, error) {
	for at := range ancestors(dir) {
		if info, err := os.Lstat(filepath.Join(at, filepath.FromSlash(tempPath))); err == nil && info.IsDir() {
			return nil, never("it is or lies in the store %s", at)
		}
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return nil, ignoreErr(err, fs.ErrNotExist)
	}
	if !info.IsDir() {
		return nil, never("it is not a directory")
	}
	if err := checkNotReserved(dir, info); err != nil {
		return nil, err
	}
	tree, reason, err := matchRecord(ctx, dir)
	if err != nil || reason == "" {
		return tree, err
	}
	if err := checkNotProtected(ctx, dir); err != nil || x.Force {
		return nil, err
	}
	return nil, &RefusedError{Why: reason}
}

// ancestors yields the real path of path, or of its longest existing parent, and of each directory
// above.
func ancestors(path string) iter.Seq[string] {
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

// checkNotReserved checks that the directory dir, described by info, neither is nor contains the root of
// a file system, the working directory or a home directory.
func checkNotReserved(dir string, info fs.FileInfo) error {
	if dir == filepath.Dir(dir) {
		return never("it is the root of a file system")
	}
	holds := func(path string) bool {
		for at := range ancestors(path) {
			if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
				return true
			}
		}
		return false
	}
	workDir, err := os.Getwd()
	if err != nil {
		return err
	}
	if holds(workDir) {
		return never("the working directory is in it, and all of it would be replaced")
	}
	for _, home := range homeDirs() {
		if filepath.IsAbs(home) && holds(home) {
			return never("it is or holds the home directory %s", home)
		}
	}
	return nil
}

// homeDirs returns the known home directories: that of the environment, which sudo may have changed,
// and those of all accounts in /etc/passwd, if the system has that file.
func homeDirs() []string {
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

// protectedEntries has the names of entries that show that a directory contains more than an artifact.
var protectedEntries = map[string]string{".git": "a git repository", privateDir: "a store of artifacts"}

// checkNotProtected checks that dir, which Extract did not write, holds nothing precious.
func checkNotProtected(ctx context.Context, dir string) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		what := protectedEntries[filepath.Base(name)]
		if err != nil || what == "" || name == dir {
			return ignoreErr(err, fs.ErrNotExist) // another process may have removed it
		}
		local, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		return never("it holds %s, %s, which would be lost", what, local)
	})
}
