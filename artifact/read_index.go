package artifact

import (
	"cmp"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"
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

// index sorts nodes, adds the directories that they only imply and lets the
// last node of a name win; it names the files that lost. The root has no node.
// More than limit nodes are a [*LimitError]: a long name can imply many directories.
func index(nodes []node, limit int) (_ []node, replaced []string, err error) {
	nodes, err = addParents(nodes, limit)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(nodes, order)
	kept := nodes[:0]
	for _, n := range nodes {
		last := len(kept) - 1
		switch {
		case n.name == ".":
		case last < 0 || kept[last].name != n.name:
			kept = append(kept, n)
		case kept[last].IsDir() != n.IsDir():
			return nil, nil, fmt.Errorf("%w: %q is both a file and a directory", ErrFormat, n.name)
		default:
			if !n.IsDir() && len(replaced) < maxLeftOut {
				replaced = append(replaced, n.name)
			}
			kept[last] = n
		}
	}
	return slices.Clip(kept), replaced, nil
}

// addParents appends a node for each directory that other nodes stand in.
func addParents(nodes []node, limit int) ([]node, error) {
	seen := map[string]bool{".": true}
	for i := range nodes {
		for dir, _ := split(nodes[i].name); !seen[dir]; dir, _ = split(dir) {
			if seen[dir] = true; len(seen) > limit {
				return nil, &LimitError{What: "directories", Limit: int64(limit)}
			}
			nodes = append(nodes, node{name: dir, kind: kindDir})
		}
	}
	return nodes, nil
}

// count adds the nodes to the report.
func (r *Report) count(nodes []node) {
	r.Dirs++ // the root
	for _, n := range nodes {
		if n.IsDir() {
			r.Dirs++
			continue
		}
		r.Files++
		r.Bytes += n.size
	}
}

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
