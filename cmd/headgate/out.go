package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
)

// outFlags name the directory for extracted content.
type outFlags struct {
	out string
	artifact.Extractor
}

// outRule tells in the help of commands which directories --out replaces.
const outRule = `--out replaces a directory that is empty, or that an earlier --out wrote and that has not changed; the directory
.NAME.headgate beside it records what was written. With --force it replaces other directories too, but never a home
directory, the working directory, a store, a Git repository, or a directory that contains one of these.`

func (f *outFlags) register(c *cobra.Command, use string) {
	c.Flags().StringVar(&f.out, "out", "", use)
	c.Flags().BoolVar(&f.Force, "force", false, "let --out replace a directory that it did not write or that has changed")
}

// check returns an error if dir cannot be replaced.
func (f *outFlags) check(ctx context.Context, dir string) error {
	return outError(f.Check(ctx, dir), dir)
}

// extract replaces dir with the content of tree.
func (f *outFlags) extract(ctx context.Context, tree *artifact.Tree, dir string) error {
	return outError(f.Extract(ctx, tree, dir), dir)
}

// outError turns the error about a directory that cannot be replaced into a usage error that
// names the flag to use.
func outError(err error, dir string) error {
	refused, ok := errors.AsType[*artifact.RefusedError](err)
	switch {
	case !ok:
		return err
	case refused.Never:
		return usage("--out %s: %w", dir, refused)
	}
	return usage("--out %s: %s: choose another directory, or replace it with --force", dir, refused.Why)
}

// outDir returns the directory to which the content of obj is extracted.
func (f *fetchFlags) outDir(obj source.Object, objects int) string {
	if objects == 1 {
		return f.out
	}
	return filepath.Join(f.out, filepath.FromSlash(addressOf(obj)))
}

// checkOut returns an error if --out would replace the store, the cache, or files that it did not
// write. It runs before anything is fetched. The store must exist.
func (f *fetchFlags) checkOut(ctx context.Context, objects []source.Object) error {
	if f.out == "" {
		return nil
	}
	for _, of := range []struct{ what, dir string }{{"store", f.store}, {"cache", cmp.Or(f.cacheDir(), f.store)}} {
		if containsPath(of.dir, f.out) || containsPath(f.out, of.dir) {
			return fmt.Errorf("--out %s and the %s %s are one in the other: choose directories beside each other", f.out, of.what, of.dir)
		}
	}
	for _, obj := range objects {
		if err := f.check(ctx, f.outDir(obj, len(objects))); err != nil {
			return err
		}
	}
	return nil
}

// checkFrom returns an error if a plain directory of --from contains the store, the cache, or
// written, the file or directory of the flag flagName. The command would change it, and its revision
// depends on all its files. Git repositories and image layouts are exempt, because only their
// commits or index count. The store must exist.
func (f *storingFlags) checkFrom(local map[string]string, flagName, written string) error {
	for _, dir := range local {
		if exists(filepath.Join(dir, ".git")) || exists(filepath.Join(dir, "HEAD")) || exists(filepath.Join(dir, "oci-layout")) {
			continue
		}
		for _, target := range []struct{ flag, dir string }{{"--store", f.store}, {"--cache", f.cacheDir()}, {flagName, written}} {
			if target.dir != "" && containsPath(dir, target.dir) {
				return fmt.Errorf("--from: the directory %s holds %s %s, which is no part of the source: choose another one", dir, target.flag, target.dir)
			}
		}
	}
	return nil
}

// writePublic replaces the content of a file and makes it readable for all users.
func writePublic(file string, text []byte) error {
	err := durable.Replace(file, text)
	if err == nil {
		err = os.Chmod(file, 0o644)
	}
	return err
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// containsPath reports whether the directory outer exists and is equal to inner or contains it.
func containsPath(outer, inner string) bool {
	_, in := pathInside(outer, inner)
	return exists(outer) && (in || realPath(outer) == realPath(inner))
}

// pathInside returns the slash-separated path of dir relative to the directory outer, and whether dir is
// inside it.
func pathInside(outer, dir string) (string, bool) {
	inside, err := filepath.Rel(realPath(outer), realPath(dir))
	return filepath.ToSlash(inside), err == nil && inside != "." && filepath.IsLocal(inside)
}

// globEscaper escapes a path for use in a pattern, so that it matches only itself.
var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`)

// realPath returns the absolute path without symbolic links. The path need not exist.
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
