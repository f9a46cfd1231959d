// Package feed reads the objects of a controller from files and directories,
// and watches them.
//
// It looks at every file once in a while, by its size, times and number, so
// that it works on every file system, with mounts that are swapped as a whole
// and with editors that replace files. What differs is read; a file whose last
// change is so recent that its time could not tell another one is read again at
// the next look. A file is decoded when its content changed, so that the
// objects of others are the very same values in each [serve.Desired].
//
// What is gone, or has become defective a moment ago, counts from the second
// look on: it may be in the middle of being replaced.
//
// Of documents of one object in several files the first in the order of the
// paths stays; the others are defects. Files in a directory come in lexical
// order.
package feed

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// Files is a [serve.Feed] of documents in files.
type Files struct {
	// Paths are files and directories with documents. Of a directory it reads
	// what [source.Set.DecodeFS] does: files that end in .yaml, .yml or .json,
	// also in directories below it whose names do not begin with a dot, but
	// not behind links to directories. What files .headgateignore there leave
	// out is not read, and a Helm template is a warning, as for headgate fetch.
	Paths   []string
	Secrets string         // directory of Secrets (see source.DirSecrets), watched too; "" for none
	More    source.Secrets // looked up last; nil for none
	Every   time.Duration  // between two looks; default 1s
	Warn    func(error)    // told once of each warning and defect; nil for no reports
}

