// Package feed reads the objects of a controller from files and directories, and watches them.
//
// It polls the size, times and inode number of every file. This works on every file system, with
// mounts that are replaced as a whole, and with editors that replace files. It reads the files when
// something has changed and two polls in a row found the same state, so that a file that is just
// being replaced does not count as missing or defective. If the last change of a file is so recent
// that another change could have the same time, the file is read again later. A file is decoded
// only if its content has changed: the objects of all other files are the same values in each
// [serve.Desired].
//
// If several files define the same object, the first in the order of the paths is used; the others
// are defects. The files of a directory are in lexical order.
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
	// Paths are files and directories with documents. In a directory the same files are read as by
	// [source.Set.DecodeFS]: files that end in .yaml, .yml or .json, also in subdirectories whose
	// names do not begin with a dot, but not behind links to directories. Files that a .headgateignore
	// there excludes are not read, and a Helm template causes a warning, as for headgate fetch.
	Paths   []string
	Secrets string         // directory of Secrets (see source.DirSecrets), watched as well; "" for none
	More    source.Secrets // looked up last; nil for none
	Every   time.Duration  // interval of polls; default 1s
	Warn    func(error)    // called once with each warning and defect; nil for no reports
}

// Follow implements [serve.Feed]. It fails if a path does not exist or cannot be read when it
// starts; later this is a defect.
func (f *Files) Follow(ctx context.Context, set func(serve.Desired)) error {
	if len(f.Paths) == 0 {
		return errors.New("no documents are given: name files or directories")
	}
	for _, name := range f.Paths {
		if err := checkReadable(name, false); err != nil {
			return fmt.Errorf("documents: %w", err)
		}
	}
	if f.Secrets != "" {
		if err := checkReadable(f.Secrets, true); err != nil {
			return fmt.Errorf("directory of Secrets: %w", err)
		}
	}
	ticker := time.NewTicker(cmp.Or(f.Every, time.Second))
	defer ticker.Stop()
	w := &follower{Files: f, rules: make(map[string]*artifact.Rules)}
	var seen, read []file      // state at the last poll, and when the files were last read
	moving := maxUnstablePolls // polls since something differed
	for {
		files := w.poll(ctx)
		another := !slices.Equal(files, read)
		switch {
		case ctx.Err() != nil:
		case moving == maxUnstablePolls || another && slices.Equal(files, seen):
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

// maxUnstablePolls is the number of polls after which files are read even if every poll finds another state.
const maxUnstablePolls = 5

// checkReadable returns an error if a path cannot be read.
func checkReadable(name string, dir bool) error {
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

// A follower is the state of [Files.Follow].
type follower struct {
	*Files
	rules    map[string]*artifact.Rules // of the directories of Paths, as last read successfully
	known    map[string]*document       // by file name, as last read
	sum      [sha256.Size]byte          // of all documents
	reported map[string]bool            // reported warnings and defects
}

// A file is the state of a path at one poll.
type file struct {
	name    string
	stamp   durable.Stamp
	settled bool   // any further change gets another stamp
	listed  bool   // found in a directory, not named in Paths
	secret  bool   // it is a key of a Secret
	defect  string // why it cannot be read, "" for none
}

// poll polls all paths.
func (w *follower) poll(ctx context.Context) (files []file) {
	now, seen := time.Now(), make(map[string]bool)
	found := func(f file, info fs.FileInfo) {
		if seen[f.name] { // another path contains it too
			return
		}
		seen[f.name] = true
		if info != nil {
			f.stamp = durable.StampOf(info)
			f.settled = f.stamp.Settled(now)
		}
		files = append(files, f)
	}
	addDefect := func(name string, err error) { found(file{name: name, defect: withoutPath(name, err).Error()}, nil) }
	for _, root := range w.Paths {
		root = filepath.Clean(root)
		info, err := os.Stat(root)
		switch {
		case err != nil:
			addDefect(root, err)
		case info.Mode().IsRegular():
			found(file{name: root}, info)
		case !info.IsDir():
			addDefect(root, errors.New("is neither a file nor a directory"))
		default:
			tree, err := w.tree(ctx, root)
			if err != nil {
				addDefect(root, err)
			}
			for inTree, err := range documents.Files(tree, ".") {
				name := filepath.Join(root, filepath.FromSlash(inTree))
				var info fs.FileInfo
				if err == nil {
					if info, err = os.Stat(name); errors.Is(err, fs.ErrNotExist) { // deleted since it was listed
						continue
					}
				}
				if err != nil {
					addDefect(name, err)
				} else if info.Mode().IsRegular() {
					found(file{name: name, listed: true}, info)
				}
			}
		}
	}
	if w.Secrets != "" {
		w.findSecretKeys(w.Secrets, 0, found, addDefect)
	}
	return files
}

// tree returns a directory without the files that its .headgateignore excludes. If that cannot be read, the rules
// that were last read apply.
func (w *follower) tree(ctx context.Context, name string) (fs.FS, error) {
	dir := os.DirFS(name)
	rules, err := artifact.Ignore{File: ".headgateignore"}.Compile(ctx, dir)
	if err == nil {
		w.rules[name] = rules
	}
	if _, unread := errors.AsType[*fs.PathError](err); unread {
		err = nil // listing the directory reports it
	}
	if rules = w.rules[name]; rules == nil {
		return dir, err
	}
	return rules.View(ctx, dir), err
}

// findSecretKeys finds the keys of Secrets below a directory, at most two directories deep. It follows links,
// because mounted Secrets consist of links.
func (w *follower) findSecretKeys(dir string, depth int, found func(file, fs.FileInfo), addDefect func(string, error)) {
	list, err := os.ReadDir(dir)
	if err != nil && depth == 0 {
		addDefect(dir, err)
	}
	for _, e := range list {
		name := filepath.Join(dir, e.Name())
		info, err := os.Stat(name)
		switch {
		case err != nil || strings.HasPrefix(e.Name(), ".."):
		case info.IsDir() && depth < 2:
			w.findSecretKeys(name, depth+1, found, addDefect)
		case info.Mode().IsRegular():
			found(file{name: name, secret: true}, info)
		}
	}
}

// A document is the decoded content of a file.
type document struct {
	sum     [sha256.Size]byte
	set     *source.Set // nil if the file cannot be read or is a key of a Secret
	defects []error     // its defects
}

// read reads files and reports new warnings and defects. It returns the objects of the files, with all sources of
// Secrets, and whether anything changed since the last call.
func (w *follower) read(files []file) (d serve.Desired, another bool) {
	all, known, sum := new(source.Set), make(map[string]*document, len(files)), sha256.New()
	for _, f := range files {
		next := w.document(f, w.known[f.name])
		known[f.name] = next
		d.Defects = append(d.Defects, next.defects...)
		fmt.Fprintln(sum, f.name, next.sum, next.defects)
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
	reported := make(map[string]bool)
	for _, err := range slices.Concat(d.Defects, all.Warnings) {
		text := err.Error()
		if w.Warn != nil && !w.reported[text] && !reported[text] {
			w.Warn(err)
		}
		reported[text] = true
	}
	w.reported = reported
	return d, w.sum != before
}

// document reads a file; before is its previous content, nil for none. If the content is the same, it returns before.
func (w *follower) document(f file, before *document) *document {
	text, err := []byte(nil), errors.New(f.defect)
	if f.defect == "" {
		text, err = readFile(f.name)
		err = withoutPath(f.name, err)
	}
	next := &document{sum: sha256.Sum256(text)}
	switch {
	case f.secret: // DirSecrets reports its errors
		if err != nil {
			next.sum = sha256.Sum256([]byte(err.Error()))
		}
	case err != nil:
		next.defects = []error{&source.DocumentError{File: f.name, Err: err}}
	case before != nil && before.set != nil && before.sum == next.sum:
		return before
	default:
		next.set = new(source.Set)
		next.defects = documents.Split(next.set.Decode(f.name, bytes.NewReader(text)))
		if len(next.defects) > 0 && f.listed && bytes.Contains(text, []byte("{{")) {
			template := errors.New("is a Helm template, which is not read: leave it out in .headgateignore")
			next.defects, next.set.Invalid, next.set.Warnings = nil, nil, append(next.set.Warnings, &source.DocumentError{File: f.name, Err: template})
		}
	}
	return next
}

// withoutPath returns an error about a file without the name of the file.
func withoutPath(name string, err error) error {
	if at, ok := err.(*fs.PathError); ok && at.Path == name {
		return at.Err
	}
	return err
}

// readFile reads a file of at most [source.MaxStream] bytes. If the file grows meanwhile, the rest is cut off.
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
