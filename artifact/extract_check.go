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
)

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
		if info, err := os.Lstat(filepath.Join(at, filepath.FromSlash(tempDir))); err == nil && info.IsDir() {
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
