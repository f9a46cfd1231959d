package lfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// Limits of [ReadAttributes].
const (
	maxAttributeFile = 1 << 20 // bytes of one .gitattributes
	maxAttributes    = 8 << 20 // bytes of all of a tree
	maxLines         = 100_000 // lines of all of a tree, which take more memory than their text
	maxMacros        = 16      // macros that have to do with the attribute filter
)

const (
	attributesFile = ".gitattributes"
	filter         = "filter"
)

// maxMatching bounds what matching costs: bytes of patterns times bytes of paths.
const maxMatching = 1 << 40

// Attributes says which files of a tree have the attribute filter=lfs.
type Attributes struct {
	files  map[string][]attributeLine // by path
	macros map[string][]assignment
	wanted map[string]bool // filter, and the macros that lead to it
}

// ReadAttributes reads the .gitattributes files of tree.
func ReadAttributes(tree fs.FS) (*Attributes, error) {
	a := &Attributes{files: map[string][]attributeLine{}, macros: map[string][]assignment{}, wanted: map[string]bool{}}
	left, lines, paths := maxAttributes, maxLines, int64(0)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		paths += int64(len(name))
		switch {
		case err != nil:
			return err
		case d.Name() != attributesFile || !d.Type().IsRegular():
			return nil
		}
		text, err := readLimited(tree, name, maxAttributeFile)
		if err != nil {
			return err
		}
		if left -= len(text); left < 0 {
			return fmt.Errorf("%s: the attributes up to here hold more than %d bytes: shorten them", name, maxAttributes)
		}
		if lines -= strings.Count(text, "\n"); lines < 0 {
			return fmt.Errorf("%s: the attributes up to here have more than %d lines: shorten them", name, maxLines)
		}
		a.add(name, text)
		return nil
	})
	if err == nil {
		err = a.choose()
	}
	if err == nil && a.weight()*paths > maxMatching {
		err = fmt.Errorf("the patterns for filter have %d bytes, and all paths %d: use fewer patterns", a.weight(), paths)
	}
	if err != nil {
		return nil, fmt.Errorf("git attributes: %w", err)
	}
	return a, nil
}

// readLimited reads a file that may have at most limit bytes.
func readLimited(tree fs.FS, name string, limit int64) (string, error) {
	f, err := tree.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("%s: more than %d bytes: shorten it", name, limit)
	}
	return string(b), err
}

// add parses one file. Macros are defined by the one at the top only.
func (a *Attributes) add(name, text string) {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		l := parseAttributes(line)
		if l.macro != "" && name == attributesFile {
			a.macros[l.macro] = l.set
		}
		a.files[name] = append(a.files[name], l)
	}
}

// choose finds the macros that lead to filter.
func (a *Attributes) choose() error {
	todo := []string{filter}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if a.wanted[name] {
			continue
		}
		if len(a.wanted) > maxMacros {
			return fmt.Errorf("more than %d macros set filter: define fewer", maxMacros)
		}
		a.wanted[name] = true
		for macro, set := range a.macros {
			if mentioned(set, name) >= 0 {
				todo = append(todo, macro)
			}
		}
	}
	return nil
}

// weight returns how many bytes of patterns a path may be compared with.
func (a *Attributes) weight() (n int64) {
	for _, lines := range a.files {
		for _, l := range lines {
			for name := range a.wanted {
				if l.pattern != nil && mentioned(l.set, name) >= 0 {
					n += int64(len(l.pattern.glob))
				}
			}
		}
	}
	return n
}

// None reports whether no file can have the attribute.
func (a *Attributes) None() bool {
	for _, lines := range a.files {
		for _, l := range lines {
			if slices.ContainsFunc(l.set, func(s assignment) bool { return a.wanted[s.name] && l.pattern != nil }) {
				return false
			}
		}
	}
	return true
}

// A mention is the place where the last word about an attribute of a file is said.
type mention struct {
	assignment
	place [3]int // length of the path of .gitattributes, line, position in the line
}

// Tracks reports whether the file name has filter=lfs.
func (a *Attributes) Tracks(name string) bool {
	var said []mention
	for attribute := range a.wanted {
		if m, ok := a.last(name, attribute); ok {
			said = append(said, m)
		}
	}
	if len(said) == 0 {
		return false
	}
	slices.SortFunc(said, func(x, y mention) int { return slices.Compare(y.place[:], x.place[:]) })
	values := make(map[string]string, len(said))
	for _, m := range said {
		a.assign(values, m.assignment)
	}
	return values[filter] == "lfs"
}

// last returns the last word about an attribute of the file name: that of the
// deepest .gitattributes, and of its last line.
func (a *Attributes) last(name, attribute string) (mention, bool) {
	for dir := name; dir != "."; {
		dir = path.Dir(dir)
		file := path.Join(dir, attributesFile)
		lines := a.files[file]
		rel := strings.TrimPrefix(name, dir+"/")
		for n, l := range slices.Backward(lines) {
			if i := mentioned(l.set, attribute); i >= 0 && l.pattern != nil && l.pattern.matches(rel) {
				return mention{l.set[i], [3]int{len(file), n, i}}, true
			}
		}
	}
	return mention{}, false
}

// assign gives an attribute the value that is said last, and so those of a macro.
func (a *Attributes) assign(values map[string]string, s assignment) {
	if _, decided := values[s.name]; decided || !a.wanted[s.name] {
		return
	}
	values[s.name] = s.value
	if s.value == isTrue {
		for _, inner := range slices.Backward(a.macros[s.name]) {
			a.assign(values, inner)
		}
	}
}
