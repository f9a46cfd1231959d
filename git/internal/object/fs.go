package object

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// The bounds of a tree. A path beyond them is an error. They do not bound a walk of
// trees that hold each other many times: see [Measure].
const (
	MaxPath  = 4096     // bytes in a path
	MaxDepth = 512      // elements in a path
	MaxTree  = 64 << 20 // bytes in one tree object, about a million entries
)

// cacheBytes bounds the memory of the parsed trees that an [FS] keeps: enough for the
// path of a walk and some trees around it, not for those of the whole repository. Of
// larger trees, two are kept.
const cacheBytes = 4 << 20

// An FS is a tree as a file system: fs.ReadDirFS, fs.StatFS, fs.ReadFileFS and
// fs.ReadLinkFS, safe for concurrent use as its database is.
//
// Objects are read on demand. Files have mode 0644 or 0755, folders 0755, and no
// modification time. A symbolic link has fs.ModeSymlink and is not followed; opening
// it reads the target's name, as Git stores it. A submodule has fs.ModeIrregular and
// cannot be opened. The size of a file comes from [Database.Stat]; only Lstat works
// without the blob, and then returns the size -1.
//
// Names need not be UTF-8, as in Git. A tree that is malformed or holds a hostile
// name (see [TreeEntries]) fails as a whole, with an *fs.PathError that wraps
// [ErrCorrupt]; an object that the database lacks fails with one that wraps
// fs.ErrNotExist and names the object.
type FS struct {
	db       Database
	root     ID
	replaced map[string]*io.SectionReader // content that replaces blobs, by path
	links    map[string]*FS               // trees mounted over submodules, by path; nil for an empty folder

	mu     sync.Mutex
	recent map[ID][]TreeEntry // of at most half of cacheBytes, or one that is larger
	older  map[ID][]TreeEntry // the previous recent
	weight int                // of recent
}

// TreeFS returns the tree root of db.
func TreeFS(db Database, root ID) *FS {
	return &FS{db: db, root: root, replaced: map[string]*io.SectionReader{}, links: map[string]*FS{}}
}

// Replace replaces the content of the file called name. It must not be called while
// the tree is read.
func (t *FS) Replace(name string, content *io.SectionReader) { t.replaced[name] = content }

// Link mounts the tree sub over the submodule called name. A nil sub is an empty
// folder, which never replaces a tree. Link must not be called while the tree is
// read.
func (t *FS) Link(name string, sub *FS) {
	if sub != nil || t.links[name] == nil {
		t.links[name] = sub
	}
}

// Locate returns the tree that a file comes from, through any view, and its path in
// that tree. The tree is nil for files of other file systems.
func Locate(info fs.FileInfo) (tree *FS, name string) {
	e, ok := info.Sys().(*entry)
	if !ok {
		return nil, ""
	}
	return e.tree, e.path()
}

// EntryID returns the tree of an entry and the ID of its object; the tree is nil for
// entries of other file systems. It does not read the database.
func EntryID(d fs.DirEntry) (tree *FS, id ID) {
	e, ok := d.(*entry)
	if !ok {
		return nil, ID{}
	}
	return e.tree, e.id
}

// An entry is an entry of a tree. It implements fs.DirEntry and fs.FileInfo.
type entry struct {
	tree *FS
	dir  string // the path of the folder that it is in
	name string
	id   ID
	mode Mode
	size int64 // set only in a FileInfo

	linked bool // it is a submodule with the tree sub mounted over it; a nil sub is an empty folder
	sub    *FS
}

// link turns e into a folder if a tree is mounted over the submodule.
func (e *entry) link() {
	if e.mode&modeKind == ModeSubmodule {
		if e.sub, e.linked = e.tree.links[e.path()]; e.linked {
			e.mode = ModeDir
		}
	}
}

func (e *entry) Name() string       { return e.name }
func (e *entry) IsDir() bool        { return e.mode.IsDir() }
func (e *entry) Type() fs.FileMode  { return e.mode.FS().Type() }
func (e *entry) Mode() fs.FileMode  { return e.mode.FS() }
func (e *entry) Size() int64        { return e.size }
func (e *entry) ModTime() time.Time { return time.Time{} }
func (e *entry) Sys() any           { return e }
func (e *entry) String() string     { return fs.FormatDirEntry(e) }
func (e *entry) path() string       { return path.Join(e.dir, e.name) }

// Info implements fs.DirEntry.
func (e *entry) Info() (fs.FileInfo, error) {
	i, err := e.stat()
	return i, pathError("stat", e.path(), err)
}

