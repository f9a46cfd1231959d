// Package feed reads the objects of a controller from files and directories,
// and watches them.
//
// It looks at every file once in a while, by its size, times and number, so
// that it works on every file system, with mounts that are swapped as a whole
// and with editors that replace files. When something differs, and has been as it
// is for two looks, the files are read: what is being replaced is not taken for gone
// or defective. A file whose last change is so recent that its time could not tell another
// one is read again later. A file is decoded when its content changed, so that the
// objects of others are the very same values in each [serve.Desired].
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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headgate-io/headgate/artifact"
	documents "github.com/headgate-io/headgate/internal/document"
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
	w := &watch{Files: f, rules: make(map[string]*artifact.Rules)}
	var seen, read []file // at the last look, and when they were read last
	moving := patience    // looks since something differed
	for {
		files := w.look(ctx)
		another := !slices.Equal(files, read)
		switch {
		case ctx.Err() != nil:
		case moving == patience || another && slices.Equal(files, seen):
			read, moving = files, 0
			if desired, another := w.read(files); another {
				set(desired)
			}
		case another:
			moving++
		default:
			moving = 0
		}
		seen = files
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// patience is after how many looks files are read that differ at each of them.
const patience = 5

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
	rules map[string]*artifact.Rules // of the directories of Paths, as they could be read last
	known map[string]*document       // by name, as they were read last
	sum   [sha256.Size]byte          // of all of them
	told  map[string]bool            // warnings and defects
}

// A file is what a look finds at a path.
type file struct {
	name    string
	stamp   durable.Stamp
	settled bool   // another content has another stamp
	listed  bool   // by a directory, and not given
	secret  bool   // it is a key of a Secret
	defect  string // why it is none
}

// look looks at all paths.
func (w *watch) look(ctx context.Context) (files []file) {
	now, seen := time.Now(), make(map[string]bool)
	found := func(f file, info fs.FileInfo) {
		if seen[f.name] { // another path led to it
			return
		}
		seen[f.name] = true
		if info != nil {
			f.stamp = durable.StampOf(info)
			f.settled = f.stamp.Settled(now)
		}
		files = append(files, f)
	}
	bad := func(name string, err error) { found(file{name: name, defect: plain(name, err).Error()}, nil) }
	for _, root := range w.Paths {
		root = filepath.Clean(root)
		info, err := os.Stat(root)
		switch {
		case err != nil:
			bad(root, err)
		case info.Mode().IsRegular():
			found(file{name: root}, info)
		case !info.IsDir():
			bad(root, errors.New("is neither a file nor a directory"))
		default:
			tree, err := w.tree(ctx, root)
			if err != nil {
				bad(root, err)
			}
			for inTree, err := range documents.Files(tree, ".") {
				name := filepath.Join(root, filepath.FromSlash(inTree))
				var info fs.FileInfo
				if err == nil {
					if info, err = os.Stat(name); errors.Is(err, fs.ErrNotExist) { // it is gone again
						continue
					}
				}
				if err != nil {
					bad(name, err)
				} else if info.Mode().IsRegular() {
					found(file{name: name, listed: true}, info)
				}
			}
		}
	}
	if w.Secrets != "" {
		w.keys(w.Secrets, 0, found, bad)
	}
	return files
}

// tree returns a directory without what it leaves out, by the rules that could be read last.
func (w *watch) tree(ctx context.Context, name string) (fs.FS, error) {
	dir := os.DirFS(name)
	rules, err := artifact.Ignore{File: ".headgateignore"}.Compile(ctx, dir)
	if err == nil {
		w.rules[name] = rules
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		err = nil // which is told where it is listed
	}
	if rules = w.rules[name]; rules == nil {
		return dir, err
	}
	return rules.View(ctx, dir), err
}

// keys finds the keys of Secrets below a directory, at most two directories deep.
// It follows links, as those of mounts have to be.
func (w *watch) keys(dir string, depth int, found func(file, fs.FileInfo), bad func(string, error)) {
	list, err := os.ReadDir(dir)
	if err != nil && depth == 0 {
		bad(dir, err)
	}
	for _, e := range list {
		name := filepath.Join(dir, e.Name())
		info, err := os.Stat(name)
		switch {
		case err != nil || strings.HasPrefix(e.Name(), ".."):
		case info.IsDir() && depth < 2:
			w.keys(name, depth+1, found, bad)
		case info.Mode().IsRegular():
			found(file{name: name, secret: true}, info)
		}
	}
}

// A document is what is known of the content of a file.
type document struct {
	sum [sha256.Size]byte
	set *source.Set // nil when it cannot be read, and of a key
	bad []error     // its defects
}

// read reads files, and tells the warnings and defects that are new. It returns what they hold, with all
// places of Secrets, and whether that is another than before.
func (w *watch) read(files []file) (d serve.Desired, another bool) {
	all, known, sum := new(source.Set), make(map[string]*document, len(files)), sha256.New()
	for _, f := range files {
		next := w.document(f, w.known[f.name])
		known[f.name] = next
		d.Defects = append(d.Defects, next.bad...)
		fmt.Fprintln(sum, f.name, next.sum, next.bad)
		if next.set != nil {
			d.Defects = append(d.Defects, documents.Split(all.Add(next.set))...)
		}
	}
	before := w.sum
	w.known, w.sum = known, [sha256.Size]byte(sum.Sum(nil))
	secrets := []source.Secrets{all}
	if w.Secrets != "" {
		secrets = append(secrets, source.DirSecrets(w.Secrets))
	}
	if w.More != nil {
		secrets = append(secrets, w.More)
	}
	d.Objects, d.Invalid, d.Secrets = all.Objects, all.Invalid, source.Chain(secrets...)
	told := make(map[string]bool)
	for _, err := range slices.Concat(d.Defects, all.Warnings) {
		text := err.Error()
		if w.Warn != nil && !w.told[text] && !told[text] {
			w.Warn(err)
		}
		told[text] = true
	}
	w.told = told
	return d, w.sum != before
}

// document reads a file; before is what it was, nil for none.
func (w *watch) document(f file, before *document) *document {
	text, err := []byte(nil), errors.New(f.defect)
	if f.defect == "" {
		text, err = readFile(f.name)
		err = plain(f.name, err)
	}
	next := &document{sum: sha256.Sum256(text)}
	switch {
	case f.secret: // DirSecrets says what is wrong
		if err != nil {
			next.sum = sha256.Sum256([]byte(err.Error()))
		}
	case err != nil:
		next.bad = []error{&source.DocumentError{File: f.name, Err: err}}
	case before != nil && before.set != nil && before.sum == next.sum:
		return before
	default:
		next.set = new(source.Set)
		next.bad = documents.Split(next.set.Decode(f.name, bytes.NewReader(text)))
		if len(next.bad) > 0 && f.listed && bytes.Contains(text, []byte("{{")) {
			template := errors.New("is a Helm template, which is not read: leave it out in .headgateignore")
			next.bad, next.set.Invalid, next.set.Warnings = nil, nil, append(next.set.Warnings, &source.DocumentError{File: f.name, Err: template})
		}
	}
	return next
}

// plain returns an error about a file without the name of the file.
func plain(name string, err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == name {
		return at.Err
	}
	return err
}

// readFile reads a file of at most [source.MaxStream] bytes; of one that grows, what it had.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > source.MaxStream {
		return nil, fmt.Errorf("larger than %d MiB", source.MaxStream>>20)
	}
	return io.ReadAll(io.LimitReader(f, source.MaxStream))
}
