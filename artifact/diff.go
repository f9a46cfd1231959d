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

// diffBlock is how much of each of two files is compared at a time.
const diffBlock = 64 << 10

// A Change is one entry in which two trees differ.
type Change struct {
	Path     string
	Old, New Side // of the tree before and of the one after
	Content  bool // both are files, and what they hold differs
}

// A Side is the entry that one tree has at a path; the zero Side is none.
type Side struct {
	Mode fs.FileMode // 0644, 0755 for an executable file, fs.ModeDir|0755 for a directory
	Size int64       // bytes of a file
}

func (s Side) isFile() bool { return s.Mode != 0 && !s.Mode.IsDir() }

// Diff compares two trees entry by entry, as archives of them would be: links
// and devices, permissions other than the executable bit, owners and times do
// not count, nor do directories that a tree omits (see [Tar]). It yields nothing
// exactly when [Tar] writes the same bytes for both.
//
// Changes come in the order of an archive. Of a directory that only one tree
// has, each entry below it is a change too. Files of one size are read until
// they differ; in memory are two blocks of 64 KiB and the listings of the
// directories that lead to the one being compared.
//
// An error ends the sequence: that of a tree, or the cause of ctx. It names the
// path it is about.
func Diff(ctx context.Context, before, after fs.FS) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		d := &differ{ctx: ctx, trees: [2]fs.FS{before, after}, yield: yield}
		if err := d.dir(".", [2]bool{true, true}); err != nil && err != errEnough {
			yield(Change{}, fmt.Errorf("compare: %w", err))
		}
	}
}

// errEnough ends a comparison whose caller wants no more changes.
var errEnough = errors.New("no more changes are wanted")

// A differ compares two trees. What there are two of is of the tree before and
// of the one after.
type differ struct {
	ctx   context.Context
	trees [2]fs.FS
	block [2][diffBlock]byte
	yield func(Change, error) bool
}

// dir compares what the directory name holds in the trees that have it.
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

// entry compares one entry, then what is below it.
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
		return errEnough
	}
	if dirs[0] || dirs[1] {
		return d.dir(name, dirs)
	}
	return nil
}

// describe returns what an archive of tree would say of an entry, the zero Side
// for one that it would not hold.
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

// differs reports whether both are files, and differ in their content. It reads
// them until they do.
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
