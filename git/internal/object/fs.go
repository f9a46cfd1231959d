package object

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"time"
)

// The bounds of a [TreeFS]. A path beyond them is an error. They do not keep
// trees that hold each other many times from being walked: see [Measure].
const (
	MaxPath  = 4096     // bytes in a path
	MaxDepth = 512      // elements in a path
	MaxTree  = 64 << 20 // bytes in one tree object, about a million entries
)

// cacheBytes bounds the parsed trees that a [TreeFS] keeps: those of the path
// that a walk is at and some around it, not those of the repository. Larger
// trees are kept two at a time.
const cacheBytes = 4 << 20

// TreeFS returns the tree root of db as a file system: fs.ReadDirFS, fs.StatFS,
// fs.ReadFileFS and fs.ReadLinkFS, safe for concurrent use as db is.
//
// Nothing is read before it is asked for. Files have mode 0644 or 0755, folders
// 0755, and no modification time. A symbolic link has fs.ModeSymlink and is not
// followed; opening it reads the target's name, as Git stores it. A submodule
// has fs.ModeIrregular and cannot be opened. The size of a file comes from
// [Database.Stat]; Lstat alone does without a blob that db lacks, and gives the
// size -1.
//
// Names need not be UTF-8, as in Git. A tree that is malformed or holds a
// hostile name (see [TreeEntries]) fails as a whole, with an *fs.PathError that
// wraps [ErrCorrupt]; an object that db lacks fails with one that wraps
// fs.ErrNotExist and names the object.
func TreeFS(db Database, root ID) fs.FS {
	return &treeFS{db: db, root: TreeEntry{Mode: ModeDir, Name: ".", ID: root}}
}

type treeFS struct {
	db   Database
	root TreeEntry

	mu     sync.Mutex
	recent map[ID]*dir // of at most half of cacheBytes, or one that is larger
	older  map[ID]*dir // what recent was before
	weight int         // of recent
}

// Open implements fs.FS.
func (t *treeFS) Open(name string) (fs.File, error) {
	e, err := t.lookup(name)
	if err == nil && e.Mode.IsDir() {
		var dir *dir
		if dir, err = t.dir(e.ID); err == nil {
			return &openDir{tree: t, info: t.newInfo(e), name: name, dir: dir}, nil
		}
	}
	var file fs.File
	if err == nil {
		file, err = t.openFile(e, name)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return file, nil
}

// Stat implements fs.StatFS.
func (t *treeFS) Stat(name string) (fs.FileInfo, error) {
	e, err := t.lookup(name)
	var i *info
	if err == nil {
		i, err = t.stat(e)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: name, Err: err}
	}
	return i, nil
}

// Lstat implements fs.ReadLinkFS.
func (t *treeFS) Lstat(name string) (fs.FileInfo, error) {
	e, err := t.lookup(name)
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	i, err := t.stat(e)
	if errors.Is(err, fs.ErrNotExist) {
		i, err = t.newInfo(e), nil
		i.size = -1
	}
	if err != nil {
		return nil, &fs.PathError{Op: "lstat", Path: name, Err: err}
	}
	return i, nil
}

// ReadLink implements fs.ReadLinkFS.
func (t *treeFS) ReadLink(name string) (string, error) {
	e, err := t.lookup(name)
	if err == nil && e.Mode&modeKind != ModeSymlink {
		err = fs.ErrInvalid
	}
	var b []byte
	if err == nil {
		b, err = Read(t.db, e.ID, Blob, MaxPath)
	}
	if err != nil {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: err}
	}
	return string(b), nil
}

// ReadFile implements fs.ReadFileFS.
func (t *treeFS) ReadFile(name string) ([]byte, error) {
	e, err := t.lookup(name)
	var b []byte
	if err == nil {
		b, err = t.readFile(e)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "readfile", Path: name, Err: err}
	}
	return b, nil
}

// ReadDir implements fs.ReadDirFS.
func (t *treeFS) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := t.lookup(name)
	var d *dir
	if err == nil {
		d, err = t.dirOf(e)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: err}
	}
	return d.list(t, name), nil
}

// lookup finds the entry at a path.
func (t *treeFS) lookup(name string) (TreeEntry, error) {
	e := t.root
	if name == "." {
		return e, nil
	}
	if len(name) > MaxPath || strings.Count(name, "/") >= MaxDepth {
		return e, fmt.Errorf("%w: path of %d bytes and %d elements, more than %d or %d", ErrCorrupt,
			len(name), 1+strings.Count(name, "/"), MaxPath, MaxDepth)
	}
	for more := true; more; {
		var element string
		element, name, more = strings.Cut(name, "/")
		if element == "" || element == "." || element == ".." {
			return e, fs.ErrInvalid
		}
		if !e.Mode.IsDir() {
			return e, fs.ErrNotExist
		}
		d, err := t.dir(e.ID)
		if err != nil {
			return e, err
		}
		var ok bool
		if e, ok = d.find(element); !ok {
			return e, fs.ErrNotExist
		}
	}
	return e, nil
}

func (t *treeFS) dirOf(e TreeEntry) (*dir, error) {
	if !e.Mode.IsDir() {
		return nil, errNotDir
	}
	return t.dir(e.ID)
}

// dir returns the parsed tree id.
func (t *treeFS) dir(id ID) (*dir, error) {
	t.mu.Lock()
	d, ok := t.recent[id]
	if !ok {
		if d, ok = t.older[id]; ok {
			t.keep(id, d)
		}
	}
	t.mu.Unlock()
	if ok {
		return d, nil
	}
	d, err := t.readDir(id)
	if err == nil {
		t.mu.Lock()
		t.keep(id, d)
		t.mu.Unlock()
	}
	return d, err
}

// keep makes d one of the recent trees. The caller holds the lock.
func (t *treeFS) keep(id ID, d *dir) {
	if t.weight += d.weight(); t.recent == nil || t.weight > cacheBytes/2 {
		t.older, t.recent, t.weight = t.recent, map[ID]*dir{}, d.weight()
	}
	t.recent[id] = d
}

// readDir reads and parses the tree id.
func (t *treeFS) readDir(id ID) (*dir, error) {
	data, err := Read(t.db, id, Tree, MaxTree)
	if err != nil {
		return nil, err
	}
	d, err := parseDir(data, id.Format())
	if err != nil {
		return nil, fmt.Errorf("tree %v: %w", id, err)
	}
	return d, nil
}

// stat returns the info of an entry; for a file or link it asks the database
// for the size.
func (t *treeFS) stat(e TreeEntry) (*info, error) {
	i := t.newInfo(e)
	if e.Mode.IsDir() || e.Mode&modeKind == ModeSubmodule {
		return i, nil
	}
	typ, size, err := t.db.Stat(e.ID)
	if err != nil {
		return nil, err
	}
	if typ != Blob {
		return nil, fmt.Errorf("%w: object %v is a %v, want a blob", ErrCorrupt, e.ID, typ)
	}
	i.size = size
	return i, nil
}

func (t *treeFS) newInfo(e TreeEntry) *info { return &info{name: e.Name, mode: e.Mode.FS()} }

// An info is an fs.FileInfo.
type info struct {
	name string
	size int64
	mode fs.FileMode
}

func (i *info) Name() string       { return i.name }
func (i *info) Size() int64        { return i.size }
func (i *info) Mode() fs.FileMode  { return i.mode }
func (i *info) ModTime() time.Time { return time.Time{} }
func (i *info) IsDir() bool        { return i.mode.IsDir() }
func (i *info) Sys() any           { return nil }