// stat returns e with its size, which it asks the database for.
func (e *entry) stat() (fs.FileInfo, error) {
	i := *e
	if e.mode.IsDir() || e.mode&modeKind == ModeSubmodule {
		return &i, nil
	}
	var err error
	if content := e.replacement(); content != nil {
		i.size = content.Size()
	} else if i.size, err = e.tree.blobSize(e.id); err != nil {
		return nil, err
	}
	return &i, nil
}

func (e *entry) replacement() *io.SectionReader {
	if len(e.tree.replaced) == 0 {
		return nil
	}
	return e.tree.replaced[e.path()]
}

// blobSize returns the size of a file or link.
func (t *FS) blobSize(id ID) (int64, error) {
	typ, size, err := t.db.Stat(id)
	if err == nil && typ != Blob {
		err = fmt.Errorf("%w: object %v is a %v, want a blob", ErrCorrupt, id, typ)
	}
	return size, err
}

var (
	errIsDir     = errors.New("is a directory")
	errNotDir    = errors.New("not a directory")
	errSubmodule = errors.New("is a submodule: its content is in another repository")
)

// open opens the content of a file or link.
func (e *entry) open() (size int64, content io.ReadCloser, err error) {
	switch {
	case e.mode.IsDir():
		return 0, nil, errIsDir
	case e.mode&modeKind == ModeSubmodule:
		return 0, nil, errSubmodule
	}
	if c := e.replacement(); c != nil {
		return c.Size(), section{io.NewSectionReader(c, 0, c.Size())}, nil
	}
	typ, size, content, err := e.tree.db.Open(e.id)
	if err == nil && typ != Blob {
		content.Close()
		err = fmt.Errorf("%w: object %v is a %v, want a blob", ErrCorrupt, e.id, typ)
	}
	return size, content, err
}

type section struct{ *io.SectionReader }

func (section) Close() error { return nil }

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// Open implements fs.FS.
func (t *FS) Open(name string) (fs.File, error) {
	e, err := t.lookup(name)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	if e.mode.IsDir() {
		list, err := e.list()
		if err != nil {
			return nil, pathError("open", name, err)
		}
		return &openDir{e, list}, nil
	}
	size, content, err := e.open()
	if err != nil {
		return nil, pathError("open", name, err)
	}
	e.size = size
	return &openFile{e, content}, nil
}

// Stat implements fs.StatFS.
func (t *FS) Stat(name string) (fs.FileInfo, error) {
	e, err := t.lookup(name)
	if err != nil {
		return nil, pathError("stat", name, err)
	}
	i, err := e.stat()
	return i, pathError("stat", name, err)
}

// Lstat implements fs.ReadLinkFS.
func (t *FS) Lstat(name string) (fs.FileInfo, error) {
	e, err := t.lookup(name)
	if err != nil {
		return nil, pathError("lstat", name, err)
	}
	i, err := e.stat()
	if errors.Is(err, fs.ErrNotExist) {
		e.size = -1
		return e, nil
	}
	return i, pathError("lstat", name, err)
}

// ReadLink implements fs.ReadLinkFS.
func (t *FS) ReadLink(name string) (string, error) {
	e, err := t.lookup(name)
	if err == nil && e.mode&modeKind != ModeSymlink {
		err = fs.ErrInvalid
	}
	var b []byte
	if err == nil {
		b, err = Read(t.db, e.id, Blob, MaxPath)
	}
	return string(b), pathError("readlink", name, err)
}

// ReadFile implements fs.ReadFileFS.
func (t *FS) ReadFile(name string) ([]byte, error) {
	e, err := t.lookup(name)
	if err != nil {
		return nil, pathError("readfile", name, err)
	}
	size, content, err := e.open()
	if err != nil {
		return nil, pathError("readfile", name, err)
	}
	defer content.Close()
	if size != int64(int(size)) {
		return nil, pathError("readfile", name, fmt.Errorf("blob %v has %d bytes, too many for memory", e.id, size))
	}
	b := make([]byte, size)
	_, err = io.ReadFull(content, b)
	return b, pathError("readfile", name, err)
}

// ReadDir implements fs.ReadDirFS.
func (t *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := t.lookup(name)
	if err == nil && !e.mode.IsDir() {
		err = errNotDir
	}
	var list []fs.DirEntry
	if err == nil {
		list, err = e.list()
	}
	return list, pathError("readdir", name, err)
}

