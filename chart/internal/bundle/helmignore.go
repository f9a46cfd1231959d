package bundle

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
)

// Bounds of an ignore file.
const (
	ignoreBytes = 64 << 10
	ignoreRules = 1000
)

// A rule is one pattern of .helmignore.
type rule struct {
	glob   string
	negate bool // ignores what it does not match
	dirs   bool // matches directories only
	byPath bool // matches the path, not the name
}

// parseRules reads the text of a .helmignore.
func parseRules(text []byte) ([]rule, error) {
	var rules []rule
	n := 0
	for line := range bytes.Lines(text) {
		n++
		r, ok, err := parseRule(strings.TrimSpace(string(line)))
		if err != nil {
			return nil, invalid(ignoreFile, "line %d: %w", n, err)
		}
		if !ok {
			continue
		}
		if rules = append(rules, r); len(rules) > ignoreRules {
			return nil, invalid(ignoreFile, "it has more than %d patterns", ignoreRules)
		}
	}
	return rules, nil
}

// parseRule reads one line; ok is false when it holds no pattern.
func parseRule(line string) (r rule, ok bool, err error) {
	if line == "" || line[0] == '#' {
		return rule{}, false, nil
	}
	if strings.Contains(line, "**") {
		return rule{}, false, errors.New("** is not known here")
	}
	if _, err := path.Match(line, "abc"); err != nil {
		return rule{}, false, err
	}
	r.glob, r.negate = strings.CutPrefix(line, "!")
	r.glob, r.dirs = strings.CutSuffix(r.glob, "/")
	r.byPath = strings.Contains(r.glob, "/")
	r.glob = strings.TrimLeft(r.glob, "/")
	return r, true, nil
}

// readRules returns the rules of a chart, the one that always applies included.
func readRules(files fs.FS) ([]rule, error) {
	var rules []rule
	text, err := readFile(files, ignoreFile, ignoreBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	default:
		if rules, err = parseRules(text); err != nil {
			return nil, err
		}
	}
	always, _, err := parseRule("templates/.?*")
	if err != nil {
		return nil, fmt.Errorf("built-in pattern: %w", err)
	}
	return append(rules, always), nil
}

// ignores reports whether rules ignore name itself, whatever its parents are.
func ignores(rules []rule, name string, dir bool) bool {
	for _, r := range rules {
		subject := name
		if !r.byPath {
			subject = path.Base(name)
		}
		matches := !r.dirs || dir
		if matches {
			matches, _ = path.Match(r.glob, subject) // parseRule has checked it
		}
		if matches != r.negate {
			return true
		}
	}
	return false
}

// A view is tree without what the rules ignore. It implements [fs.ReadDirFS] and
// [fs.StatFS].
type view struct {
	tree  fs.FS
	rules []rule
	dirs  map[string]bool // directories that it has
}

// newView returns the view of a tree that does not change. It fails when the
// view would have anything but directories and regular files.
func newView(tree fs.FS, rules []rule) (view, error) {
	v := view{tree: tree, rules: rules, dirs: map[string]bool{}}
	return v, fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch t := d.Type(); {
		case name != "." && ignores(rules, name, t.IsDir()):
			if t.IsDir() {
				return fs.SkipDir
			}
		case t.IsDir():
			v.dirs[name] = true
		case !t.IsRegular():
			return irregular(name, t)
		}
		return nil
	})
}

// admit fails when the view does not have name.
func (v view) admit(op, name string) error {
	switch {
	case !fs.ValidPath(name):
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	case v.dirs[name]:
		return nil
	case !v.dirs[path.Dir(name)] || ignores(v.rules, name, false):
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	info, err := fs.Lstat(v.tree, name)
	if err == nil && info.IsDir() { // one that is ignored
		err = &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return err
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
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if d, ok := f.(fs.ReadDirFile); ok && info.IsDir() {
		return &viewDir{ReadDirFile: d, view: v, name: name}, nil
	}
	return f, nil
}

// ReadDir implements [fs.ReadDirFS].
func (v view) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := v.admit("readdir", name); err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(v.tree, name)
	return v.shown(name, entries), err
}

// Stat implements [fs.StatFS].
func (v view) Stat(name string) (fs.FileInfo, error) {
	if err := v.admit("stat", name); err != nil {
		return nil, err
	}
	return fs.Stat(v.tree, name)
}

// shown returns those entries of the directory dir that the view has.
func (v view) shown(dir string, entries []fs.DirEntry) []fs.DirEntry {
	var shown []fs.DirEntry
	for _, e := range entries {
		if !ignores(v.rules, path.Join(dir, e.Name()), e.IsDir()) {
			shown = append(shown, e)
		}
	}
	return shown
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
		shown := d.view.shown(d.name, entries)
		if n <= 0 || len(shown) > 0 || err != nil {
			return shown, err
		}
		if len(entries) == 0 { // no progress and no error: do not ask for ever
			return nil, io.EOF
		}
	}
}
