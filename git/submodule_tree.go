package git

import (
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// A graft is a tree with other trees in the places of its submodules: subs, by
// their paths. A look-up costs the same however many there are.
type graft struct {
	tree fs.FS
	subs map[string]fs.FS
}

// find returns the tree that name is in, its path there, and the place of that
// tree: "." for the tree that holds the submodules.
func (g graft) find(op, name string) (tree fs.FS, rel, at string, err error) {
	if !fs.ValidPath(strings.ToValidUTF8(name, "_")) {
		return nil, "", "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	for i := range len(name) + 1 {
		if i < len(name) && name[i] != '/' {
			continue
		}
		sub, ok := g.subs[name[:i]]
		switch {
		case !ok:
			continue
		case i == len(name):
			return sub, ".", name, nil
		}
		return sub, name[i+1:], name[:i], nil
	}
	return g.tree, name, ".", nil
}

// placed makes err name the path that the caller of a graft knows.
func placed(at string, err error) error {
	var p *fs.PathError
	if at != "." && errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: path.Join(at, p.Path), Err: p.Err}
	}
	return err
}

// Open implements [fs.FS].
func (g graft) Open(name string) (fs.File, error) {
	info, err := g.Lstat(name)
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return &graftDir{graft: g, name: name, info: info}, nil
	}
	tree, rel, at, err := g.find("open", name)
	if err != nil {
		return nil, err
	}
	f, err := tree.Open(rel)
	return f, placed(at, err)
}

// ReadFile implements [fs.ReadFileFS].
func (g graft) ReadFile(name string) ([]byte, error) {
	tree, rel, at, err := g.find("readfile", name)
	if err != nil {
		return nil, err
	}
	data, err := fs.ReadFile(tree, rel)
	return data, placed(at, err)
}

// Stat implements [fs.StatFS].
func (g graft) Stat(name string) (fs.FileInfo, error) { return g.info("stat", name, fs.Stat) }

// Lstat implements [fs.ReadLinkFS].
func (g graft) Lstat(name string) (fs.FileInfo, error) { return g.info("lstat", name, fs.Lstat) }

func (g graft) info(op, name string, stat func(fs.FS, string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	tree, rel, at, err := g.find(op, name)
	if err != nil {
		return nil, err
	}
	if rel == "." && at != "." {
		return folder(path.Base(name)), nil
	}
	info, err := stat(tree, rel)
	return info, placed(at, err)
}

// ReadLink implements [fs.ReadLinkFS].
func (g graft) ReadLink(name string) (string, error) {
	tree, rel, at, err := g.find("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := fs.ReadLink(tree, rel)
	return target, placed(at, err)
}

// ReadDir implements [fs.ReadDirFS].
func (g graft) ReadDir(name string) ([]fs.DirEntry, error) {
	tree, rel, at, err := g.find("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(tree, rel)
	if err != nil || at != "." {
		return entries, placed(at, err)
	}
	list := slices.Clone(entries)
	for i, e := range list {
		if _, ok := g.subs[path.Join(name, e.Name())]; ok {
			list[i] = fs.FileInfoToDirEntry(folder(e.Name()))
		}
	}
	return list, nil
}

// Omits reports whether an archive leaves the directory dir itself out, as
// the tree that holds it says (see [artifact.Rules.View]).
func (g graft) Omits(dir string) bool {
	tree, rel, _, err := g.find("omits", dir)
	o, ok := tree.(interface{ Omits(dir string) bool })
	return err == nil && ok && o.Omits(rel)
}

// A graftDir is an open directory of a graft.
type graftDir struct {
	graft graft
	name  string
	info  fs.FileInfo
	list  []fs.DirEntry // what is still to be read
	begun bool
}

// Stat implements [fs.File].
func (d *graftDir) Stat() (fs.FileInfo, error) { return d.info, nil }

// Read implements [fs.File].
func (d *graftDir) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.name, Err: errors.New("is a directory")}
}

// Close implements [fs.File].
func (d *graftDir) Close() error { return nil }

// ReadDir implements [fs.ReadDirFile].
func (d *graftDir) ReadDir(n int) (list []fs.DirEntry, err error) {
	if !d.begun {
		if d.list, err = d.graft.ReadDir(d.name); err != nil {
			return nil, err
		}
		d.begun = true
	}
	if n <= 0 || n > len(d.list) {
		if n > 0 && len(d.list) == 0 {
			return nil, io.EOF
		}
		n = len(d.list)
	}
	list, d.list = d.list[:n:n], d.list[n:]
	return list, nil
}

// A folder describes a directory by its name.
type folder string

func (f folder) Name() string     { return string(f) }
func (folder) Size() int64        { return 0 }
func (folder) Mode() fs.FileMode  { return fs.ModeDir | 0o755 }
func (folder) ModTime() time.Time { return time.Time{} }
func (folder) IsDir() bool        { return true }
func (folder) Sys() any           { return nil }

// folders is a tree that has a directory at every path. It tells only that.
type folders struct{}

// Open implements [fs.FS].
func (folders) Open(name string) (fs.File, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: errors.ErrUnsupported}
}

// Stat implements [fs.StatFS].
func (folders) Stat(name string) (fs.FileInfo, error) { return folder(path.Base(name)), nil }
