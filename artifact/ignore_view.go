package artifact

import (
	"context"
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
// The view fails with the cause of ctx once that ends, and as [Rules.Match]
// does. It keeps no state of its own and is as safe for concurrent use as tree
// is. It implements [fs.ReadDirFS], [fs.ReadFileFS], [fs.StatFS],
// [fs.ReadLinkFS] and [fs.SubFS] on top of what tree implements.
func (r *Rules) View(ctx context.Context, tree fs.FS) fs.FS {
	return view{ctx: ctx, tree: tree, rules: r, root: "."}
}

// A view is what rules show of tree, whose top is root in the rules' tree.
type view struct {
	ctx   context.Context
	tree  fs.FS
	rules *Rules
	root  string
}

// An omitter is a tree that shows directories which an archive of it must not
// hold as entries, for the sake of what is below them.
type omitter interface{ Omits(dir string) bool }

// Omits reports whether the rules ignore the directory dir.
func (v view) Omits(dir string) bool {
	_, ignored, err := v.rules.Match(v.ctx, path.Join(v.root, dir), true)
	return dir != "." && ignored && err == nil // an error shows where dir is read
}

// shows reports whether the view shows what is at name, base in f.
func (v view) shows(f *folder, name, base string, dir bool) (bool, error) {
	if dir {
		below, err := v.rules.folder(v.ctx, name)
		if err != nil {
			return false, err
		}
		return v.rules.reveals(v.ctx, below)
	}
	n, err := v.rules.decide(v.ctx, f, base, false)
	return !v.rules.excludes(n), err
}

// admit fails unless the view shows name. It asks the tree for the type of
// name only where the rules treat files and directories differently.
func (v view) admit(op, name string) error {
	if !validPath(name) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	if name == "." {
		return nil
	}
	shown, err := v.admits(name)
	if err == nil && !shown {
		err = fs.ErrNotExist
	}
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	return nil
}

func (v view) admits(name string) (bool, error) {
	full := path.Join(v.root, name)
	f, base, err := v.rules.parent(v.ctx, full)
	if err != nil {
		return false, err
	}
	n, err := v.rules.decide(v.ctx, f, base, true)
	if err != nil || !v.rules.excludes(n) && (n == none || !v.rules.patterns[n].dirOnly) {
		return err == nil, err
	}
	info, err := fs.Lstat(v.tree, name)
	if err != nil {
		return false, err
	}
	return v.shows(f, full, base, info.IsDir())
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
	if !validPath(dir) {
		return nil, &fs.PathError{Op: "sub", Path: dir, Err: fs.ErrInvalid}
	}
	tree, err := fs.Sub(v.tree, dir)
	if err != nil {
		return nil, err
	}
	return view{ctx: v.ctx, tree: tree, rules: v.rules, root: path.Join(v.root, dir)}, nil
}

// ReadDir implements [fs.ReadDirFS].
func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := v.admit("readdir", name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(v.tree, name)
	if err != nil {
		return nil, err
	}
	return v.filter(name, entries)
}

// filter returns the entries of the directory dir that the view shows. It does
// not change entries.
func (v view) filter(dir string, entries []fs.DirEntry) ([]fs.DirEntry, error) {
	full := path.Join(v.root, dir)
	at := full
	if at == "." {
		at = ""
	}
	f, err := v.rules.folder(v.ctx, at)
	if err != nil {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: err}
	}
	list := make([]fs.DirEntry, 0, len(entries))
	for _, e := range entries {
		if v.ctx.Err() != nil {
			return nil, context.Cause(v.ctx)
		}
		shown, err := v.shows(f, path.Join(full, e.Name()), e.Name(), e.IsDir())
		switch {
		case err != nil:
			return nil, &fs.PathError{Op: "readdir", Path: dir, Err: err}
		case shown:
			list = append(list, e)
		default:
			v.rules.dropped.Store(true)
		}
	}
	return list, nil
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
		shown, failed := d.view.filter(d.name, entries)
		if failed != nil {
			return nil, failed
		}
		if n <= 0 || len(shown) > 0 || err != nil {
			return shown, err
		}
		if len(entries) == 0 { // no progress and no error: do not ask for ever
			return nil, io.EOF
		}
	}
}
