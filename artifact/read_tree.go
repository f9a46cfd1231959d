package artifact

import (
	"cmp"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// A Tree is an archive opened as a file system, without extracting it. Its
// methods are safe for concurrent use. It implements [fs.ReadDirFS],
// [fs.ReadFileFS] and [fs.StatFS]. Files have mode 0644 or 0755, directories
// 0755, and the modification time is the Unix epoch.
type Tree struct {
	spool  *os.File
	nodes  []node // by directory, then by base name; without the root
	report Report
}

var (
	_ fs.ReadDirFS  = (*Tree)(nil)
	_ fs.ReadFileFS = (*Tree)(nil)
	_ fs.StatFS     = (*Tree)(nil)
)

// Report says what the archive holds and what was left out of the tree:
// links and devices.
func (t *Tree) Report() Report { return t.report }

// Close removes the spool. Files of the tree cannot be read any more.
func (t *Tree) Close() error { return t.spool.Close() }

// find returns the node with that name.
func (t *Tree) find(op, name string) (node, error) {
	if name == "." {
		return node{name: "."}, nil
	}
	i, found := slices.BinarySearchFunc(t.nodes, node{name: name}, order)
	switch {
	case found:
		return t.nodes[i], nil
	case !fs.ValidPath(name):
		return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return node{}, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// children returns the nodes in a directory, sorted by name.
func (t *Tree) children(dir string) []node {
	compare := func(n node, dir string) int {
		parent, _ := split(n.name)
		return strings.Compare(parent, dir)
	}
	from, _ := slices.BinarySearchFunc(t.nodes, dir, compare)
	to, _ := slices.BinarySearchFunc(t.nodes[from:], dir, func(n node, dir string) int {
		return cmp.Or(compare(n, dir), -1)
	})
	return t.nodes[from : from+to]
}

// Open implements [fs.FS]. An open file is also an [io.ReaderAt] and an
// [io.Seeker].
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	if err != nil {
		return nil, err
	}
	if n.kind == kindDir {
		return &openDir{node: n, rest: t.children(name)}, nil
	}
	return &openFile{SectionReader: t.section(n), node: n}, nil
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
	return (&openDir{node: n, rest: t.children(name)}).ReadDir(-1)
}

// ReadFile implements [fs.ReadFileFS].
func (t *Tree) ReadFile(name string) ([]byte, error) {
	n, err := t.find("read", name)
	if err != nil {
		return nil, err
	}
	if n.kind == kindDir {
		return nil, &fs.PathError{Op: "read", Path: name, Err: errIsDir}
	}
	content := make([]byte, n.size)
	if _, err := io.ReadFull(t.section(n), content); err != nil {
		return nil, &fs.PathError{Op: "read", Path: name, Err: err}
	}
	return content, nil
}

// Stat implements [fs.StatFS].
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	n, err := t.find("stat", name)
	if err != nil {
		return nil, err
	}
	return n, nil
}

func (t *Tree) section(n node) *io.SectionReader {
	return io.NewSectionReader(t.spool, n.offset, n.size)
}
