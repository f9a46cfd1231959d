package bundle

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/headgate-io/headgate/artifact"
)

// OpenDir returns the chart in directory dir of tree; [Path] says what dir may
// be. Nothing is copied: the chart is good as long as tree is. A file .tgz is
// no directory: see [OpenArchive].
//
// Errors wrap [ErrChart] when what is there is none, and fs.ErrNotExist when
// nothing is; fs.ErrInvalid when dir is no path inside tree.
func OpenDir(tree fs.FS, dir string) (*Chart, error) {
	c, err := openDir(tree, dir)
	if err != nil {
		return nil, fmt.Errorf("open chart %q: %w", dir, err)
	}
	return c, nil
}

func openDir(tree fs.FS, dir string) (*Chart, error) {
	name, err := follow(tree, dir, true)
	if err != nil {
		return nil, err
	}
	files, err := fs.Sub(tree, name)
	if err != nil {
		return nil, err
	}
	rules, err := readRules(files)
	if err != nil {
		return nil, err
	}
	if files, err = newView(files, rules); err != nil {
		return nil, err
	}
	if err := checkRoot(files); err != nil {
		return nil, err
	}
	return load(files)
}

// OpenArchive reads the chart in the file name of tree, as [ReadArchive] does;
// errors about name are those of [OpenDir].
func OpenArchive(tree fs.FS, name string, l artifact.Limits) (*Archive, error) {
	a, err := openArchive(tree, name, l)
	if err != nil {
		return nil, fmt.Errorf("open chart %q: %w", name, err)
	}
	return a, nil
}

func openArchive(tree fs.FS, name string, l artifact.Limits) (*Archive, error) {
	file, err := follow(tree, name, false)
	if err != nil {
		return nil, err
	}
	f, err := tree.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readArchive(f, Limits(l))
}

// Path returns a path in a source as io/fs spells it: slashes at the end, empty
// parts and "." are dropped, the result is "." for the root. Errors, for what
// is absolute or has a part "..", wrap fs.ErrInvalid.
func Path(p string) (string, error) {
	if strings.HasPrefix(p, "/") {
		return "", fmt.Errorf("%w: it must be relative to the root of the source", fs.ErrInvalid)
	}
	for part := range strings.SplitSeq(p, "/") {
		if part == ".." {
			return "", fmt.Errorf("%w: no part of it may be '..'", fs.ErrInvalid)
		}
	}
	name := path.Clean(p)
	if !fs.ValidPath(name) || strings.ContainsAny(name, "\\\x00") {
		return "", fmt.Errorf("%w: it must be text without backslash", fs.ErrInvalid)
	}
	return name, nil
}

// follow returns the path p of tree, no part of which is a link, and which is a
// directory or else a regular file.
func follow(tree fs.FS, p string, dir bool) (string, error) {
	name, err := Path(p)
	if err != nil {
		return "", err
	}
	for end := range len(name) {
		if name[end] != '/' {
			continue
		}
		info, err := step(tree, name[:end])
		if err != nil {
			return "", err
		}
		if !info.IsDir() {
			return "", fmt.Errorf("%q is no directory: %w", name[:end], fs.ErrNotExist)
		}
	}
	info, err := step(tree, name)
	switch {
	case err != nil:
		return "", err
	case dir && !info.IsDir():
		return "", fmt.Errorf("%w: it is no directory", ErrChart)
	case !dir && !info.Mode().IsRegular():
		return "", fmt.Errorf("%w: it is no file", ErrChart)
	}
	return name, nil
}

// step describes what tree has at name, which must not be a link.
func step(tree fs.FS, name string) (fs.FileInfo, error) {
	info, err := fs.Lstat(tree, name)
	if err == nil && info.Mode()&fs.ModeSymlink != 0 {
		err = irregular(name, info.Mode())
	}
	return info, err
}

// checkRoot refuses names at the root of a chart with which the package manager
// refuses to load an archive.
func checkRoot(files fs.FS) error {
	entries, err := fs.ReadDir(files, ".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, "..") {
			return fmt.Errorf("%w: %q begins with ..: rename it", ErrChart, name)
		}
		if letter := len(name) == 2 && name[1] == ':' && isLetter(name[0]); letter && e.IsDir() {
			return fmt.Errorf("%w: %q is a drive: rename it", ErrChart, name)
		}
	}
	return nil
}

func isLetter(b byte) bool { return 'a' <= b|0x20 && b|0x20 <= 'z' }

// has reports whether files has a file or directory name.
func has(files fs.FS, name string) (bool, error) {
	_, err := fs.Stat(files, name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
