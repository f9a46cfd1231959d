package lfs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
)

// Options say how [Fill] works. Limits below 1 are none.
type Options struct {
	FileBytes int64 // content of one object
	Bytes     int64 // content of all files, of which others have Used
	Used      int64
	Temp      func() (*os.File, error)
	Progress  func(done, total int64) // bytes; called by one goroutine at a time
}

// A find is a file that is a pointer.
type find struct {
	tracked
	Pointer
	shown string // its path in the view
}

// Fill fetches the objects that view shows pointers to, and puts them into the
// trees made by [New] that view is made of. plain are files that have the
// attribute and are no pointers: they stay as they are. What is returned holds
// the content and is closed when the trees are not used any more; it is nil
// without objects. view must not be read while it is filled.
func Fill(ctx context.Context, view fs.FS, o Options) (held io.Closer, plain []string, err error) {
	finds, plain, err := o.survey(ctx, view)
	if err != nil || len(finds) == 0 {
		return nil, plain, err
	}
	orders, total, err := plan(finds)
	if err != nil {
		return nil, nil, err
	}
	spool, err := newSpool(o.Temp, total, o.Progress)
	if err != nil {
		return nil, nil, err
	}
	for _, order := range orders {
		if err := order.fetch(ctx, spool); err != nil {
			return nil, nil, errors.Join(err, spool.Close())
		}
	}
	for _, f := range finds {
		f.tree.content[f.name] = content{spool.open(orders[f.tree].objects[f.OID]), f.Size}
	}
	return spool, plain, nil
}

// survey finds the pointers that view shows.
func (o Options) survey(ctx context.Context, view fs.FS) (finds []find, plain []string, err error) {
	total := o.Used
	err = fs.WalkDir(view, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		at, ok := info.Sys().(tracked)
		if !ok || info.Size() == 0 { // an empty file stands for itself
			return nil
		}
		p, err := readPointer(at)
		switch {
		case errors.Is(err, ErrNotPointer):
			plain = append(plain, name)
			return nil
		case err != nil:
			return fmt.Errorf("%s: %w", name, err)
		}
		if total, err = o.admit(total, p); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		finds = append(finds, find{at, p, name})
		return nil
	})
	return finds, plain, err
}

func readPointer(at tracked) (Pointer, error) {
	if at.Size() >= maxPointer {
		return Pointer{}, ErrNotPointer
	}
	b, err := fs.ReadFile(at.tree.FS, at.name)
	if err != nil {
		return Pointer{}, err
	}
	return ParsePointer(b)
}

// admit adds the size of a pointer to total.
func (o Options) admit(total int64, p Pointer) (int64, error) {
	if o.FileBytes > 0 && p.Size > o.FileBytes {
		return 0, fmt.Errorf("the LFS object has %d bytes: more than the limit of %d, raise it if that is right", p.Size, o.FileBytes)
	}
	limit := o.Bytes
	if limit <= 0 {
		limit = math.MaxInt64
	}
	if p.Size > limit-total {
		return 0, fmt.Errorf("with the LFS object, which has %d bytes, all files have more than the limit of %d bytes, raise it if that is right", p.Size, limit)
	}
	return total + p.Size, nil
}

// An order is what is wanted of one repository.
type order struct {
	tree    *tree
	objects map[string]Object // by OID
}

// plan gives every object its place in the spool, once for each repository.
func plan(finds []find) (orders map[*tree]*order, total int64, err error) {
	orders = map[*tree]*order{}
	for _, f := range finds {
		o := orders[f.tree]
		if o == nil {
			o = &order{f.tree, map[string]Object{}}
			orders[f.tree] = o
		}
		switch known, ok := o.objects[f.OID]; {
		case !ok:
			o.objects[f.OID] = Object{f.Pointer, f.shown, total}
			total += f.Size
		case known.Size != f.Size:
			return nil, 0, fmt.Errorf("%s and %s are pointers to one object with two sizes, %d and %d bytes", known.Path, f.shown, known.Size, f.Size)
		}
	}
	return orders, total, nil
}

// fetch gets the objects. The empty one needs nobody.
func (o *order) fetch(ctx context.Context, spool *Spool) (err error) {
	list := slices.SortedFunc(maps.Values(o.objects), func(a, b Object) int { return cmp.Compare(a.offset, b.offset) })
	list = slices.DeleteFunc(list, func(o Object) bool { return o.Size == 0 })
	if len(list) == 0 {
		return nil
	}
	source, err := o.tree.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	return source.Fetch(ctx, list, spool)
}
