package object

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A dir is a parsed tree, its entries sorted by name as fs.ReadDir has them.
// It is immutable.
type dir struct{ entries []TreeEntry }

func byName(a, b TreeEntry) int { return strings.Compare(a.Name, b.Name) }

// parseDir parses the content of a tree.
func parseDir(data []byte, format Format) (*dir, error) {
	d := new(dir)
	for e, err := range TreeEntries(data, format) {
		if err != nil {
			return nil, err
		}
		d.entries = append(d.entries, e)
	}
	slices.SortFunc(d.entries, byName)
	for i := 1; i < len(d.entries); i++ {
		if d.entries[i].Name == d.entries[i-1].Name {
			return nil, fmt.Errorf("%w: two tree entries with the name %.80q", ErrCorrupt, d.entries[i].Name)
		}
	}
	return d, nil
}

// weight is about the number of bytes that d occupies.
func (d *dir) weight() int { return 256 + 96*len(d.entries) }

// find returns the entry with the given name.
func (d *dir) find(name string) (TreeEntry, bool) {
	i, ok := slices.BinarySearchFunc(d.entries, TreeEntry{Name: name}, byName)
	if !ok {
		return TreeEntry{}, false
	}
	return d.entries[i], true
}

// list returns the entries of d, the folder at a path of t.
func (d *dir) list(t *treeFS, at string) []fs.DirEntry {
	all := make([]dirEntry, len(d.entries))
	list := make([]fs.DirEntry, len(d.entries))
	for i, e := range d.entries {
		all[i] = dirEntry{tree: t, parent: at, entry: e}
		list[i] = &all[i]
	}
	return list
}

// EntryID returns the ID of what an entry of a [TreeFS] stands for; ok is false
// for entries of other file systems. It needs nothing from the database.
func EntryID(d fs.DirEntry) (id ID, ok bool) {
	e, ok := d.(*dirEntry)
	if !ok {
		return ID{}, false
	}
	return e.entry.ID, true
}

// A dirEntry is an fs.DirEntry.
type dirEntry struct {
	tree   *treeFS
	parent string
	entry  TreeEntry
}

func (e *dirEntry) Name() string      { return e.entry.Name }
func (e *dirEntry) IsDir() bool       { return e.entry.Mode.IsDir() }
func (e *dirEntry) Type() fs.FileMode { return e.entry.Mode.FS().Type() }
func (e *dirEntry) String() string    { return fs.FormatDirEntry(e) }

func (e *dirEntry) Info() (fs.FileInfo, error) {
	i, err := e.tree.stat(e.entry)
	if err != nil {
		return nil, &fs.PathError{Op: "stat", Path: path.Join(e.parent, e.entry.Name), Err: err}
	}
	return i, nil
}
