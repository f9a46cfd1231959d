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
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headgate-io/headgate/internal/durable"
	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/serve"
)

// Files is a [serve.Feed] of documents in files.
type Files struct {
	// Paths are files and directories with documents. Of a directory it reads
	// what [source.Set.DecodeFS] does: files that end in .yaml, .yml or .json,
	// also in directories below it whose names do not begin with a dot, but
	// not behind links to directories.
	Paths   []string
	Secrets string         // directory of Secrets (see source.DirSecrets), watched too; "" for none
	More    source.Secrets // looked up last; nil for none
	Every   time.Duration  // between two looks; default 1s
	Warn    func(error)    // told once of each warning and defect; nil for no reports
}

// Follow implements [serve.Feed]. A path that does not exist, or cannot be
// read, at first is an error; later it is a defect.
func (f *Files) Follow(ctx context.Context, set func(serve.Desired)) error {
	w := &watch{Files: f, files: make(map[string]*file), keys: make(map[string]*content)}
	if err := w.check(); err != nil {
		return err
	}
	every := f.Every
	if every <= 0 {
		every = time.Second
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	told := make(map[string]bool)
	for {
		if w.look() && ctx.Err() == nil {
			desired, warnings := w.desired()
			set(desired)
			told = f.tell(told, slices.Concat(desired.Defects, warnings))
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// tell tells what was not told already, and returns what there is now.
func (f *Files) tell(told map[string]bool, all []error) map[string]bool {
	now := make(map[string]bool)
	for _, err := range all {
		text := err.Error()
		if f.Warn != nil && !told[text] && !now[text] {
			f.Warn(err)
		}
		now[text] = true
	}
	return now
}

// A watch is what is known of the files of a feed.
type watch struct {
	*Files
	files   map[string]*file
	keys    map[string]*content // of the directory of Secrets
	order   []*file             // of the last look
	defects []error             // of paths and directories at the last look
	round   int                 // number of the last look
	pending bool                // there is a change for the next look to hand over
}

// A file is one with documents.
type file struct {
	name string
	content
	round int
	set   *source.Set // nil when it cannot be read
	bad   []error     // its defects
	worse bool        // by its last change, it holds fewer objects or has defects
}

// check returns why a path cannot be read.
func (w *watch) check() error {
	if len(w.Paths) == 0 {
		return errors.New("no documents are given: name files or directories")
	}
	for _, name := range w.Paths {
		info, err := os.Stat(name)
		switch {
		case err != nil:
		case info.IsDir():
			_, err = os.ReadDir(name)
		case !info.Mode().IsRegular():
			err = fmt.Errorf("%s is neither a file nor a directory", name)
		default:
			var f *os.File
			if f, err = os.Open(name); err == nil {
				err = f.Close()
			}
		}
		if err != nil {
			return fmt.Errorf("documents: %w", err)
		}
	}
	if w.Secrets == "" {
		return nil
	}
	info, err := os.Stat(w.Secrets)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is a file", w.Secrets)
	}
	if err != nil {
		return fmt.Errorf("directory of Secrets: %w", err)
	}
	return nil
}

// look looks at all files, and reports whether there is something to hand over.
func (w *watch) look() bool {
	before, defects := w.order, w.defects
	w.order, w.defects = nil, nil
	w.round++
	changed := w.decode(w.walk())
	secrets := w.Secrets != "" && w.lookKeys()
	if w.round == 1 {
		return true
	}
	differs := len(changed) > 0 || !slices.Equal(before, w.order) ||
		!slices.EqualFunc(defects, w.defects, func(a, b error) bool { return a.Error() == b.Error() })
	gone := slices.ContainsFunc(before, func(f *file) bool { return f.round != w.round })
	worse := gone || len(w.defects) > len(defects) || slices.ContainsFunc(changed, func(f *file) bool { return f.worse })
	if differs && worse && !secrets && !w.pending {
		w.pending = true
		return false
	}
	differs = differs || secrets || w.pending
	w.pending = false
	return differs
}

// walk finds the files in their order and returns them with what the system says of them.
func (w *watch) walk() map[*file]fs.FileInfo {
	found := make(map[*file]fs.FileInfo)
	var visit func(name string, listed fs.DirEntry)
	visit = func(name string, listed fs.DirEntry) {
		info, err := os.Stat(name)
		switch {
		case err != nil && listed != nil && errors.Is(err, fs.ErrNotExist): // gone since it was listed
		case err != nil:
			w.defects = append(w.defects, defect(name, err))
		case info.IsDir():
			if listed != nil && !listed.IsDir() {
				return // a link
			}
			list, err := os.ReadDir(name)
			if err != nil {
				w.defects = append(w.defects, defect(name, err))
			}
			for _, e := range list {
				if manifest(e) {
					visit(filepath.Join(name, e.Name()), e)
				}
			}
		case info.Mode().IsRegular():
			f := w.files[name]
			if f == nil {
				f = &file{name: name}
				w.files[name] = f
			}
			if f.round != w.round { // no other path led to it
				f.round = w.round
				w.order = append(w.order, f)
				found[f] = info
			}
		case listed == nil:
			w.defects = append(w.defects, defect(name, errors.New("is neither a file nor a directory")))
		}
	}
	for _, name := range w.Paths {
		visit(filepath.Clean(name), nil)
	}
	for name, f := range w.files {
		if f.round != w.round {
			delete(w.files, name)
		}
	}
	return found
}

// manifest reports whether an entry of a directory may hold documents.
func manifest(e fs.DirEntry) bool {
	if e.IsDir() {
		return !strings.HasPrefix(e.Name(), ".")
	}
	switch strings.ToLower(filepath.Ext(e.Name())) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// decode brings files up to date, several at a time, and returns those that changed.
func (w *watch) decode(found map[*file]fs.FileInfo) (changed []*file) {
	todo := slices.DeleteFunc(slices.Clone(w.order), func(f *file) bool { return f.same(found[f]) })
	if len(todo) == 0 {
		return nil
	}
	is := make([]bool, len(todo))
	var all sync.WaitGroup
	procs := runtime.GOMAXPROCS(0)
	for p := range procs {
		all.Go(func() {
			for i := p; i < len(todo); i += procs {
				is[i] = todo[i].decode()
			}
		})
	}
	all.Wait()
	for i, f := range todo {
		if is[i] {
			changed = append(changed, f)
		}
	}
	return changed
}

// decode reads the file and reports whether its objects or its defects are others.
func (f *file) decode() bool {
	text, another, err := f.read(f.name, source.MaxStream)
	if err != nil {
		err = defect(f.name, err)
		same := f.set == nil && len(f.bad) > 0 && f.bad[0].Error() == err.Error()
		f.set, f.bad, f.worse = nil, []error{err}, true
		return !same
	}
	if another {
		before := 0
		if f.set != nil {
			before = len(f.set.Objects)
		}
		f.set = new(source.Set)
		f.bad = flat(f.set.Decode(f.name, strings.NewReader(string(text))))
		f.worse = len(f.bad) > 0 || len(f.set.Objects) < before
	}
	return another
}

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

// maxDefects bounds the defects of one [serve.Desired].
const maxDefects = 1000

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
					c.failed = err != nil
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
	*c = content{}
	f, err := os.Open(name)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	if info.Size() > limit {
		return nil, false, fmt.Errorf("larger than %d MiB", limit>>20)
	}
	if text, err = io.ReadAll(io.LimitReader(f, limit)); err != nil { // of one that grows, what it had
		return nil, false, err
	}
	c.stamp, c.sum = durable.StampOf(info), sha256.Sum256(text)
	c.settled = c.stamp.Settled(now)
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
