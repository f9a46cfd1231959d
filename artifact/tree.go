package artifact

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
)

// A Tree is an archive opened as a file system, without extracting it. Its
// methods are safe for concurrent use. It implements [fs.ReadDirFS] and
// [fs.StatFS]. Files have mode 0644 or 0755, directories
// 0755, and the modification time is the Unix epoch.
type Tree struct {
	spool  *os.File
	dirs   map[string][]node // by directory, sorted by name; without the root
	report Report
}

var (
	_ fs.ReadDirFS = (*Tree)(nil)
	_ fs.StatFS    = (*Tree)(nil)
)

// Report returns the content of the archive and what was left out of the tree: links and devices.
func (t *Tree) Report() Report { return t.report }

// Close removes the spool. Files of the tree cannot be read afterwards.
func (t *Tree) Close() error { return t.spool.Close() }

// find returns the node with the name.
func (t *Tree) find(op, name string) (node, error) {
	if name == "." {
		return node{name: "."}, nil
	}
	dir, _ := split(name)
	i, found := slices.BinarySearchFunc(t.dirs[dir], node{name: name}, byName)
	switch {
	case found:
		return t.dirs[dir][i], nil
	case !validPath(name):
		return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// validPath is [fs.ValidPath] for names that need not be UTF-8, such as names in Git and in
// archives.
func validPath(name string) bool { return fs.ValidPath(strings.ToValidUTF8(name, "_")) }

// Open implements [fs.FS]. An open file is also an [io.ReaderAt] and an
// [io.Seeker].
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.kind == kindDir {
		return &dirFile{fsys: t, name: name}, nil
	}
	return &openFile{io.NewSectionReader(t.spool, n.offset, n.size), n}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if n.kind != kindDir {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errNotDir}
	}
	var entries []fs.DirEntry
	for _, child := range t.dirs[name] {
		entries = append(entries, child)
	}
	return entries, nil
}

// Stat implements [fs.StatFS].
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n, nil
}

var (
	errIsDir  = errors.New("is a directory")
	errNotDir = errors.New("is not a directory")
)

// An openFile reads the part of the spool that has the content of one file.
type openFile struct {
	*io.SectionReader
	node node
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.node, nil }
func (f *openFile) Close() error               { return nil }

// A dirFile is an open directory of a file system of this package.
type dirFile struct {
	fsys interface {
		fs.StatFS
		fs.ReadDirFS
	}
	name   string
	listed bool
	rest   []fs.DirEntry // entries not yet returned
}

func (d *dirFile) Stat() (fs.FileInfo, error) { return d.fsys.Stat(d.name) }
func (d *dirFile) Close() error               { return nil }

func (d *dirFile) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errIsDir}
}

// ReadDir implements [fs.ReadDirFile].
func (d *dirFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if !d.listed {
		entries, err := d.fsys.ReadDir(d.name)
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

type kind uint8

const (
	kindDir kind = iota
	kindFile
	kindExec
)

var modes = [...]fs.FileMode{kindDir: fs.ModeDir | 0o755, kindFile: 0o644, kindExec: 0o755}

// fileMode returns the mode of a file in a tree: only the executable bits count.
func fileMode(info fs.FileInfo) fs.FileMode {
	if isExec(info) {
		return modes[kindExec]
	}
	return modes[kindFile]
}

// A node is one entry; the content of a file is a part of the spool.
type node struct {
	name         string // whole path
	offset, size int64
	kind         kind
}

// split returns a node's directory and base name.
func split(name string) (dir, base string) {
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return ".", name
}

func byName(a, b node) int { return strings.Compare(a.name, b.name) }

// A node is its own [fs.FileInfo] and [fs.DirEntry].
func (n node) Name() string               { _, base := split(n.name); return base }
func (n node) Size() int64                { return n.size }
func (n node) Mode() fs.FileMode          { return modes[n.kind] }
func (n node) Type() fs.FileMode          { return n.Mode().Type() }
func (n node) ModTime() time.Time         { return time.Unix(0, 0).UTC() }
func (n node) IsDir() bool                { return n.kind == kindDir }
func (n node) Sys() any                   { return nil }
func (n node) Info() (fs.FileInfo, error) { return n, nil }
func (n node) String() string             { return fs.FormatFileInfo(n) }
