package bucket

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
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

// ReadDir implements [fs.ReadDirFS].
func (t *tree) ReadDir(name string) ([]fs.DirEntry, error) {
	prefix, end := "", len(t.list)
	if name != "." {
		prefix, end = name+"/", t.search(name+"/\xff") // no key has that byte
	}
	var list []fs.DirEntry
	for i := t.search(prefix); i < end; {
		child, _, isDir := strings.Cut(t.list[i].Key[len(prefix):], "/")
		if isDir {
			list = append(list, &entry{child, -1})
			i = t.search(prefix + child + "/\xff")
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

// Open implements [fs.FS]. A file of an artifact is opened once; a directory is read by ReadDir of the tree.
func (t *tree) Open(name string) (fs.File, error) {
	if i := t.search(name); i < len(t.list) && t.list[i].Key == name {
		o := t.list[i]
		info := &entry{path.Base(name), o.Size}
		if name == ignoreFile {
			return &file{io.NopCloser(strings.NewReader(t.rules)), info}, nil
		}
		content, err := t.open(o, i)
		if err != nil {
			return nil, err
		}
		return &file{content, info}, nil
	}
	if _, err := t.ReadDir(name); err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errors.Unwrap(err)}
	}
	return &file{io.NopCloser(strings.NewReader("")), &entry{path.Base(name), -1}}, nil
}

// A file is an open object, or a directory.
type file struct {
	io.ReadCloser
	info *entry
}

func (f *file) Stat() (fs.FileInfo, error) { return f.info, nil }

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

// directory returns the origin that reads the directory which stands in for the
// bucket; ok is false when none does.
func (o *Origin) directory() (dir source.Origin, ok bool, err error) {
	spec := &o.bucket.Spec
	name, ok := o.env.Local[localName(spec)]
	if !ok {
		return nil, false, nil
	}
	text, err := localRules(name)
	if err != nil {
		return nil, true, fmt.Errorf("local directory %s: %w", name, err)
	}
	ignore := ignoreOf(spec, text)
	ignore.File = ""                    // those of directories do not count
	ignore.Extra += "\n!/" + ignoreFile // it is in the artifact, as that of a bucket is
	view := source.DirView{Ignore: ignore}
	if spec.Prefix != "" {
		view.Select = func(ctx context.Context, tree fs.FS) (fs.FS, error) { return prefixed(ctx, tree, spec.Prefix) }
	}
	return source.Dir(o.bucket, name, view), true, nil
}

// localRules returns the text of .sourceignore at the top of a directory, "" when there is none.
func localRules(dir string) (string, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return "", err
	}
	defer root.Close()
	switch info, err := root.Lstat(ignoreFile); {
	case errors.Is(err, fs.ErrNotExist), err == nil && !info.Mode().IsRegular():
		return "", nil
	case err != nil:
		return "", err
	}
	f, err := root.Open(ignoreFile)
	if err != nil {
		return "", err
	}
	defer f.Close()
	return readRules(f)
}

// readRules reads the text of .sourceignore.
func readRules(r io.Reader) (string, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxRules+1))
	if err == nil && len(text) > maxRules {
		err = fmt.Errorf("%s has more than %d bytes: shorten it", ignoreFile, maxRules)
	}
	return string(text), err
}

const maxRules = 1 << 20 // bytes of .sourceignore

// ignoreOf returns the ignore rules of a bucket with text in .sourceignore.
func ignoreOf(spec *source.BucketSpec, text string) artifact.Ignore {
	ignore := artifact.Ignore{File: ignoreFile, Top: text}
	if spec.Ignore != nil {
		ignore.Extra = *spec.Ignore
	}
	return ignore
}

// prefixed returns the files of tree whose paths begin with prefix, and
// .sourceignore: to rules, all that is in the directories on the way is ignored
// but what goes on with the prefix.
func prefixed(ctx context.Context, tree fs.FS, prefix string) (fs.FS, error) {
	patterns, at := []string{"/*", "!/" + ignoreFile}, "/"
	if dir, _ := path.Split(prefix); dir == "" || fs.ValidPath(strings.TrimSuffix(dir, "/")) { // else no path begins so
		parts := strings.Split(glob.Replace(prefix), "/")
		for _, part := range parts[:len(parts)-1] {
			at += part + "/"
			patterns = append(patterns, "!"+at, at+"*")
		}
		patterns = append(patterns, "!"+at+parts[len(parts)-1]+"*")
	}
	rules, err := artifact.Ignore{Base: patterns}.Compile(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("spec.prefix: %w", err)
	}
	return rules.View(context.WithoutCancel(ctx), tree), nil // of a spec, and read by later steps
}

// glob quotes what is special in a pattern.
var glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, ` `, `\ `)
