package lfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/headgate-io/headgate/artifact"
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

// Attributes says which files of a tree have the attribute filter=lfs.
//
// Lines are matched by the rules of package artifact, whose patterns are those
// of gitattributes as far as one line goes. One set of rules is compiled for the
// attribute filter, and one for each macro that has to do with it: it holds the
// lines that mention the attribute.
type Attributes struct {
	files  map[string][]attributeLine // by path
	macros map[string][]assignment
	rules  map[string]*artifact.Rules // by attribute: filter and macros
}

// ReadAttributes reads the .gitattributes files of tree.
func ReadAttributes(tree fs.FS) (*Attributes, error) {
	a := &Attributes{files: map[string][]attributeLine{}, macros: map[string][]assignment{}, rules: map[string]*artifact.Rules{}}
	left, lines := maxAttributes, maxLines
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
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
		err = a.compile(tree)
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

// compile compiles the rules for filter, and for the macros that lead to it.
func (a *Attributes) compile(tree fs.FS) (err error) {
	todo := []string{filter}
	for len(todo) > 0 {
		name := todo[0]
		todo = todo[1:]
		if a.rules[name] != nil {
			continue
		}
		if len(a.rules) > maxMacros {
			return fmt.Errorf("more than %d macros set filter: define fewer", maxMacros)
		}
		// The last pattern keeps directories from deciding about what they hold:
		// attributes, unlike ignore rules, do not work that way.
		ignore := artifact.Ignore{File: attributesFile, Extra: "!*/\n"}
		if a.rules[name], err = ignore.Compile(mentions{tree, a, name}); err != nil {
			return err
		}
		for macro, set := range a.macros {
			if mentioned(set, name) >= 0 {
				todo = append(todo, macro)
			}
		}
	}
	return nil
}

// None reports whether no file can have the attribute.
func (a *Attributes) None() bool {
	for _, lines := range a.files {
		for _, l := range lines {
			if slices.ContainsFunc(l.set, func(s assignment) bool { return a.rules[s.name] != nil && l.pattern != "" }) {
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
	for attribute, rules := range a.rules {
		rule, _ := rules.Match(name, false)
		if rule.Line == 0 {
			continue
		}
		set := a.files[rule.Source][rule.Line-1].set
		i := mentioned(set, attribute)
		said = append(said, mention{set[i], [3]int{len(rule.Source), rule.Line, i}})
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

// assign gives an attribute the value that is said last, and so those of a macro.
func (a *Attributes) assign(values map[string]string, s assignment) {
	if _, decided := values[s.name]; decided || a.rules[s.name] == nil {
		return
	}
	values[s.name] = s.value
	if s.value == isTrue {
		for _, inner := range slices.Backward(a.macros[s.name]) {
			a.assign(values, inner)
		}
	}
}

// mentions is a tree whose .gitattributes hold, line by line, nothing but the
// patterns of the lines that mention an attribute.
type mentions struct {
	tree      fs.FS
	all       *Attributes
	attribute string
}

// ReadDir implements [fs.ReadDirFS].
func (m mentions) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(m.tree, name) }

// Open implements [fs.FS].
func (m mentions) Open(name string) (fs.File, error) {
	f, err := m.tree.Open(name)
	if err != nil || path.Base(name) != attributesFile {
		return f, err
	}
	var text strings.Builder
	for _, l := range m.all.files[name] {
		if mentioned(l.set, m.attribute) >= 0 {
			text.WriteString(l.pattern)
		}
		text.WriteByte('\n')
	}
	return patterns{f, strings.NewReader(text.String())}, nil
}

type patterns struct {
	fs.File
	text *strings.Reader
}

func (p patterns) Read(b []byte) (int, error) { return p.text.Read(b) }
