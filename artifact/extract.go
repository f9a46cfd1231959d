package artifact

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
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
	err := durable.Exchange(fresh, dir)
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

// A workplace is the directory .NAME.headgate beside a directory NAME that
// Extract writes, held by a lock.
type workplace struct {
	dir  string // NAME
	lock *os.File
}

// Entries of a workplace.
const (
	lockFile   = "lock"
	newTree    = "new"         // the new content, after the exchange the old
	oldTree    = "old"         // the old content, where directories cannot be exchanged
	lastRecord = "record"      // what NAME holds
	nextRecord = "record.next" // what NAME holds once it is replaced
)

func besideOf(dir string) string {
	return filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)+".headgate")
}

func (w *workplace) path(name string) string { return filepath.Join(besideOf(w.dir), name) }

// openWorkplace makes the workplace of dir and waits for its lock.
func openWorkplace(ctx context.Context, dir string) (*workplace, error) {
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
	return &workplace{dir, lock}, nil
}

// settle ends what a killed Extract began, and removes what it left.
func (w *workplace) settle(ctx context.Context) error {
	if _, err := os.Lstat(w.dir); errors.Is(err, fs.ErrNotExist) {
		if err := ignore(os.Rename(w.path(oldTree), w.dir), fs.ErrNotExist); err != nil {
			return err
		}
	}
	if next, err := readRecord(w.path(nextRecord)); err == nil {
		why, err := differs(ctx, next, w.dir)
		if err == nil && why == "" {
			err = os.Rename(w.path(nextRecord), w.path(lastRecord))
		}
		if ignore(err, fs.ErrNotExist) != nil {
			return err
		}
	}
	if _, err := os.Lstat(w.path(oldTree)); err == nil {
		// Content that could not be moved back stays: then dir was not written here.
		if why, err := changed(ctx, w.dir); err == nil && why == "" {
			if err := os.RemoveAll(w.path(oldTree)); err != nil {
				return err
			}
		}
	}
	return errors.Join(os.RemoveAll(w.path(nextRecord)), os.RemoveAll(w.path(newTree)))
}

// close removes the content that is left, and all of the workplace unless it
// says what dir holds.
func (w *workplace) close() error {
	err := errors.Join(os.RemoveAll(w.path(nextRecord)), os.RemoveAll(w.path(newTree)))
	if _, err := os.Lstat(w.path(lastRecord)); errors.Is(err, fs.ErrNotExist) {
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
func (x Extractor) Check(ctx context.Context, dir string) error {
	abs, err := filepath.Abs(dir)
	if err == nil {
		err = x.replaceable(ctx, abs)
	}
	if err != nil {
		return fmt.Errorf("extract to %s: %w", dir, err)
	}
	return nil
}

func (x Extractor) replaceable(ctx context.Context, dir string) error {
	if store := storeAround(dir); store != "" {
		return never("it is or lies in the store %s", store)
	}
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return never("it is not a directory")
	}
	if err := unreserved(dir, info); err != nil {
		return err
	}
	if empty, err := isEmpty(dir); empty || err != nil {
		return err
	}
	why, err := changed(ctx, dir)
	if err != nil || why == "" {
		return err
	}
	if err := expendable(ctx, dir); err != nil || x.Force {
		return err
	}
	return &RefusedError{Why: why}
}

// storeAround returns the directory of the store that dir lies in, "" if it is
// in none.
func storeAround(dir string) string {
	at, err := filepath.EvalSymlinks(dir)
	for errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir) {
		dir = filepath.Dir(dir)
		at, err = filepath.EvalSymlinks(dir)
	}
	for err == nil {
		if info, err := os.Lstat(filepath.Join(at, filepath.FromSlash(tempPath))); err == nil && info.IsDir() {
			return at
		}
		if at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	return ""
}

// unreserved checks that the directory dir, which info describes, is neither
// the root of a file system nor the working directory nor a home directory, and
// holds none of them.
func unreserved(dir string, info fs.FileInfo) error {
	if dir == filepath.Dir(dir) {
		return never("it is the root of a file system")
	}
	here, err := os.Getwd()
	if err != nil {
		return err
	}
	if contains(info, here) {
		return never("the working directory is in it, and all of it would be replaced")
	}
	for _, home := range homes() {
		if contains(info, home) {
			return never("it is or holds the home directory %s", home)
		}
	}
	return nil
}

// contains reports whether path exists and is the directory dir or in it.
func contains(dir fs.FileInfo, path string) bool {
	at, err := filepath.EvalSymlinks(path)
	for err == nil {
		if other, err := os.Stat(at); err == nil && os.SameFile(dir, other) {
			return true
		}
		if at == filepath.Dir(at) {
			break
		}
		at = filepath.Dir(at)
	}
	return false
}

// homes returns the home directories that are known: that of the environment,
// that of the account, which sudo may have changed, and where the system has a
// list of accounts those of all.
func homes() []string {
	var all []string
	if home, err := os.UserHomeDir(); err == nil {
		all = append(all, home)
	}
	if account, err := user.Current(); err == nil {
		all = append(all, account.HomeDir)
	}
	accounts, err := os.Open("/etc/passwd")
	if err != nil {
		return all
	}
	defer accounts.Close()
	for lines := bufio.NewScanner(accounts); lines.Scan(); {
		if fields := strings.Split(lines.Text(), ":"); len(fields) > 5 && filepath.IsAbs(fields[5]) {
			all = append(all, fields[5])
		}
	}
	return all
}

func isEmpty(dir string) (bool, error) {
	f, err := os.Open(dir)
	if err != nil {
		return false, err
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF, ignore(err, io.EOF)
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
