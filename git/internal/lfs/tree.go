package lfs

import (
	"context"
	"io"
	"io/fs"
	"path"
	"slices"
)

// A Source has the objects of one repository.
type Source interface {
	// Fetch gets objects and gives each to spool.
	Fetch(ctx context.Context, objects []Object, spool *Spool) error
	// Close ends connections.
	Close() error
}

// A tree is the tree of a repository in which the content of objects stands in
// the place of their pointers, as far as it was fetched.
type tree struct {
	fs.FS
	attributes *Attributes
	open       func(context.Context) (Source, error)
	content    map[string]content // by path; complete before the tree is read concurrently
}

// New returns t, the tree of a repository, in which [Fill] can replace pointers.
// open is called at most once, and only when there is something to fetch. Of
// what t implements the result has [fs.ReadDirFS] and [fs.StatFS], and entries
// that are no files are those of t; it is as safe for concurrent use as t is, but
// not while it is filled.
func New(t fs.FS, attributes *Attributes, open func(context.Context) (Source, error)) fs.FS {
	return &tree{t, attributes, open, map[string]content{}}
}

// A content is what stands in the place of a pointer.
type content struct {
	io.ReaderAt
	size int64
}

// Open implements [fs.FS].
func (t *tree) Open(name string) (fs.File, error) {
	c, ok := t.content[name]
	if ok {
		info, err := fs.Stat(t.FS, name)
		if err != nil {
			return nil, err
		}
		return &file{io.NewSectionReader(c, 0, c.size), resized{info, c.size}}, nil
	}
	f, err := t.FS.Open(name)
	if err != nil {
		return nil, err
	}
	if d, ok := f.(fs.ReadDirFile); ok {
		return directory{d, t, name}, nil
	}
	return f, nil
}

// Stat implements [fs.StatFS].
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	info, err := fs.Stat(t.FS, name)
	if err != nil {
		return nil, err
	}
	return t.describe(name, info), nil
}

// ReadDir implements [fs.ReadDirFS].
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := fs.ReadDir(t.FS, name)
	return t.entries(name, list), err
}

// entries returns the entries of the directory dir as they are in t. Others than
// files are those of the tree below.
func (t *tree) entries(dir string, list []fs.DirEntry) []fs.DirEntry {
	out := slices.Clone(list)
	for i, e := range out {
		if e.Type().IsRegular() {
			out[i] = &entry{e, t, dir}
		}
	}
	return out
}

// Omits is that of the tree below, see [artifact.Rules.View].
func (t *tree) Omits(dir string) bool {
	o, ok := t.FS.(interface{ Omits(dir string) bool })
	return ok && o.Omits(dir)
}

// describe returns the info of the file name as it is in t.
func (t *tree) describe(name string, info fs.FileInfo) fs.FileInfo {
	if !info.Mode().IsRegular() {
		return info
	}
	if c, ok := t.content[name]; ok {
		return resized{info, c.size}
	}
	if t.attributes.Tracks(name) {
		return tracked{info, t, name}
	}
	return info
}

// tracked is the info of a file with filter=lfs that was not replaced. [Fill]
// finds it in whatever view of the tree.
type tracked struct {
	fs.FileInfo
	tree *tree
	name string
}

// Sys returns i itself.
func (i tracked) Sys() any { return i }

// resized is the info of a pointer that was replaced.
type resized struct {
	fs.FileInfo
	size int64
}

func (i resized) Size() int64 { return i.size }

// An entry is an entry of a directory.
type entry struct {
	fs.DirEntry
	tree *tree
	dir  string
}

// Info implements [fs.DirEntry].
func (e *entry) Info() (fs.FileInfo, error) {
	info, err := e.DirEntry.Info()
	if err != nil {
		return nil, err
	}
	return e.tree.describe(path.Join(e.dir, e.Name()), info), nil
}

// A directory is an open directory.
type directory struct {
	fs.ReadDirFile
	tree *tree
	name string
}

// ReadDir implements [fs.ReadDirFile].
func (d directory) ReadDir(n int) ([]fs.DirEntry, error) {
	list, err := d.ReadDirFile.ReadDir(n)
	return d.tree.entries(d.name, list), err
}

// A file is the content of an object, opened.
type file struct {
	*io.SectionReader
	info fs.FileInfo
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *file) Close() error               { return nil }
