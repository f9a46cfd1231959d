package artifact

import (
	"cmp"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// readDirs lists the directory name, which all of layers have.
func readDirs(layers []layer, name string) ([]fs.DirEntry, error) {
	if len(layers) == 1 {
		return layers[0].readDir(name)
	}
	type item struct {
		fs.DirEntry
		layer
	}
	var items []item
	for _, l := range layers {
		entries, err := l.readDir(name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			items = append(items, item{e, l})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.Name(), b.Name()) })
	list := make([]fs.DirEntry, 0, len(items))
	for i, e := range items {
		if i == 0 || items[i-1].Name() != e.Name() {
			list = append(list, e.DirEntry)
			continue
		}
		if before := items[i-1]; before.IsDir() != e.IsDir() {
			return nil, conflict("readdir", path.Join(name, e.Name()), before.layer, before.IsDir(), e.layer)
		}
		if p, ok := e.DirEntry.(passage); !ok || p.arrives() {
			list[len(list)-1] = e.DirEntry
		}
	}
	return list, nil
}

// readDir lists the directory name of the layer.
func (l layer) readDir(name string) ([]fs.DirEntry, error) {
	if rel, ok := l.inside(name); ok {
		entries, err := fs.ReadDir(l.tree, rel)
		return entries, rename(err, name)
	}
	rest := l.dir
	if name != "." {
		rest = l.dir[len(name)+1:]
	}
	base, _, _ := strings.Cut(rest, "/")
	return []fs.DirEntry{passage{l, path.Join(name, base)}}, nil
}

// statDir describes the directory name, which all of layers have, as the last
// tree that has it does.
func statDir(layers []layer, name string) (fs.FileInfo, error) {
	for _, l := range slices.Backward(layers) {
		rel, ok := l.inside(name)
		if !ok {
			continue
		}
		info, err := fs.Stat(l.tree, rel)
		if err != nil {
			return nil, rename(err, name)
		}
		return dirInfo{info, path.Base(name)}, nil
	}
	return parentInfo{path.Base(name)}, nil
}

// A passage is the entry of a directory that leads to a layer.
type passage struct {
	layer
	name string
}

// arrives reports whether the layer appears right there.
func (p passage) arrives() bool { return p.name == p.dir }

func (p passage) Name() string               { return path.Base(p.name) }
func (p passage) IsDir() bool                { return true }
func (p passage) Type() fs.FileMode          { return fs.ModeDir }
func (p passage) Info() (fs.FileInfo, error) { return statDir([]layer{p.layer}, p.name) }
func (p passage) String() string             { return fs.FormatDirEntry(p) }

// dirInfo describes a directory under another name.
type dirInfo struct {
	fs.FileInfo
	name string
}

func (i dirInfo) Name() string   { return i.name }
func (i dirInfo) String() string { return fs.FormatFileInfo(i) }

// parentInfo describes a directory that is there only for a layer below it.
type parentInfo struct{ name string }

func (i parentInfo) Name() string     { return i.name }
func (parentInfo) Size() int64        { return 0 }
func (parentInfo) Mode() fs.FileMode  { return fs.ModeDir | 0o755 }
func (parentInfo) ModTime() time.Time { return time.Time{} }
func (parentInfo) IsDir() bool        { return true }
func (parentInfo) Sys() any           { return nil }
func (i parentInfo) String() string   { return fs.FormatFileInfo(i) }

// A unionDir is an open directory of a union.
type unionDir struct {
	layers []layer
	name   string
	listed bool
	rest   []fs.DirEntry // listed and not yet read
	closed bool
}

// Stat implements [fs.File].
func (d *unionDir) Stat() (fs.FileInfo, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "stat", Path: d.name, Err: fs.ErrClosed}
	}
	return statDir(d.layers, d.name)
}

// Read implements [fs.File].
func (d *unionDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errIsDir}
}

// Close implements [fs.File].
func (d *unionDir) Close() error {
	d.closed = true
	return nil
}

// ReadDir implements [fs.ReadDirFile].
func (d *unionDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if d.closed {
		return nil, &fs.PathError{Op: "readdir", Path: d.name, Err: fs.ErrClosed}
	}
	if !d.listed {
		entries, err := readDirs(d.layers, d.name)
		if err != nil {
			return nil, err
		}
		d.rest, d.listed = entries, true
	}
	if n > 0 && len(d.rest) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.rest) {
		n = len(d.rest)
	}
	list := d.rest[:n:n]
	d.rest = d.rest[n:]
	return list, nil
}
