package artifact

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Mount returns a view of tree in which sub appears at dir, a path as in [fs.ValidPath]; "." lays
// sub over the whole tree. Mount itself reads nothing.
//
//   - A directory in both trees is one directory with the entries of both.
//   - If neither is a directory, sub's entry wins.
//   - If a path is a directory in one tree and something else in the other, every access to
//     that path or below it fails, and so does listing its parent directory. The error is
//     an [*fs.PathError] that names both trees and matches [fs.ErrExist].
//   - Parents of dir that tree lacks appear as directories.
//
// Symbolic links are not followed to decide between these cases. Directories of several trees, and
// mount points, have mode 0755 and no time. Paths that no mount affects are passed directly to
// tree. Mounts can be nested at no extra cost: a mount of a mount costs as much as one of three
// trees.
//
// The result implements [fs.ReadDirFS], [fs.StatFS] and [fs.ReadLinkFS] whatever the trees
// implement, and keeps no state. It omits a directory (see [Rules.View]) if every tree that has the
// directory omits it. If dir is invalid, every access fails with [fs.ErrInvalid].
func Mount(tree fs.FS, dir string, sub fs.FS) fs.FS {
	if !validPath(dir) {
		return errorFS{&fs.PathError{Op: "mount", Path: dir, Err: fs.ErrInvalid}}
	}
	return union{slices.Concat(layersOf(tree, "."), layersOf(sub, dir))}
}

// An errorFS fails every Open with its error.
type errorFS struct{ err error }

func (n errorFS) Open(string) (fs.File, error) { return nil, n.err }

// A union combines several trees, later ones above earlier ones. The first is at ".".
type union struct{ layers []layer }

// A layer is a tree and the directory at which it appears.
type layer struct {
	dir  string
	tree fs.FS
}

// layersOf returns the layers of tree when it is mounted at dir.
func layersOf(tree fs.FS, dir string) []layer {
	u, ok := tree.(union)
	if !ok {
		return []layer{{dir, tree}}
	}
	list := make([]layer, len(u.layers))
	for i, l := range u.layers {
		list[i] = layer{path.Join(dir, l.dir), l.tree}
	}
	return list
}

// inside returns name relative to the layer's directory; ok is false if it is not inside.
func (l layer) inside(name string) (rel string, ok bool) {
	if l.dir == "." {
		return name, true
	}
	rest, ok := strings.CutPrefix(name, l.dir)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	if rest == "" {
		return ".", true
	}
	return rest[1:], true
}

// above reports whether name is a parent of the layer's directory.
func (l layer) above(name string) bool {
	if name == "." {
		return l.dir != "."
	}
	return len(l.dir) > len(name) && l.dir[len(name)] == '/' && strings.HasPrefix(l.dir, name)
}

// isDir reports whether the layer has a directory at name. The layer's directory and its parents
// are always directories.
func (l layer) isDir(name string) (bool, error) {
	rel, ok := l.inside(name)
	if !ok || rel == "." {
		return true, nil
	}
	info, err := fs.Lstat(l.tree, rel)
	if err != nil {
		return false, setErrorPath(err, name)
	}
	return info.IsDir(), nil
}

// String describes the layer in errors.
func (l layer) String() string {
	if l.dir == "." {
		return "the tree"
	}
	return "the tree mounted at " + l.dir
}

// find returns the layers that have name. There are several only if name is a directory in each of
// them; a single layer may have anything there.
func (u union) find(op, name string) ([]layer, error) {
	if !validPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	hits := u.layers[:1:1]
	for _, l := range u.layers[1:] {
		if _, ok := l.inside(name); ok || l.above(name) {
			hits = append(hits, l)
		}
	}
	for end := 0; len(hits) > 1 && end < len(name) && name != "."; {
		if slash := strings.IndexByte(name[end+1:], '/'); slash >= 0 {
			end += 1 + slash
		} else {
			end = len(name)
		}
		var err error
		if hits, err = narrow(hits, op, name, end); err != nil {
			return nil, err
		}
	}
	return hits, nil
}

// narrow returns the layers that have name[:end], which is name or one of its parents: all of them
// if it is a directory, else only the last.
func narrow(layers []layer, op, name string, end int) ([]layer, error) {
	prefix := name[:end]
	var hits []layer
	var dir bool
	for _, l := range layers {
		isDir, err := l.isDir(prefix)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return nil, err
		case len(hits) > 0 && isDir != dir:
			return nil, conflict(op, prefix, hits[len(hits)-1], dir, l)
		}
		hits, dir = append(hits, l), isDir
	}
	if len(hits) == 0 || !dir && end < len(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	if !dir {
		hits = hits[len(hits)-1:]
	}
	return hits, nil
}

