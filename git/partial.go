package git

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"strings"

	"github.com/headgate-io/headgate/git/internal/object"
)

// A partial fetch asks for the commit and its trees first, then for the files
// that decide what is packed (.sourceignore, .gitmodules, .gitattributes), if
// there are any, and last for all other blobs of what is packed. Each of the
// three is one request. Where a server does not take part, or most of the tree
// is needed anyway, the whole tree is fetched as if none of this existed.

// lean reports whether much of the tree is likely to be left out, so that it
// pays to ask for the trees first.
func (o *Origin) lean() bool {
	spec := &o.repo.Spec
	dirs, err := spec.Directories()
	return err == nil && dirs != nil || spec.Ignore != nil && cutsDirs(*spec.Ignore)
}

// cutsDirs reports whether an ignore text looks as if it excludes whole
// directories: it holds a pattern, not negated, that ends in a slash or whose
// last element has no dot, such as /*, vendor or docs/. Nothing depends on it
// but the number of requests.
func cutsDirs(ignore string) bool {
	for line := range strings.Lines(ignore) {
		line = strings.TrimSpace(line)
		if line != "" && line[0] != '#' && line[0] != '!' && !strings.Contains(line[strings.LastIndexByte(line, '/')+1:], ".") {
			return true
		}
	}
	return false
}

// prepare obtains the files that the layers above the tree read: ignore files
// of what is packed, and what describes submodules and LFS files.
func (c *content) prepare(ctx context.Context, tree fs.FS) error {
	db, ok := c.db.(partialDatabase)
	if !ok {
		return nil
	}
	spec := &c.origin.repo.Spec
	var w want
	err := w.walk(ctx, c.own, named(ignoreOf(c.origin.repo).File))
	if err == nil && spec.LFS { // attributes count from above and beside the listed directories too
		err = w.walk(ctx, tree, named(".gitattributes"))
	}
	if err == nil && spec.LFS {
		err = w.top(tree, ".lfsconfig")
	}
	if err == nil && spec.RecurseSubmodules {
		err = w.top(tree, modulesFile)
	}
	if err != nil {
		return err
	}
	return c.obtain(ctx, db, w.blobs, 0)
}

// named accepts the files with a name, wherever they are.
func named(base string) func(string) bool {
	return func(name string) bool { return path.Base(name) == base }
}

// supply obtains the files of view that a lean fetch left out. It refuses a
// view of more bytes than the limit.
func (c *content) supply(ctx context.Context, view fs.FS) error {
	db, ok := c.db.(partialDatabase)
	if !ok {
		return nil
	}
	var w want
	if err := w.walk(ctx, view, func(string) bool { return true }); err != nil {
		return err
	}
	if err := c.obtain(ctx, db, w.blobs, c.files); err != nil {
		return err
	}
	var total int64
	for id, times := range w.times {
		_, size, err := c.db.Stat(id)
		if err != nil {
			return err
		}
		total += size * times
	}
	return checkBytes(total+c.total.Bytes, c.origin.env.Limits) // of submodules until now
}

func (c *content) obtain(ctx context.Context, db partialDatabase, blobs []object.ID, of int64) error {
	note, err := db.obtain(ctx, blobs, of)
	if note != "" {
		c.notes = append(c.notes, note)
	}
	if err != nil {
		return fmt.Errorf("fetch the files of %s: %w", c.id, err)
	}
	return nil
}

// A want collects the blobs of files.
type want struct {
	blobs []object.ID
	times map[object.ID]int64 // how many files have the content
}

// walk adds the regular files of tree that choose accepts.
func (w *want) walk(ctx context.Context, tree fs.FS, choose func(name string) bool) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err == nil && choose(name) {
			w.add(d)
		}
		return err
	})
}

// top adds a file in the root of tree, if it is there.
func (w *want) top(tree fs.FS, name string) error {
	entries, err := fs.ReadDir(tree, ".")
	for _, e := range entries {
		if e.Name() == name {
			w.add(e)
		}
	}
	return err
}

func (w *want) add(d fs.DirEntry) {
	id, ok := object.EntryID(d)
	if !ok || !d.Type().IsRegular() {
		return
	}
	if w.times == nil {
		w.times = map[object.ID]int64{}
	}
	if w.times[id]++; w.times[id] == 1 {
		w.blobs = append(w.blobs, id)
	}
}