// lookup finds the entry at a path.
func (t *FS) lookup(name string) (*entry, error) {
	e := &entry{tree: t, name: ".", id: t.root, mode: ModeDir}
	if name == "." {
		return e, nil
	}
	if len(name) > MaxPath || strings.Count(name, "/") >= MaxDepth {
		return nil, fmt.Errorf("%w: path of %d bytes and %d elements, more than %d or %d", ErrCorrupt,
			len(name), 1+strings.Count(name, "/"), MaxPath, MaxDepth)
	}
	for rest, more := name, true; more; {
		e.dir = strings.TrimSuffix(name[:len(name)-len(rest)], "/")
		e.name, rest, more = strings.Cut(rest, "/")
		if e.name == "" || e.name == "." || e.name == ".." {
			return nil, fs.ErrInvalid
		}
		if !e.mode.IsDir() {
			return nil, fs.ErrNotExist
		}
		if e.linked {
			if e.sub == nil {
				return nil, fs.ErrNotExist
			}
			if more {
				e.name += "/" + rest
			}
			return e.sub.lookup(e.name)
		}
		entries, err := t.entries(e.id)
		if err != nil {
			return nil, err
		}
		i, ok := slices.BinarySearchFunc(entries, TreeEntry{Name: e.name}, byName)
		if !ok {
			return nil, fs.ErrNotExist
		}
		e.id, e.mode = entries[i].ID, entries[i].Mode
		if len(t.links) > 0 {
			e.link()
		}
	}
	return e, nil
}

// list returns what is in the folder e.
func (e *entry) list() ([]fs.DirEntry, error) {
	if e.linked && e.sub == nil {
		return nil, nil
	}
	if e.linked {
		return (&entry{tree: e.sub, name: ".", id: e.sub.root, mode: ModeDir}).list()
	}
	entries, err := e.tree.entries(e.id)
	if err != nil {
		return nil, err
	}
	at := e.path()
	all := make([]entry, len(entries))
	list := make([]fs.DirEntry, len(entries))
	for i, in := range entries {
		all[i] = entry{tree: e.tree, dir: at, name: in.Name, id: in.ID, mode: in.Mode}
		if len(e.tree.links) > 0 {
			all[i].link()
		}
		list[i] = &all[i]
	}
	return list, nil
}

// entries returns the entries of the tree id, sorted by name as fs.ReadDir has them.
func (t *FS) entries(id ID) ([]TreeEntry, error) {
	t.mu.Lock()
	list, ok := t.recent[id]
	if !ok {
		if list, ok = t.older[id]; ok {
			t.cacheTree(id, list)
		}
	}
	t.mu.Unlock()
	if ok {
		return list, nil
	}
	list, err := t.readDir(id)
	if err == nil {
		t.mu.Lock()
		t.cacheTree(id, list)
		t.mu.Unlock()
	}
	return list, err
}

// cacheTree adds a tree to the recent ones. The caller holds t.mu.
func (t *FS) cacheTree(id ID, list []TreeEntry) {
	weight := 256 + 96*len(list) // approximate memory in bytes
	if t.weight += weight; t.recent == nil || t.weight > cacheBytes/2 {
		t.older, t.recent, t.weight = t.recent, map[ID][]TreeEntry{}, weight
	}
	t.recent[id] = list
}

func byName(a, b TreeEntry) int { return strings.Compare(a.Name, b.Name) }

// readDir reads and parses the tree id.
func (t *FS) readDir(id ID) (list []TreeEntry, err error) {
	data, err := Read(t.db, id, Tree, MaxTree)
	if err != nil {
		return nil, err
	}
	if list, err = TreeEntries(data, id.Format()); err != nil {
		return nil, fmt.Errorf("tree %v: %w", id, err)
	}
	slices.SortFunc(list, byName)
	for i := 1; i < len(list); i++ {
		if list[i].Name == list[i-1].Name {
			return nil, fmt.Errorf("tree %v: %w: two tree entries with the name %.80q", id, ErrCorrupt, list[i].Name)
		}
	}
	return list, nil
}

// An openFile is an open file or link.
type openFile struct {
	info *entry
	io.ReadCloser
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *openFile) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		err = pathError("read", f.info.path(), err)
	}
	return n, err
}

// An openDir is an open folder.
type openDir struct {
	info *entry
	rest []fs.DirEntry // not returned yet
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }
func (d *openDir) Read([]byte) (int, error)   { return 0, pathError("read", d.info.path(), errIsDir) }

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
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
