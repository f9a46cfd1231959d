package artifact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"path"
	"slices"
)

// diffBlock is the number of bytes of each file that are compared at a time.
const diffBlock = 64 << 10

// A Change is one entry in which two trees differ.
type Change struct {
	Path     string
	Old, New Side // in the tree before and in the tree after
	Content  bool // both are files with different content
}

// A Side is the entry of one tree at a path; the zero Side means that there is none.
type Side struct {
	Mode fs.FileMode // 0644, 0755 for an executable file, fs.ModeDir|0755 for a directory
	Size int64       // bytes of a file
}

func (s Side) isFile() bool { return s.Mode != 0 && !s.Mode.IsDir() }

// Diff compares two trees entry by entry, as their archives would be compared. It ignores links,
// devices, permissions other than the executable bit, owners, times and directories that a tree
// omits (see [Tar]). It yields nothing exactly if [Tar] writes the same bytes for both.
//
// Changes come in the order of an archive. If only one tree has a directory, each entry below it is
// a change too. Files of the same size are read until they differ; Diff keeps two blocks of 64 KiB
// and the listings of the directories that lead to the current one in memory.
//
// An error ends the sequence: an error of a tree, or the cause of ctx. It names the path.
func Diff(ctx context.Context, before, after fs.FS) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		d := &differ{ctx: ctx, trees: [2]fs.FS{before, after}, yield: yield}
		if err := d.dir(".", [2]bool{true, true}); err != nil && err != errStop {
			yield(Change{}, fmt.Errorf("compare: %w", err))
		}
	}
}

// errStop ends a comparison when the caller has left the loop.
var errStop = errors.New("no more changes are wanted")

// A differ compares two trees. Index 0 of its arrays is for the tree before, index 1 for the tree
// after.
type differ struct {
	ctx   context.Context
	trees [2]fs.FS
	block [2][diffBlock]byte
	yield func(Change, error) bool
}

// dir compares the entries of the directory name in the trees that have it.
func (d *differ) dir(name string, has [2]bool) error {
	all := map[string][2]fs.DirEntry{} // by name
	for i, tree := range d.trees {
		if !has[i] {
			continue
		}
		list, err := fs.ReadDir(tree, name)
		if err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		for _, e := range list {
			both := all[e.Name()]
			both[i] = e
			all[e.Name()] = both
		}
	}
	for _, base := range slices.Sorted(maps.Keys(all)) {
		if err := d.entry(path.Join(name, base), all[base]); err != nil {
			return err
		}
	}
	return nil
}

// entry compares one entry, then the entries below it.
func (d *differ) entry(name string, entries [2]fs.DirEntry) (err error) {
	c := Change{Path: name}
	var dirs [2]bool
	for i, side := range [2]*Side{&c.Old, &c.New} {
		if entries[i] == nil {
			continue
		}
		if *side, err = describe(d.trees[i], name, entries[i]); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		dirs[i] = entries[i].IsDir()
	}
	if c.Content, err = d.differs(c); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	if (c.Old != c.New || c.Content) && !d.yield(c, nil) {
		return errStop
	}
	if dirs[0] || dirs[1] {
		return d.dir(name, dirs)
	}
	return nil
}

// describe returns the Side of an entry as an archive of tree would have it, or the zero Side if an
// archive would not contain it.
func describe(tree fs.FS, name string, e fs.DirEntry) (Side, error) {
	switch {
	case e.IsDir():
		if o, ok := tree.(omitter); ok && o.Omits(name) {
			return Side{}, nil
		}
		return Side{Mode: modes[kindDir]}, nil
	case !e.Type().IsRegular():
		return Side{}, nil
	}
	info, err := e.Info()
	if err != nil {
		return Side{}, err
	}
	return Side{Mode: fileMode(info), Size: info.Size()}, nil
}

// differs reports whether both sides are files with different content. It reads them up to the
// first difference.
func (d *differ) differs(c Change) (bool, error) {
	switch {
	case d.ctx.Err() != nil:
		return false, context.Cause(d.ctx)
	case !c.Old.isFile() || !c.New.isFile():
		return false, nil
	case c.Old.Size != c.New.Size:
		return true, nil
	}
	var files [2]fs.File
	for i, tree := range d.trees {
		f, err := tree.Open(c.Path)
		if err != nil {
			return false, err
		}
		defer f.Close()
		files[i] = f
	}
	for d.ctx.Err() == nil {
		var read [2][]byte
		for i, f := range files {
			n, err := io.ReadFull(f, d.block[i][:])
			if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
			read[i] = d.block[i][:n]
		}
		if !bytes.Equal(read[0], read[1]) {
			return true, nil
		}
		if len(read[0]) < diffBlock {
			return false, nil
		}
	}
	return false, context.Cause(d.ctx)
}
