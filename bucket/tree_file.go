package bucket

import (
	"io"
	"io/fs"
	"time"
)

// An entry describes a file or a directory.
type entry struct {
	name string
	size int64 // < 0: a directory
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.size < 0 }
func (e *entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return max(e.size, 0) }
func (e *entry) ModTime() time.Time         { return time.Time{} }
func (e *entry) Sys() any                   { return nil }

func (e *entry) Mode() fs.FileMode {
	if e.IsDir() {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// A file is an open object.
type file struct {
	io.ReadCloser
	info *entry
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// A dir is an open directory.
type dir struct {
	tree *tree
	name string
	info *entry
	left []fs.DirEntry
	read bool // left is what is left
}

func (d *dir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *dir) Close() error               { return nil }

func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (d *dir) ReadDir(n int) (list []fs.DirEntry, err error) {
	if !d.read {
		if d.left, err = d.tree.ReadDir(d.name); err != nil {
			return nil, err
		}
		d.read = true
	}
	switch {
	case n <= 0:
		n = len(d.left)
	case len(d.left) == 0:
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	list, d.left = d.left[:n:n], d.left[n:]
	return list, nil
}
