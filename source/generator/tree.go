package generator

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// A Tree is the content of an artifact: files of sources, which are opened when they are read, and
// extracted or merged files. It implements [fs.ReadDirFS] and [fs.StatFS].
type Tree struct{ nodes map[string]*node }

// An opener opens the content of a file.
type opener func() (io.ReadCloser, error)

// A node is a file or a folder. It is its own [fs.FileInfo].
type node struct {
	name     string // whole path
	mode     fs.FileMode
	size     int64
	open     opener // nil for a folder
	children []fs.DirEntry
	steps    []Step
}

func (n *node) Name() string       { return path.Base(n.name) }
func (n *node) Size() int64        { return n.size }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Unix(0, 0).UTC() }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

// A Step describes what one operation did to a file.
type Step struct {
	Operation   string `json:"operation"` // spec.artifacts[0].copy[1]
	Source      string `json:"source"`    // KIND/NAMESPACE/NAME
	Revision    string `json:"revision"`  // of its artifact
	Path        string `json:"path"`      // in the source; for a file in an archive, followed by a colon and the path in the archive
	Overwritten bool   `json:"overwritten,omitempty"`
}

// Steps returns the operations that produced a file, in order, including overwritten ones. If
// several are not overwritten, they were merged.
func (t *Tree) Steps(name string) []Step {
	if n := t.nodes[name]; n != nil {
		return n.steps
	}
	return nil
}

// add adds a node, whose folder must exist.
func (t *Tree) add(n *node) {
	dir := t.nodes[path.Dir(n.name)]
	dir.children = append(dir.children, fs.FileInfoToDirEntry(n))
	t.nodes[n.name] = n
}

// Open implements [fs.FS] for files.
func (t *Tree) Open(name string) (fs.File, error) {
	info, err := t.Stat(name)
	if err != nil {
		return nil, err
	}
	n := info.(*node)
	if n.IsDir() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a folder: list it")}
	}
	content, err := n.open()
	if err != nil {
		return nil, err
	}
	return file{content, n}, nil
}

type file struct {
	io.ReadCloser
	node *node
}

func (f file) Stat() (fs.FileInfo, error) { return f.node, nil }

// Stat implements [fs.StatFS].
func (t *Tree) Stat(name string) (fs.FileInfo, error) {
	if n := t.nodes[name]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
}

// ReadDir implements [fs.ReadDirFS].
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if _, err := t.Stat(name); err != nil {
		return nil, err
	}
	return slices.SortedFunc(slices.Values(t.nodes[name].children), func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) }), nil
}
