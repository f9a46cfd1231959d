package artifact

import (
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"
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

type kind uint8

const (
	kindDir kind = iota
	kindFile
	kindExec
)

var modes = [...]fs.FileMode{kindDir: fs.ModeDir | 0o755, kindFile: 0o644, kindExec: 0o755}

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

// order sorts nodes so that the entries of a directory stand together.
func order(a, b node) int {
	dirA, baseA := split(a.name)
	dirB, baseB := split(b.name)
	return cmp.Or(strings.Compare(dirA, dirB), strings.Compare(baseA, baseB))
}

// newTree builds the index: it adds the directories that entries only imply
// and lets the last entry of a name win.
func newTree(spool *os.File, nodes []node, report Report) (*Tree, error) {
	nodes = slices.DeleteFunc(addParents(nodes), func(n node) bool { return n.name == "." })
	slices.SortStableFunc(nodes, order)
	kept := nodes[:0]
	for i, n := range nodes {
		if i+1 < len(nodes) && nodes[i+1].name == n.name {
			if next := nodes[i+1]; (next.kind == kindDir) != (n.kind == kindDir) {
				return nil, fmt.Errorf("%w: %q is both a file and a directory", ErrFormat, n.name)
			}
			continue
		}
		kept = append(kept, n)
	}
	report.Dirs = 1
	for _, n := range kept {
		if n.kind == kindDir {
			report.Dirs++
			continue
		}
		report.Files++
		report.Bytes += n.size
	}
	return &Tree{spool: spool, nodes: slices.Clip(kept), report: report}, nil
}

// addParents appends a node for each directory that has entries but none of
// its own.
func addParents(nodes []node) []node {
	seen := map[string]bool{".": true}
	for i := range nodes {
		for dir, _ := split(nodes[i].name); !seen[dir]; dir, _ = split(dir) {
			seen[dir] = true
			nodes = append(nodes, node{name: dir, kind: kindDir})
		}
	}
	return nodes
}

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

// A node is its own [fs.FileInfo] and [fs.DirEntry].
func (n node) Name() string               { return path.Base(n.name) }
func (n node) Size() int64                { return n.size }
func (n node) Mode() fs.FileMode          { return modes[n.kind] }
func (n node) Type() fs.FileMode          { return n.Mode().Type() }
func (n node) ModTime() time.Time         { return time.Unix(0, 0).UTC() }
func (n node) IsDir() bool                { return n.kind == kindDir }
func (n node) Sys() any                   { return nil }
func (n node) Info() (fs.FileInfo, error) { return n, nil }
func (n node) String() string             { return fs.FormatFileInfo(n) }