// Follow implements [serve.Feed]. A path that does not exist, or cannot be
// read, at first is an error; later it is a defect.
func (f *Files) Follow(ctx context.Context, set func(serve.Desired)) error {
	if len(f.Paths) == 0 {
		return errors.New("no documents are given: name files or directories")
	}
	for _, name := range f.Paths {
		if err := check(name, false); err != nil {
			return fmt.Errorf("documents: %w", err)
		}
	}
	if f.Secrets != "" {
		if err := check(f.Secrets, true); err != nil {
			return fmt.Errorf("directory of Secrets: %w", err)
		}
	}
	ticker := time.NewTicker(cmp.Or(f.Every, time.Second))
	defer ticker.Stop()
	w := &watch{Files: f, files: make(map[string]*file), keys: make(map[string]*content), rules: make(map[string]*artifact.Rules)}
	told := make(map[string]bool)
	for {
		if w.look() && ctx.Err() == nil {
			desired, warnings := w.desired()
			set(desired)
			before := told
			told = make(map[string]bool)
			for _, err := range slices.Concat(desired.Defects, warnings) {
				text := err.Error()
				if f.Warn != nil && !before[text] && !told[text] {
					f.Warn(err)
				}
				told[text] = true
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// check returns why a path cannot be read.
func check(name string, dir bool) error {
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return err
	case dir && !info.IsDir():
		return fmt.Errorf("%s is a file", name)
	case !info.IsDir() && !info.Mode().IsRegular():
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return f.Close()
}

// A watch is what is known of the files of a feed.
type watch struct {
	*Files
	files   map[string]*file
	keys    map[string]*content        // of the directory of Secrets
	rules   map[string]*artifact.Rules // of the directories of Paths, as they could be read last
	order   []*file                    // of the last look
	defects []error                    // of paths and directories at the last look
	round   int                        // number of the last look
	changed bool                       // documents did at this look
	worse   bool                       // there are fewer objects, or more defects, than at the look before
	pending bool                       // there is a change for the next look to hand over
}

// A file is one with documents.
type file struct {
	content
	round int
	set   *source.Set // nil when it cannot be read
	bad   []error     // its defects
}

// look looks at all files, and reports whether there is something to hand over.
func (w *watch) look() bool {
	before, defects := w.order, w.defects
	w.order, w.defects, w.changed, w.worse = nil, nil, false, false
	w.round++
	for _, name := range w.Paths {
		w.visit(filepath.Clean(name), nil, nil, ".")
	}
	for name, f := range w.files {
		if f.round != w.round {
			delete(w.files, name)
			w.worse = true
		}
	}
	secrets := w.Secrets != "" && w.lookKeys()
	w.worse = w.worse || len(w.defects) > len(defects)
	w.changed = w.changed || !slices.Equal(before, w.order) ||
		!slices.EqualFunc(defects, w.defects, func(a, b error) bool { return a.Error() == b.Error() })
	if w.changed && w.worse && !secrets && !w.pending && w.round > 1 {
		w.pending = true
		return false
	}
	found := w.changed || secrets || w.pending || w.round == 1
	w.pending = false
	return found
}

// visit reads what has changed of a path, which is given, or was listed by a directory at
// another name in tree.
func (w *watch) visit(name string, listed fs.DirEntry, tree fs.FS, inTree string) {
	info, err := os.Stat(name)
	switch {
	case err != nil && listed != nil && errors.Is(err, fs.ErrNotExist): // gone since it was listed
	case err != nil:
		w.defects = append(w.defects, defect(name, err))
	case info.IsDir() && listed != nil && !listed.IsDir(): // a link
	case info.IsDir():
		if tree == nil {
			tree = w.tree(name)
		}
		list, err := fs.ReadDir(tree, inTree)
		if err != nil {
			w.defects = append(w.defects, defect(name, err))
		}
		for _, e := range list {
			if manifest(e) {
				w.visit(filepath.Join(name, e.Name()), e, tree, path.Join(inTree, e.Name()))
			}
		}
	case info.Mode().IsRegular():
		f := w.files[name]
		if f == nil {
			f = new(file)
			w.files[name] = f
		}
		if f.round == w.round { // another path led to it
			return
		}
		f.round = w.round
		w.order = append(w.order, f)
		if !f.same(info) {
			w.decode(name, f, listed != nil)
		}
	case listed == nil:
		w.defects = append(w.defects, defect(name, errors.New("is neither a file nor a directory")))
	}
}

// tree returns a directory without what it leaves out.
func (w *watch) tree(name string) fs.FS {
	dir := os.DirFS(name)
	rules, err := artifact.Ignore{File: ".headgateignore"}.Compile(context.Background(), dir)
	if err == nil {
		w.rules[name] = rules
	} else if _, unread := errors.AsType[*fs.PathError](err); !unread { // which is told where it is listed
		w.defects = append(w.defects, defect(name, err))
	}
	if w.rules[name] == nil {
		return dir
	}
	return w.rules[name].View(context.Background(), dir)
}

// manifest reports whether an entry of a directory may hold documents.
func manifest(e fs.DirEntry) bool {
	if e.IsDir() {
		return !strings.HasPrefix(e.Name(), ".")
	}
	return slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(e.Name())))
}

// decode reads a file that may have changed, and was listed or is given.
func (w *watch) decode(name string, f *file, listed bool) {
	text, another, err := f.read(name, source.MaxStream)
	switch {
	case err != nil:
		err = defect(name, err)
		if f.set != nil || len(f.bad) != 1 || f.bad[0].Error() != err.Error() {
			w.changed, w.worse = true, true
		}
		f.set, f.bad = nil, []error{err}
	case another:
		before := f.set
		f.set = new(source.Set)
		f.bad = flat(f.set.Decode(name, bytes.NewReader(text)))
		if len(f.bad) > 0 && listed && bytes.Contains(text, []byte("{{")) {
			f.bad, f.set.Warnings = nil, append(f.set.Warnings, defect(name, errors.New("is a Helm template, which is not read: leave it out in .headgateignore")))
		}
		w.changed = true
		w.worse = w.worse || len(f.bad) > 0 || before != nil && len(f.set.Objects) < len(before.Objects)
	}
}

// maxDefects bounds the defects of one [serve.Desired].
const maxDefects = 1000

// desired returns what the files held at the last look, with all places of
// Secrets, and the warnings about it.
func (w *watch) desired() (d serve.Desired, warnings []error) {
	all := new(source.Set)
	d.Defects = slices.Clone(w.defects)
	for _, f := range w.order {
		d.Defects = append(d.Defects, f.bad...)
		if f.set != nil {
			d.Defects = append(d.Defects, flat(all.Add(f.set))...)
		}
	}
	if more := len(d.Defects) - maxDefects; more > 0 {
		d.Defects = append(d.Defects[:maxDefects], fmt.Errorf("and %d defects more", more))
	}
	secrets := []source.Secrets{all}
	if w.Secrets != "" {
		secrets = append(secrets, source.DirSecrets(w.Secrets))
	}
	if w.More != nil {
		secrets = append(secrets, w.More)
	}
	d.Objects, d.Secrets = all.Objects, source.Chain(secrets...)
	return d, all.Warnings
}

// maxKey bounds the keys of Secrets that are compared, in bytes. A larger one is refused when it is used.
const maxKey = 1 << 20

// lookKeys reports whether a key below the directory of Secrets, at most two
// directories deep, may be another than at the last look. It follows links, as
// those of mounts have to be.
func (w *watch) lookKeys() (changed bool) {
	now := make(map[string]*content, len(w.keys))
	var visit func(dir string, depth int) error
	visit = func(dir string, depth int) error {
		list, err := os.ReadDir(dir)
		for _, e := range list {
			name := filepath.Join(dir, e.Name())
			info, err := os.Stat(name)
			switch {
			case err != nil || strings.HasPrefix(e.Name(), ".."):
			case info.IsDir() && depth < 2:
				visit(name, depth+1)
			case info.Mode().IsRegular():
				c := w.keys[name]
				if c == nil {
					c, changed = new(content), true
				}
				if !c.same(info) {
					failed := c.failed
					_, another, err := c.read(name, maxKey)
					changed = changed || another || err != nil && !failed
				}
				now[name] = c
			}
		}
		return err
	}
	if err := visit(w.Secrets, 0); err != nil {
		w.defects = append(w.defects, defect(w.Secrets, err))
	}
	changed = changed || len(now) != len(w.keys)
	w.keys = now
	return changed
}

// A content is what is known of the content of a file.
type content struct {
	stamp   durable.Stamp
	settled bool // another content has another stamp
	failed  bool // it could not be read
	sum     [sha256.Size]byte
}

// same reports whether the file that info describes is the one that was read.
func (c *content) same(info fs.FileInfo) bool { return c.settled && durable.StampOf(info) == c.stamp }

// read reads a file of at most limit bytes, and reports whether it is another than before.
func (c *content) read(name string, limit int64) (text []byte, another bool, err error) {
	now, before := time.Now(), c.sum
	*c = content{failed: true}
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Size() > limit {
		err = fmt.Errorf("larger than %d MiB", limit>>20)
	}
	if err == nil {
		text, err = io.ReadAll(io.LimitReader(f, limit)) // of one that grows, what it had
	}
	if err != nil {
		return nil, false, err
	}
	stamp := durable.StampOf(info)
	*c = content{stamp: stamp, settled: stamp.Settled(now), sum: sha256.Sum256(text)}
	return text, c.sum != before, nil
}

// defect says what is wrong with a file or directory as a whole.
func defect(name string, err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == name {
		err = at.Err
	}
	return &source.DocumentError{File: name, Err: err}
}

// flat takes joined errors apart.
func flat(err error) []error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return all.Unwrap()
	}
	if err == nil {
		return nil
	}
	return []error{err}
}
