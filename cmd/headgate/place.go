package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

// outFlags say where content is extracted to.
type outFlags struct {
	out   string
	force bool
}

// outRule says in the help of commands what --out replaces.
const outRule = `--out replaces a directory that is empty or that an earlier --out wrote and that was not changed since; the
directory .NAME.headgate beside it keeps what was written. Others are replaced with --force only, and never: a
home directory, the working directory, a store, what holds one of them, and what holds a Git repository.`

func (f *outFlags) register(c *cobra.Command, use string) {
	c.Flags().StringVar(&f.out, "out", "", use)
	c.Flags().BoolVar(&f.force, "force", false, "let --out replace a directory that it did not write, or that was changed since")
}

// check reports whether dir can be replaced.
func (f *outFlags) check(ctx context.Context, dir string) error {
	return refusedOut(artifact.Extractor{Force: f.force}.Check(ctx, dir), dir)
}

// extract replaces dir by the content of tree.
func (f *outFlags) extract(ctx context.Context, tree *artifact.Tree, dir string) error {
	return refusedOut(artifact.Extractor{Force: f.force}.Extract(ctx, tree, dir), dir)
}

// refusedOut gives a directory that is not replaced the exit code of usage, and
// names the flag that helps.
func refusedOut(err error, dir string) error {
	refused, ok := errors.AsType[*artifact.RefusedError](err)
	switch {
	case !ok:
		return err
	case refused.Never:
		return usage("--out %s: %w", dir, refused)
	}
	return usage("--out %s: %s: choose another directory, or replace it with --force", dir, refused.Why)
}

// outDir returns where the content of obj is extracted to.
func (f *fetchFlags) outDir(obj source.Object, objects int) string {
	if objects == 1 {
		return f.out
	}
	return filepath.Join(f.out, filepath.FromSlash(addressOf(obj)))
}

// checkOut refuses, before anything is fetched, an --out that would replace
// the store, a part of it, the working directory, or what it did not write.
// The store exists.
func (f *fetchFlags) checkOut(ctx context.Context, objects []source.Object) error {
	if f.out == "" {
		return nil
	}
	for _, obj := range objects {
		dir := f.outDir(obj, len(objects))
		switch {
		case holds(f.store, dir):
			return fmt.Errorf("--out %s is in the store %s: choose a directory beside it", dir, f.store)
		case holds(dir, f.store):
			return fmt.Errorf("--out %s holds the store %s and would replace it: choose another directory", dir, f.store)
		case f.cacheDir() != "" && (holds(f.cacheDir(), dir) || holds(dir, f.cacheDir())):
			return fmt.Errorf("--out %s and the cache %s are one in the other: choose directories beside each other", dir, f.cacheDir())
		case holds(dir, "."):
			return fmt.Errorf("--out %s holds the working directory and would replace it: choose a directory below", dir)
		}
		if err := f.check(ctx, dir); err != nil {
			return err
		}
	}
	return nil
}

// checkFrom refuses a plain directory of --from that the command itself would
// change: its revision is that of all its files. The store exists.
func (f *storingFlags) checkFrom(local map[string]string, out string) error {
	for _, dir := range local {
		switch {
		case isRepository(dir):
		case holds(dir, f.store):
			return fmt.Errorf("--from: the directory %s holds the store %s, which is no part of the source: choose a --store outside", dir, f.store)
		case f.cacheDir() != "" && holds(dir, f.cacheDir()):
			return fmt.Errorf("--from: the directory %s holds the cache %s, which is no part of the source: choose a --cache outside", dir, f.cacheDir())
		case out != "" && holds(dir, out):
			return fmt.Errorf("--from: the directory %s holds --out %s, which is no part of the source: choose another one", dir, out)
		}
	}
	return nil
}

// isRepository reports whether dir looks like a Git repository or an OCI image
// layout, of which only what is committed or in the index counts.
func isRepository(dir string) bool {
	for _, name := range []string{".git", "HEAD", "oci-layout"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			return true
		}
	}
	return false
}

// holds reports whether the directory outer exists and inner is in it, or is it.
func holds(outer, inner string) bool {
	info, err := os.Stat(outer)
	if err != nil {
		return false
	}
	for at := realPath(inner); ; at = filepath.Dir(at) {
		if other, err := os.Stat(at); err == nil && os.SameFile(info, other) {
			return true
		}
		if at == filepath.Dir(at) {
			return false
		}
	}
}

// below returns the slash-separated path of dir inside the directory outer.
func below(outer, dir string) (string, bool) {
	inside, err := filepath.Rel(realPath(outer), realPath(dir))
	return filepath.ToSlash(inside), err == nil && inside != "." && filepath.IsLocal(inside)
}

// hidden reports whether a slash-separated path leads through what begins with
// a dot, which is passed over when documents are read.
func hidden(path string) bool {
	return strings.HasPrefix(path, ".") || strings.Contains(path, "/.")
}

// literal makes a pattern of a path, which matches nothing else.
var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// realPath returns the absolute path of what need not exist yet, without symbolic links.
func realPath(path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	found, err := filepath.EvalSymlinks(path)
	switch parent := filepath.Dir(path); {
	case err == nil:
		return found
	case errors.Is(err, fs.ErrNotExist) && parent != path:
		return filepath.Join(realPath(parent), filepath.Base(path))
	}
	return path
}
