package artifact

import (
	"io"
	"io/fs"
	"path"
)

// View returns tree without what the rules ignore. Opening an ignored path
// fails with [fs.ErrNotExist].
//
// An ignored directory stays visible while some rule may include something
// below it, and only then; whoever archives the view leaves the directory itself
// out where the view says so:
//
//	o, ok := view.(interface{ Omits(dir string) bool })
//	leaveOut := ok && o.Omits(dir)
//
// The view keeps no state of its own and is as safe for concurrent use as tree
// is. It implements [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS],
// [fs.ReadLinkFS] and [fs.SubFS] on top of what tree implements.
func (r *Rules) View(tree fs.FS) fs.FS { return view{tree: tree, rules: r, root: "."} }

// A view is what rules show of tree, whose top is root in the rules' tree.
type view struct {
	tree  fs.FS
	rules *Rules
	root  string
}

// An omitter is a tree that shows directories which an archive of it must not
// hold as entries, for the sake of what is below them.
type omitter interface{ Omits(dir string) bool }

// Omits reports whether the rules ignore the directory dir.
func (v view) Omits(dir string) bool {
	return dir != "." && v.folder(dir).held != none
}

// folder returns the directory name of the view.
func (v view) folder(name string) folder { return v.rules.folder(path.Join(v.root, name)) }

// admit fails unless the view shows name. It asks the tree for the type of
// name only where the rules treat files and directories differently.
func (v view) admit(op, name string) error {
	if !fs.ValidPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return nil
	}
	p := v.rules.find(path.Join(v.root, name))
	file, dir := v.rules.shows(p, false), v.rules.shows(p, true)
	if file != dir {
		info, err := fs.Lstat(v.tree, name)
		if err != nil {
			return err
		}
		if info.IsDir() {
			file = dir
		}
	}
	if !file {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return nil
}

// Open implements [fs.FS].
func (v view) Open(name string) (fs.File, error) {
	if err := v.admit("open", name); err != nil {
		return nil, err
	}
	f, err := v.tree.Open(name)
	if err != nil {
		return nil, err
	}
	d, ok := f.(fs.ReadDirFile)
	if !ok {
		return f, nil
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	if !info.IsDir() {
		return f, nil
	}
	return &viewDir{ReadDirFile: d, view: v, name: name}, nil
}

// Stat implements [fs.StatFS].
func (v view) Stat(name string) (fs.FileInfo, error) {
	if err := v.admit("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(v.tree, name)
}

// ReadFile implements [fs.ReadFileFS].
func (v view) ReadFile(name string) ([]byte, error) {
	if err := v.admit("open", name); err != nil {
		return nil, err
	}
	return fs.ReadFile(v.tree, name)
}

// Lstat implements [fs.ReadLinkFS].
func (v view) Lstat(name string) (fs.FileInfo, error) {
	if err := v.admit("lstat", name); err != nil {
		return nil, err
	}
	return fs.Lstat(v.tree, name)
}

// ReadLink implements [fs.ReadLinkFS].
func (v view) ReadLink(name string) (string, error) {
	if err := v.admit("readlink", name); err != nil {
		return "", err
	}
	return fs.ReadLink(v.tree, name)
}

// Sub implements [fs.SubFS].
func (v view) Sub(dir string) (fs.FS, error) {
	if !fs.ValidPath(dir) {
		return nil, &fs.PathError{Op: "sub", Path: dir, Err: fs.ErrInvalid}
	}
	tree, err := fs.Sub(v.tree, dir)
	if err != nil {
		return nil, err
	}
	return view{tree: tree, rules: v.rules, root: path.Join(v.root, dir)}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := v.admit("readdir", name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(v.tree, name)
	return v.filter(name, entries), err
}

// filter returns the entries of the directory dir that the view shows. It does
// not change entries.
func (v view) filter(dir string, entries []fs.DirEntry) []fs.DirEntry {
	f := v.folder(dir)
	shows := func(e fs.DirEntry) bool { return v.rules.shows(v.rules.in(f, e.Name()), e.IsDir()) }
	kept := 0
	for kept < len(entries) && shows(entries[kept]) {
		kept++
	}
	if kept == len(entries) {
		return entries
	}
	list := append([]fs.DirEntry(nil), entries[:kept]...)
	for _, e := range entries[kept+1:] {
		if shows(e) {
			list = append(list, e)
		}
	}
	return list
}

// A viewDir is an open directory of a view.
type viewDir struct {
	fs.ReadDirFile
	view view
	name string
}

// ReadDir implements [fs.ReadDirFile].
func (d *viewDir) ReadDir(n int) ([]fs.DirEntry, error) {
	for {
		entries, err := d.ReadDirFile.ReadDir(n)
		shown := d.view.filter(d.name, entries)
		if n <= 0 || len(shown) > 0 || err != nil {
			return shown, err
		}
		if len(entries) == 0 { // no progress and no error: do not ask for ever
			return nil, io.EOF
		}
	}
}
