package artifact

import (
	"errors"
	"io"
	"io/fs"
)

var (
	errIsDir  = errors.New("is a directory")
	errNotDir = errors.New("is not a directory")
)

// An openFile reads the part of the spool that is one file.
type openFile struct {
	*io.SectionReader
	node node
}

func (f *openFile) Stat() (fs.FileInfo, error) { return f.node, nil }
func (f *openFile) Close() error               { return nil }

// An openDir lists a directory.
type openDir struct {
	node node
	rest []node
}

func (d *openDir) Stat() (fs.FileInfo, error) { return d.node, nil }
func (d *openDir) Close() error               { return nil }

func (d *openDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.node.name, Err: errIsDir}
}

// ReadDir implements [fs.ReadDirFile].
func (d *openDir) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(d.rest) {
		if n > 0 && len(d.rest) == 0 {
			return nil, io.EOF
		}
		n = len(d.rest)
	}
	entries := make([]fs.DirEntry, n)
	for i := range entries {
		entries[i] = d.rest[i]
	}
	d.rest = d.rest[n:]
	return entries, nil
}
