package lfs

import (
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits of [ReadAttributes].
const (
	maxAttributeLine = 2048    // bytes of a line, as Git has it: longer ones say nothing
	maxAttributeFile = 1 << 20 // bytes of one .gitattributes
	maxAttributes    = 8 << 20 // bytes of all of a tree
	maxLines         = 100_000 // lines of all of a tree, which take more memory than their text
	maxMacros        = 16      // macros that set the attribute filter
	maxPatterns      = 1 << 20 // bytes of patterns with wildcards that set filter
	maxMatching      = 1 << 40 // bytes of patterns that set filter times bytes of paths
)

const (
	attributesFile = ".gitattributes"
	filter         = "filter"
)

// Attributes says which files of a tree have the attribute filter=lfs.
type Attributes struct {
	files  map[string][]attributeLine // the lines that set filter, by the path of their file
	macros map[string][]assignment
	wanted map[string]bool // filter, and the macros that set it
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
		a.parse(name, text)
		return nil
	})
	if err == nil {
		err = a.findMacros(filter)
	}
	if err == nil {
		err = a.compile(paths)
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

// An attributeLine assigns attributes to the files that match its pattern.
type attributeLine struct {
	text string // of the pattern
	set  []assignment
	*pattern
}

// An assignment gives an attribute a value.
type assignment struct{ name, value string }

// The values of attributes that are no text. No text has a NUL.
const (
	isTrue  = "\x00true"
	isFalse = "\x00false"
	isUnset = "\x00unset"
)

const blank = " \t\r\n"

// parse reads one file. Lines that are not well formed say nothing, and only the
// file at the top of the tree defines macros.
func (a *Attributes) parse(file, text string) {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimLeft(line, blank)
		if line == "" || line[0] == '#' || len(line) > maxAttributeLine {
			continue
		}
		name, rest := firstWord(line)
		set, ok := parseAssignments(rest)
		macro, isMacro := strings.CutPrefix(name, "[attr]")
		switch macro = strings.TrimLeft(macro, blank); {
		case !ok:
		case isMacro && macro != "":
			if i := strings.IndexAny(macro, blank); i >= 0 {
				macro = macro[:i]
			}
			if attributeName.MatchString(macro) && file == attributesFile {
				a.macros[macro] = set
			}
		case !strings.HasPrefix(name, "!") && !strings.ContainsAny(name, "\r\n\x00"): // Git forbids negated patterns
			a.files[file] = append(a.files[file], attributeLine{text: name, set: set})
		}
	}
}

var (
	// quoted matches a pattern that is quoted as in C.
	quoted        = regexp.MustCompile(`^"((?:[^"\\]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*)"`)
	escaped       = regexp.MustCompile(`\\(?:[abfnrtv"\\]|[0-3][0-7]{2})`)
	attributeName = regexp.MustCompile(`^[0-9A-Za-z_.][-0-9A-Za-z_.]*$`)
)

// firstWord cuts a line behind its pattern, which may be quoted.
func firstWord(line string) (word, rest string) {
	if m := quoted.FindStringSubmatch(line); m != nil {
		word = escaped.ReplaceAllStringFunc(m[1], func(s string) string {
			s, _ = strconv.Unquote(`"` + s + `"`)
			return s
		})
		return word, line[len(m[0]):]
	}
	if i := strings.IndexAny(line, blank); i >= 0 {
		return line[:i], line[i:]
	}
	return line, ""
}

// parseAssignments reads what follows the pattern; ok is false when one is not valid.
func parseAssignments(s string) (set []assignment, ok bool) {
	for f := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(blank, r) }) {
		name, value, has := strings.Cut(f, "=")
		switch {
		case f[0] == '-':
			name, value = name[1:], isFalse
		case f[0] == '!':
			name, value = name[1:], isUnset
		case !has:
			value = isTrue
		}
		if !attributeName.MatchString(name) {
			return nil, false
		}
		set = append(set, assignment{name, value})
	}
	return set, true
}

// findMacros finds the macros that set the attribute name, themselves or by others.
func (a *Attributes) findMacros(name string) error {
	if a.wanted[name] {
		return nil
	}
	if len(a.wanted) > maxMacros {
		return fmt.Errorf("more than %d macros set filter: define fewer", maxMacros)
	}
	a.wanted[name] = true
	for macro, set := range a.macros {
		if slices.ContainsFunc(set, func(s assignment) bool { return s.name == name }) {
			if err := a.findMacros(macro); err != nil {
				return err
			}
		}
	}
	return nil
}

// compile keeps the lines that set filter for files. paths is the sum of the
// lengths of all paths.
func (a *Attributes) compile(paths int64) error {
	var all, wild int64
	for file, lines := range a.files {
		kept := lines[:0]
		for _, l := range lines {
			if !slices.ContainsFunc(l.set, func(s assignment) bool { return a.wanted[s.name] }) {
				continue
			}
			if l.pattern = parsePattern(l.text); l.pattern == nil {
				continue
			}
			kept, all = append(kept, l), all+int64(len(l.text))
			if l.expr != nil {
				wild += int64(len(l.text))
			}
			if wild > maxPatterns {
				return fmt.Errorf("%s: the patterns for filter up to here have more than %d bytes: use fewer", file, maxPatterns)
			}
		}
		a.files[file] = kept
		if len(kept) == 0 {
			delete(a.files, file)
		}
	}
	if all*paths > maxMatching {
		return fmt.Errorf("the patterns for filter have %d bytes, and all paths %d: use fewer patterns", all, paths)
	}
	return nil
}

// None reports whether no file can have the attribute.
func (a *Attributes) None() bool { return len(a.files) == 0 }

// Tracks reports whether the file name has filter=lfs. As in Git, what is said
// last counts: in the deepest .gitattributes, in its last line, at its end.
func (a *Attributes) Tracks(name string) bool {
	values := map[string]string{}
	for dir := name; dir != "." && dir != "/"; {
		dir = path.Dir(dir)
		rel := strings.TrimPrefix(name, dir+"/")
		for _, l := range slices.Backward(a.files[path.Join(dir, attributesFile)]) {
			if l.matches(rel) {
				a.assign(values, l.set)
			}
			if value, decided := values[filter]; decided {
				return value == "lfs"
			}
		}
	}
	return false
}

// assign gives attributes their values, unless a later assignment did, and those
// that a macro sets.
func (a *Attributes) assign(values map[string]string, set []assignment) {
	for _, s := range slices.Backward(set) {
		if _, decided := values[s.name]; decided || !a.wanted[s.name] {
			continue
		}
		values[s.name] = s.value
		if s.value == isTrue {
			a.assign(values, a.macros[s.name])
		}
	}
}
