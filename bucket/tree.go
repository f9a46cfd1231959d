package bucket

import (
	"context"
	"io"
	"io/fs"
	"slices"
	"strings"
)

// ignoreFile is the key of the object that holds ignore rules.
const ignoreFile = ".sourceignore"

// A tree is the objects of a snapshot as files. It keeps nothing beyond the
// listing: a directory is a range of keys. What the rules left no file in is no
// directory. The ignore file is at the root, wherever spec.prefix is.
type tree struct {
	list   *listing
	ignore *Object // the ignore file, nil when there is none
	text   string  // of it
	all    bool    // shows what the rules leave out too
	open   func(i int) (io.ReadCloser, error)
}

var (
	_ fs.ReadDirFS = (*tree)(nil)
	_ fs.StatFS    = (*tree)(nil)
)

// tree returns what the artifact of s holds, or, if all is set, everything
// that the rules are asked about. open reads the object i of the listing.
func (s *snapshot) tree(all bool, open func(i int) (io.ReadCloser, error)) *tree {
	return &tree{list: s.list, ignore: s.ignore, text: s.text, all: all, open: open}
}

// plain returns the tree of all there is, read without reading ahead.
func (s *snapshot) plain(ctx context.Context) *tree {
	return s.tree(true, func(i int) (io.ReadCloser, error) { return receive(ctx, s.driver, s.list.at(i)), nil })
}

// A child is what a directory holds: the objects lo to hi of a directory, or
// the one object lo, with hi 0.
type child struct{ lo, hi int32 }

func (c child) isDir() bool { return c.hi > 0 }

// A folder is a directory: the objects lo to hi, whose keys begin with the
// same bytes, the name of the directory and a slash.
type folder struct {
	lo, hi int
	prefix int // length of what the keys begin with
}

// shows reports whether the object i is a file of the tree.
func (t *tree) shows(i int) bool { return t.all || t.list.kept(i) }

// folder returns the directory name; it holds nothing when there is none.
func (t *tree) folder(name string) folder {
	if name == "." {
		return folder{0, t.list.len(), 0}
	}
	lo := t.list.search(name + "/")
	return folder{lo, t.list.search(name + "0"), len(name) + 1} // 0 comes after /
}

// has reports whether there is a file below f.
func (t *tree) has(f folder) bool {
	for i := f.lo; i < f.hi; i++ {
		if t.shows(i) {
			return true
		}
	}
	return false
}

// children returns what f holds, sorted by name. The order of keys is not
// that of names: a-b is before a/c, but a, which is the directory, before a-b.
func (t *tree) children(f folder) []child {
	var list []child
	sorted, last := true, ""
	for i := f.lo; i < f.hi; {
		key := t.list.key(i)
		name, _, isDir := strings.Cut(key[f.prefix:], "/")
		c, next := child{lo: int32(i)}, i+1
		if isDir {
			next = t.list.search(key[:f.prefix] + name + "0")
			c.hi = int32(next)
		}
		if isDir && t.has(folder{i, next, 0}) || !isDir && t.shows(i) {
			list = append(list, c)
			sorted = sorted && last < name
			last = name
		}
		i = next
	}
	if !sorted {
		slices.SortFunc(list, func(a, b child) int { return strings.Compare(t.name(f, a), t.name(f, b)) })
	}
	return list
}

// name returns the name of c in f.
func (t *tree) name(f folder, c child) string {
	name, _, _ := strings.Cut(t.list.key(int(c.lo))[f.prefix:], "/")
	return name
}

// each calls visit with the objects of f in the order of an archive, until it
// returns false. The ignore file is none of them.
func (t *tree) each(f folder, visit func(i int) bool) bool {
	for _, c := range t.children(f) {
		switch {
		case !c.isDir():
			if !visit(int(c.lo)) {
				return false
			}
		case !t.each(folder{int(c.lo), int(c.hi), f.prefix + len(t.name(f, c)) + 1}, visit):
			return false
		}
	}
	return true
}

// ReadDir implements [fs.ReadDirFS].
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	}
	f := t.folder(name)
	children := t.children(f)
	if len(children) == 0 && name != "." {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	entries := make([]entry, len(children))
	list := make([]fs.DirEntry, len(children), len(children)+1)
	for i, c := range children {
		entries[i] = entry{t.name(f, c), -1}
		if !c.isDir() {
			entries[i].size = t.list.at(int(c.lo)).Size
		}
		list[i] = &entries[i]
	}
	if name == "." && t.ignore != nil {
		at, _ := slices.BinarySearchFunc(list, ignoreFile, func(e fs.DirEntry, name string) int { return strings.Compare(e.Name(), name) })
		list = slices.Insert(list, at, fs.DirEntry(t.ignoreEntry()))
	}
	return list, nil
}

func (t *tree) ignoreEntry() *entry { return &entry{ignoreFile, int64(len(t.text))} }

// find returns the object that is the file name, -1 when there is none.
func (t *tree) find(name string) int {
	i := t.list.search(name)
	if i == t.list.len() || t.list.key(i) != name || !t.shows(i) {
		return -1
	}
	return i
}

// Stat implements [fs.StatFS].
func (t *tree) Stat(name string) (fs.FileInfo, error) {
	e, err := t.stat("stat", name)
	if err != nil {
		return nil, err
	}
	return e, nil
}

func (t *tree) stat(op, name string) (*entry, error) {
	base := name[strings.LastIndexByte(name, '/')+1:]
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == ignoreFile && t.ignore != nil {
		return t.ignoreEntry(), nil
	}
	if i := t.find(name); i >= 0 {
		return &entry{base, t.list.at(i).Size}, nil
	}
	if name != "." && !t.has(t.folder(name)) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return &entry{base, -1}, nil
}

// Open implements [fs.FS]. A file of the artifact is opened once.
func (t *tree) Open(name string) (fs.File, error) {
	info, err := t.stat("open", name)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return &dir{tree: t, name: name, info: info}, nil
	case name == ignoreFile && t.ignore != nil:
		return &file{io.NopCloser(strings.NewReader(t.text)), info}, nil
	}
	content, err := t.open(t.find(name))
	if err != nil {
		return nil, err
	}
	return &file{content, info}, nil
}
