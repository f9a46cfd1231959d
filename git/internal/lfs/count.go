package lfs

import (
	"context"
	"io/fs"
)

// Pointers as git-lfs writes them have a length between these, in bytes.
const (
	minCanonical = 120
	maxCanonical = 150
)

// Count returns how many files of view look like pointers, whatever their
// attributes. It reads only files whose length fits.
func Count(ctx context.Context, view fs.FS) (n int, err error) {
	err = fs.WalkDir(view, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() < minCanonical || info.Size() > maxCanonical {
			return err
		}
		b, err := fs.ReadFile(view, name)
		if err != nil {
			return err
		}
		if _, err := ParsePointer(b); err == nil {
			n++
		}
		return nil
	})
	return n, err
}
