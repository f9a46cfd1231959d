package generator

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/source"
)

// A Tree is the content of an artifact: files of sources, which it opens when they are
// read, and files that were merged. It implements [fs.ReadDirFS] and [fs.StatFS].
type Tree struct {
	nodes  map[string]*node // by path
	origin *origin
	from   []step // by operation
}

// A node is a file or a folder. It is its own [fs.FileInfo].
type node struct {
	name     string // whole path
	mode     fs.FileMode
	size     int64
	tree     fs.FS // that has the file
	path     string
	merged   []byte // the content if tree is nil
	children []*node
	steps    []origination
}

// An origination says that an operation had to do with a file.
type origination struct {
	operation int
	path      string
	merged    bool
}

func (n *node) Name() string       { return path.Base(n.name) }
func (n *node) Size() int64        { return n.size }
func (n *node) Mode() fs.FileMode  { return n.mode }
func (n *node) ModTime() time.Time { return time.Unix(0, 0).UTC() }
func (n *node) IsDir() bool        { return n.mode.IsDir() }
func (n *node) Sys() any           { return nil }

// add adds a node whose folder is there.
func (t *Tree) add(n *node) {
	t.nodes[n.name] = n
	if dir := t.nodes[path.Dir(n.name)]; dir != n {
		dir.children = append(dir.children, n)
	}
}

// mkdir makes a folder, and those that it is in.
func (t *Tree) mkdir(name string) error {
	n := t.nodes[name]
	if n != nil && !n.IsDir() {
		return fmt.Errorf("%s is a file in the artifact by then, and cannot be a folder", name)
	}
	if n != nil {
		return nil
	}
	if err := t.mkdir(path.Dir(name)); err != nil {
		return err
	}
	t.add(&node{name: name, mode: fs.ModeDir | 0o755})
	return nil
}

// seal orders what folders hold.
func (t *Tree) seal() {
	for _, n := range t.nodes {
		slices.SortFunc(n.children, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	}
}

func (t *Tree) find(op, name string) (*node, error) {
	if n := t.nodes[name]; n != nil {
		return n, nil
	}
	return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
}

// Open implements [fs.FS] for files.
func (t *Tree) Open(name string) (fs.File, error) {
	n, err := t.find("open", name)
	switch {
	case err != nil:
		return nil, err
	case n.IsDir():
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("is a folder: list it")}
	case n.tree == nil:
		return file{io.NopCloser(bytes.NewReader(n.merged)), n}, nil
	}
	f, err := n.tree.Open(n.path)
	if err != nil {
		return nil, err
	}
	return file{f, n}, nil
}

type file struct {
	io.ReadCloser
	node *node
}

func (f file) Stat() (fs.FileInfo, error) { return f.node, nil }

// Stat implements [fs.StatFS].
func (t *Tree) Stat(name string) (fs.FileInfo, error) { return t.find("stat", name) }

// ReadDir implements [fs.ReadDirFS].
func (t *Tree) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := t.find("readdir", name)
	if err != nil {
		return nil, err
	}
	entries := make([]fs.DirEntry, len(n.children))
	for i, child := range n.children {
		entries[i] = fs.FileInfoToDirEntry(child)
	}
	return entries, nil
}

// A Step is what one operation had to do with a file.
type Step struct {
	Operation string `json:"operation"` // spec.artifacts[0].copy[1]
	Source    string `json:"source"`    // KIND/NAMESPACE/NAME
	Revision  string `json:"revision"`  // of its artifact
	Path      string `json:"path"`      // in the source; behind that of an archive and a colon, in the archive
}

// Trace returns the operations that a file comes from, in order: several if some were
// merged. Those behind overwrote what is not there any more. Both are empty for what is no file.
func (t *Tree) Trace(name string) (from, overwrote []Step) {
	n := t.nodes[name]
	if n == nil {
		return nil, nil
	}
	for _, s := range n.steps {
		if !s.merged {
			overwrote, from = append(overwrote, from...), nil
		}
		from = append(from, t.step(s.operation, s.path))
	}
	return from, overwrote
}

func (t *Tree) step(i int, name string) Step {
	c, op := t.origin.obj.Composed, t.from[i]
	return Step{fmt.Sprintf("%s.copy[%d]", c.Field, i), op.ref.String(), op.revision, name}
}

// A step is what all files of an operation share.
type step struct {
	ref      source.Reference
	revision string
}
