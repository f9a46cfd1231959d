package object

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
)

var (
	errIsDir     = errors.New("is a directory")
	errNotDir    = errors.New("not a directory")
	errSubmodule = errors.New("is a submodule: its content is in another repository")
)

// openBlob opens the content of a file or link.
func (t *treeFS) openBlob(e TreeEntry) (int64, io.ReadCloser, error) {
	switch {
	case e.Mode.IsDir():
		return 0, nil, errIsDir
	case e.Mode&modeKind == ModeSubmodule:
		return 0, nil, errSubmodule
	}
	typ, size, content, err := t.db.Open(e.ID)
	if err != nil {
		return 0, nil, err
	}
	if typ != Blob {
		content.Close()
		return 0, nil, fmt.Errorf("%w: object %v is a %v, want a blob", ErrCorrupt, e.ID, typ)
	}
	return size, content, nil
}

func (t *treeFS) openFile(e TreeEntry, name string) (fs.File, error) {
	size, content, err := t.openBlob(e)
	if err != nil {
		return nil, err
	}
	f := &openFile{content: content, info: t.newInfo(e), name: name}
	f.info.size = size
	return f, nil
}

func (t *treeFS) readFile(e TreeEntry) ([]byte, error) {
	size, content, err := t.openBlob(e)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	if size != int64(int(size)) {
		return nil, fmt.Errorf("blob %v has %d bytes, too many for memory", e.ID, size)
	}
	b := make([]byte, size)
	if _, err := io.ReadFull(content, b); err != nil {
		return nil, fmt.Errorf("blob %v: %w", e.ID, err)
	}
	return b, nil
}

// An openFile is an open file or link.
type openFile struct {
	content io.ReadCloser
	info    *info
	name    string
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.info, nil }

func (f *openFile) Read(p []byte) (int, error) {
	n, err := f.content.Read(p)
	if err != nil && err != io.EOF {
		err = &fs.PathError{Op: "read", Path: f.name, Err: err}
	}
	return n, err
}

func (f *openFile) Close() error { return f.content.Close() }

// An openDir is an open folder.
type openDir struct {
	tree *treeFS
	info *info
	name string
	dir  *dir
	next int // entries returned
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.info, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errIsDir}
}

// ReadDir implements fs.ReadDirFile.
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	rest := &dir{d.dir.entries[d.next:]}
	if n > 0 {
		if len(rest.entries) == 0 {
			return nil, io.EOF
		}
		rest.entries = rest.entries[:min(n, len(rest.entries))]
	}
	d.next += len(rest.entries)
	return rest.list(d.tree, d.name), nil
}
