package artifact

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"path"
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
	block [2][]byte
	yield func(Change, error) bool
}

// dir compares what the directory name holds in the trees that have it.
func (d *differ) dir(name string, has [2]bool) error {
	var lists [2][]fs.DirEntry
	for i, tree := range d.trees {
		if !has[i] {
			continue
		}
		var err error
		if lists[i], err = fs.ReadDir(tree, name); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
	}
	for len(lists[0])+len(lists[1]) > 0 {
		base, entries := first(&lists)
		if err := d.entry(path.Join(name, base), entries); err != nil {
			return err
		}
	}
	return nil
}

// first takes the entries of the first name from sorted lists.
func first(lists *[2][]fs.DirEntry) (name string, entries [2]fs.DirEntry) {
	var order int // which list has it: before 0, after 0, or both
	switch a, b := lists[0], lists[1]; {
	case len(a) == 0:
		order = 1
	case len(b) == 0:
		order = -1
	default:
		order = cmp.Compare(a[0].Name(), b[0].Name())
	}
	for i, absent := range [2]bool{order > 0, order < 0} {
		if !absent {
			entries[i], lists[i] = lists[i][0], lists[i][1:]
			name = entries[i].Name()
		}
	}
	return name, entries
}

// entry compares one entry, then what is below it.
func (d *differ) entry(name string, entries [2]fs.DirEntry) error {
	c := Change{Path: name}
	var dirs [2]bool
	for i, side := range [2]*Side{&c.Old, &c.New} {
		if entries[i] == nil {
			continue
		}
		var err error
		if *side, err = d.describe(i, name, entries[i]); err != nil {
			return fmt.Errorf("%q: %w", name, err)
		}
		dirs[i] = entries[i].IsDir()
	}
	same, err := d.same(c)
	if err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	c.Content = !same
	if (c.Old != c.New || c.Content) && !d.yield(c, nil) {
		return errEnough
	}
	if dirs[0] || dirs[1] {
		return d.dir(name, dirs)
	}
	return nil
}

// describe returns what an archive of tree i would say of an entry, the zero
// Side for one that it would not hold.
func (d *differ) describe(i int, name string, e fs.DirEntry) (Side, error) {
	switch {
	case e.IsDir():
		if o, ok := d.trees[i].(omitter); ok && o.Omits(name) {
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
	side := Side{Mode: modes[kindFile], Size: info.Size()}
	if info.Mode()&0o111 != 0 {
		side.Mode = modes[kindExec]
	}
	return side, nil
}

// same reports whether two files have the same content; what is no pair of
// files has no content to differ.
func (d *differ) same(c Change) (bool, error) {
	switch {
	case d.ctx.Err() != nil:
		return false, context.Cause(d.ctx)
	case !c.Old.isFile() || !c.New.isFile():
		return true, nil
	case c.Old.Size != c.New.Size:
		return false, nil
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
	return d.equal(files)
}

// equal reads two files until they differ.
func (d *differ) equal(files [2]fs.File) (bool, error) {
	for d.ctx.Err() == nil {
		var n [2]int
		for i, f := range files {
			if d.block[i] == nil {
				d.block[i] = make([]byte, diffBlock)
			}
			var err error
			if n[i], err = io.ReadFull(f, d.block[i]); err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
				return false, err
			}
		}
		if !bytes.Equal(d.block[0][:n[0]], d.block[1][:n[1]]) {
			return false, nil
		}
		if n[0] < diffBlock {
			return true, nil
		}
	}
	return false, context.Cause(d.ctx)
}