// A conflictError reports a path that is a directory in one layer and something else in another.
type conflictError struct{ text string }

func (e conflictError) Error() string        { return e.text }
func (e conflictError) Is(target error) bool { return target == fs.ErrExist }

// conflict returns the error for a path that is a directory in a, if dir, or else in b.
func conflict(op, name string, a layer, dir bool, b layer) error {
	if !dir {
		a, b = b, a
	}
	return &fs.PathError{Op: op, Path: name, Err: conflictError{
		fmt.Sprintf("a directory in %v but none in %v: mount at another path", a, b),
	}}
}

// setErrorPath replaces the path in err by name, the path that the caller of a union passed.
func setErrorPath(err error, name string) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return &fs.PathError{Op: p.Op, Path: name, Err: p.Err}
	}
	return err
}

// dispatch calls do with the single tree that has name, if name may be something other than a
// directory. Otherwise it calls directory with the layers that have it.
func dispatch[T any](u union, op, name string, do func(fs.FS, string) (T, error), directory func(hits []layer) (T, error)) (result T, err error) {
	hits, err := u.find(op, name)
	if err != nil {
		return result, err
	}
	if rel, ok := hits[0].inside(name); ok && rel != "." && len(hits) == 1 {
		result, err = do(hits[0].tree, rel)
		return result, setErrorPath(err, name)
	}
	return directory(hits)
}

// Open implements [fs.FS].
func (u union) Open(name string) (fs.File, error) {
	return dispatch(u, "open", name, fs.FS.Open, func([]layer) (fs.File, error) {
		return &dirFile{fsys: u, name: name}, nil
	})
}

// Stat implements [fs.StatFS].
func (u union) Stat(name string) (fs.FileInfo, error) { return u.info("stat", name, fs.Stat) }

// Lstat implements [fs.ReadLinkFS].
func (u union) Lstat(name string) (fs.FileInfo, error) { return u.info("lstat", name, fs.Lstat) }

func (u union) info(op, name string, stat func(fs.FS, string) (fs.FileInfo, error)) (fs.FileInfo, error) {
	return dispatch(u, op, name, stat, func([]layer) (fs.FileInfo, error) { return node{name: name}, nil })
}

// ReadLink implements [fs.ReadLinkFS].
func (u union) ReadLink(name string) (string, error) {
	return dispatch(u, "readlink", name, fs.ReadLink, func([]layer) (string, error) {
		return "", &fs.PathError{Op: "readlink", Path: name, Err: fs.ErrInvalid}
	})
}

// ReadDir implements [fs.ReadDirFS].
func (u union) ReadDir(name string) ([]fs.DirEntry, error) {
	return dispatch(u, "readdir", name, fs.ReadDir, func(hits []layer) ([]fs.DirEntry, error) {
		return readDirs(hits, name)
	})
}

// Omits reports whether every tree that has the directory dir omits it.
func (u union) Omits(dir string) bool {
	hits, err := u.find("stat", dir)
	if err != nil {
		return false
	}
	for _, l := range hits {
		rel, ok := l.inside(dir)
		o, omits := l.tree.(omitter)
		if !ok || rel == "." || !omits || !o.Omits(rel) {
			return false
		}
	}
	return true
}

// readDirs lists the directory name, which all layers have.
func readDirs(layers []layer, name string) ([]fs.DirEntry, error) {
	type item struct {
		fs.DirEntry
		layer
	}
	var items []item
	for _, l := range layers {
		entries, err := l.readDir(name)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			items = append(items, item{e, l})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(a.Name(), b.Name()) })
	list := make([]fs.DirEntry, 0, len(items))
	for i, e := range items {
		if i == 0 || items[i-1].Name() != e.Name() {
			list = append(list, e.DirEntry)
			continue
		}
		full := path.Join(name, e.Name())
		if before := items[i-1]; before.IsDir() != e.IsDir() {
			return nil, conflict("readdir", full, before.layer, before.IsDir(), e.layer)
		}
		if list[len(list)-1] = e.DirEntry; e.IsDir() {
			list[len(list)-1] = node{name: full}
		}
	}
	return list, nil
}

// readDir lists the directory name of the layer; above the layer's directory, it lists the next
// part of the path to it.
func (l layer) readDir(name string) ([]fs.DirEntry, error) {
	if rel, ok := l.inside(name); ok {
		entries, err := fs.ReadDir(l.tree, rel)
		return entries, setErrorPath(err, name)
	}
	rest := l.dir
	if name != "." {
		rest = l.dir[len(name)+1:]
	}
	base, _, _ := strings.Cut(rest, "/")
	return []fs.DirEntry{node{name: path.Join(name, base)}}, nil
}
