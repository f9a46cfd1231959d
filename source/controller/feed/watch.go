package feed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headgate-io/headgate/source"
)

// A watch is what is known of the files of a feed.
type watch struct {
	paths   []string
	dirs    listings
	files   map[string]*content
	secrets *secrets // nil for none

	// Of the last look:
	order   []*content
	defects []error // of paths and directories

	looked  bool
	pending bool // something changed that was not handed over yet
}

// begin checks the paths.
func (f *Files) begin() (*watch, error) {
	if len(f.Paths) == 0 {
		return nil, errors.New("no documents are given: name files or directories")
	}
	w := &watch{paths: f.Paths, dirs: listings{want: manifest}, files: make(map[string]*content)}
	for _, name := range f.Paths {
		info, err := os.Stat(name)
		if err == nil && info.IsDir() {
			_, err = os.ReadDir(name)
		} else if err == nil {
			err = readable(name, info)
		}
		if err != nil {
			return nil, fmt.Errorf("documents: %w", err)
		}
	}
	if f.Secrets != "" {
		if info, err := os.Stat(f.Secrets); err != nil {
			return nil, fmt.Errorf("directory of Secrets: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("directory of Secrets: %s is a file", f.Secrets)
		}
		w.secrets = newSecrets(f.Secrets)
	}
	return w, nil
}

// readable returns why a file that was named cannot be read.
func readable(name string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is neither a file nor a directory", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return file.Close()
}

// look looks at all files, and reports whether there is something to hand over.
func (w *watch) look(ctx context.Context) bool {
	before, defects := w.order, w.defects
	todo := w.walk()
	changed := decodeAll(ctx, todo)
	if w.secrets != nil && w.secrets.look() {
		w.pending = true
	}
	gone := len(w.files) != len(w.order) && w.forget()
	worse := gone || len(w.defects) > len(defects) || slices.ContainsFunc(changed, func(c *content) bool { return c.worse })
	differs := len(changed) > 0 || !slices.Equal(before, w.order) ||
		!slices.EqualFunc(defects, w.defects, func(a, b error) bool { return a.Error() == b.Error() })
	switch {
	case !w.looked:
		w.looked = true
		return true
	case differs && worse && !w.pending: // at the next look, whatever it shows
		w.pending = true
		return false
	}
	differs = differs || w.pending
	w.pending = false
	return differs
}

// A walker is one walk over all files.
type walker struct {
	*watch
	todo  []*content
	bytes int64
	full  bool
}

// walk finds the files and returns those to be read.
func (w *watch) walk() []*content {
	w.dirs.begin()
	w.order, w.defects = make([]*content, 0, len(w.order)), nil
	walk := &walker{watch: w}
	for _, name := range w.paths {
		name = filepath.Clean(name)
		info, err := os.Stat(name)
		switch {
		case err != nil:
			w.fail(name, err)
		case info.IsDir():
			walk.dir(name, info)
		case !info.Mode().IsRegular():
			w.fail(name, errors.New("is neither a file nor a directory"))
		default:
			walk.file(w.content(name), info)
		}
	}
	w.dirs.forget()
	return walk.todo
}

func (w *watch) fail(name string, err error) { w.defects = append(w.defects, defect(name, err)) }

// dir finds the files in a directory. What is gone since it was listed is passed over.
func (w *walker) dir(name string, info fs.FileInfo) {
	entries, err := w.dirs.list(name, info)
	if err != nil {
		w.fail(name, err)
		return
	}
	for i := range entries {
		e := &entries[i]
		info, err := os.Stat(e.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			e.file = nil
		case err != nil:
			w.fail(e.path, err)
		case e.dir && info.IsDir():
			w.dir(e.path, info)
		case info.Mode().IsRegular():
			if e.file == nil {
				e.file = w.content(e.path)
			}
			w.file(e.file, info)
		}
	}
}

// content returns what is known of a file.
func (w *watch) content(name string) *content {
	c := w.files[name]
	if c == nil {
		c = &content{name: name}
		w.files[name] = c
	}
	return c
}

// file notes a file, and whether it is to be read.
func (w *walker) file(c *content, info fs.FileInfo) {
	if c.round == w.dirs.round || w.full { // another path led to it
		return
	}
	c.round = w.dirs.round
	if w.bytes += info.Size(); w.bytes > MaxBytes || len(w.order) == MaxFiles {
		w.full, c.set, c.read = true, nil, false
		w.fail(c.name, fmt.Errorf("it and all files after it are not read: there are more than %d files or %d MiB", MaxFiles, MaxBytes>>20))
		return
	}
	w.order = append(w.order, c)
	if !c.same(info) {
		w.todo = append(w.todo, c)
	}
}

// forget drops the files that are gone, and reports whether there are any.
func (w *watch) forget() (gone bool) {
	for name, c := range w.files {
		if c.round != w.dirs.round {
			delete(w.files, name)
			gone = true
		}
	}
	return gone
}

// decodeAll brings files up to date, several at a time, and returns those that changed.
func decodeAll(ctx context.Context, todo []*content) (changed []*content) {
	var next atomic.Int64
	var mu sync.Mutex
	var all sync.WaitGroup
	for range min(len(todo), runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := next.Add(1); int(i) <= len(todo) && ctx.Err() == nil; i = next.Add(1) {
				if c := todo[i-1]; c.decode() {
					mu.Lock()
					changed = append(changed, c)
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	return changed
}

// contents are what all files hold.
type contents struct {
	set     *source.Set
	defects []error
}

// maxDefects bounds the defects of one [controller.Desired].
const maxDefects = 1000

// merged returns what the files held at the last look.
func (w *watch) merged() contents {
	all := contents{set: new(source.Set), defects: slices.Clone(w.defects)}
	if w.secrets != nil {
		all.defects = append(all.defects, w.secrets.defects...)
	}
	for _, c := range w.order {
		all.defects = append(all.defects, c.bad...)
		if c.set == nil {
			continue
		}
		if len(all.set.Objects)+len(c.set.Objects) > MaxObjects {
			all.defects = append(all.defects, defect(c.name, fmt.Errorf("its objects and all after it are left out: there are more than %d", MaxObjects)))
			break
		}
		all.defects = append(all.defects, flat(all.set.Add(c.set))...)
	}
	if more := len(all.defects) - maxDefects; more > 0 {
		all.defects = append(all.defects[:maxDefects], fmt.Errorf("and %d defects more", more))
	}
	return all
}
