package bundle

import (
	"bytes"
	"io"
	"io/fs"
	"maps"
	"slices"
	"time"
)

// A memory is a directory of files in memory, by name. Nil is an empty one.
type memory map[string][]byte

// Open implements [fs.FS].
func (m memory) Open(name string) (fs.File, error) {
	if name == "." {
		return &memoryDir{of: m, names: slices.Sorted(maps.Keys(m))}, nil
	}
	text, ok := m[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &memoryFile{Reader: *bytes.NewReader(text), info: entry{name: name, size: int64(len(text))}}, nil
}

// A memoryFile is an open file of a memory.
type memoryFile struct {
	bytes.Reader
	info entry
}

func (f *memoryFile) Stat() (fs.FileInfo, error) { return f.info, nil }
func (f *memoryFile) Close() error               { return nil }

// A memoryDir is the open directory of a memory.
type memoryDir struct {
	of    memory
	names []string // still to be read
}

func (d *memoryDir) Stat() (fs.FileInfo, error) { return entry{name: ".", dir: true}, nil }
func (d *memoryDir) Close() error               { return nil }
func (d *memoryDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: ".", Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (d *memoryDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n > 0 && len(d.names) == 0 {
		return nil, io.EOF
	}
	if n <= 0 || n > len(d.names) {
		n = len(d.names)
	}
	var list []fs.DirEntry
	for _, name := range d.names[:n] {
		list = append(list, fs.FileInfoToDirEntry(entry{name: name, size: int64(len(d.of[name]))}))
	}
	d.names = d.names[n:]
	return list, nil
}

// An entry describes a file of a memory, or its directory.
type entry struct {
	name string
	size int64
	dir  bool
}

func (e entry) Name() string       { return e.name }
func (e entry) Size() int64        { return e.size }
func (e entry) IsDir() bool        { return e.dir }
func (e entry) ModTime() time.Time { return time.Time{} }
func (e entry) Sys() any           { return nil }
func (e entry) Mode() fs.FileMode {
	if e.dir {
		return fs.ModeDir | 0o755
	}
	return 0o644
}
