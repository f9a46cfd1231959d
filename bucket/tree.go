package bucket

import (
	"cmp"
	"io"
	"io/fs"
	"slices"
	"sort"
	"strings"
	"time"
)

// A tree is objects as files. They are in the order of an archive, so that what
// is in a directory lies together, and its children are sorted by name.
type tree struct {
	list  []Object
	rules string // the content of .sourceignore
	open  func(o Object, i int) (io.ReadCloser, error)
}

// newTree returns the tree of objects whose keys are paths, none a directory of
// another. open opens the one number i in the order of the tree.
func newTree(objects []Object, rules string, open func(o Object, i int) (io.ReadCloser, error)) *tree {
	if !slices.IsSortedFunc(objects, archiveOrder) {
		objects = slices.Clone(objects)
		slices.SortFunc(objects, archiveOrder)
	}
	return &tree{objects, rules, open}
}

// archiveOrder compares objects in the order of an archive: a/c comes before a-b,
// since the directory a does. In the order of keys it comes behind.
func archiveOrder(a, b Object) int {
	for i := range min(len(a.Key), len(b.Key)) {
		x, y := a.Key[i], b.Key[i]
		switch {
		case x == y:
		case x == '/':
			return -1
		case y == '/':
			return 1
		default:
			return cmp.Compare(x, y)
		}
	}
	return cmp.Compare(len(a.Key), len(b.Key))
}

// search returns the first i whose object is not before key.
func (t *tree) search(key string) int {
	return sort.Search(len(t.list), func(i int) bool { return archiveOrder(t.list[i], Object{Key: key}) >= 0 })
}

// end returns the i behind the last object whose key begins with prefix, the
// name of a directory and a slash. No key has the byte 0xff.
func (t *tree) end(prefix string) int {
	if prefix == "" {
		return len(t.list)
	}
	return t.search(prefix + "\xff")
}

// ReadDir implements [fs.ReadDirFS].
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	prefix := name + "/"
	if name == "." {
		prefix = ""
	}
	var list []fs.DirEntry
	for i, end := t.search(prefix), t.end(prefix); i < end; {
		child, _, isDir := strings.Cut(t.list[i].Key[len(prefix):], "/")
		if isDir {
			list = append(list, &entry{child, -1})
			i = t.end(prefix + child + "/")
		} else {
			list = append(list, &entry{child, t.list[i].Size})
			i++
		}
	}
	switch {
	case !fs.ValidPath(name):
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrInvalid}
	case len(list) == 0 && name != ".":
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: fs.ErrNotExist}
	}
	return list, nil
}

// Open implements [fs.FS]. A file of an artifact is opened once.
func (t *tree) Open(name string) (fs.File, error) {
	i := t.search(name)
	info := &entry{name[strings.LastIndexByte(name, '/')+1:], -1}
	if i < len(t.list) && t.list[i].Key == name {
		info.size = t.list[i].Size
		if name == ignoreFile {
			return &file{io.NopCloser(strings.NewReader(t.rules)), info}, nil
		}
		content, err := t.open(t.list[i], i)
		if err != nil {
			return nil, err
		}
		return &file{content, info}, nil
	}
	children, err := t.ReadDir(name)
	if err != nil {
		err.(*fs.PathError).Op = "open"
		return nil, err
	}
	return &dir{file{io.NopCloser(strings.NewReader("")), info}, name, children}, nil
}

// An entry describes a file or a directory.
type entry struct {
	name string
	size int64 // < 0: a directory
}

func (e *entry) Name() string               { return e.name }
func (e *entry) IsDir() bool                { return e.size < 0 }
func (e *entry) Type() fs.FileMode          { return e.Mode().Type() }
func (e *entry) Info() (fs.FileInfo, error) { return e, nil }
func (e *entry) Size() int64                { return max(e.size, 0) }
func (e *entry) ModTime() time.Time         { return time.Time{} }
func (e *entry) Sys() any                   { return nil }

func (e *entry) Mode() fs.FileMode {
	if e.IsDir() {
		return fs.ModeDir | 0o755
	}
	return 0o644
}

// A file is an open object.
type file struct {
	io.ReadCloser
	info *entry
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

// A dir is an open directory.
type dir struct {
	file
	name string
	left []fs.DirEntry
}

func (d *dir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: fs.ErrInvalid}
}

// ReadDir implements [fs.ReadDirFile].
func (d *dir) ReadDir(n int) (list []fs.DirEntry, err error) {
	switch {
	case n <= 0:
		n = len(d.left)
	case len(d.left) == 0:
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	list, d.left = d.left[:n:n], d.left[n:]
	return list, nil
}
