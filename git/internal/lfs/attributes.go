package lfs

import (
	"errors"
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
	maxAttributeLine = 2048    // bytes of a line; as in Git, longer ones are ignored
	maxAttributeFile = 1 << 20 // bytes of one .gitattributes
	maxMacros        = 16      // macros that set the attribute filter
	maxPatterns      = 4 << 20 // about the bytes of memory of all patterns that set filter
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
	weight int             // of all lines
}

// An attributeLine assigns attributes to the files that match its pattern.
type attributeLine struct {
	pattern
	set []assignment
}

// An assignment gives an attribute a value.
type assignment struct{ name, value string }

// The values of attributes that are not text. Text holds no NUL.
const (
	valueTrue  = "\x00true"
	valueUnset = "\x00not" // false or unset
)

const blank = " \t\r\n"

// ReadAttributes reads the .gitattributes files of tree. Only the one at the top
// defines macros, as in Git.
func ReadAttributes(tree fs.FS) (*Attributes, error) {
	a := &Attributes{files: map[string][]attributeLine{}, macros: map[string][]assignment{}, wanted: map[string]bool{}}
	top, err := fs.ReadDir(tree, ".")
	if err == nil && slices.ContainsFunc(top, isAttributes) {
		err = a.readMacros(tree)
	}
	if err == nil {
		err = a.want(filter)
	}
	if err == nil {
		err = fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
			if err != nil || !isAttributes(d) {
				return err
			}
			return a.read(tree, name)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("git attributes: %w", err)
	}
	return a, nil
}

func isAttributes(d fs.DirEntry) bool { return d.Name() == attributesFile && d.Type().IsRegular() }

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

const macro = "[attr]"

// readMacros reads the macros in the file at the top.
func (a *Attributes) readMacros(tree fs.FS) error {
	text, err := readLimited(tree, attributesFile, maxAttributeFile)
	if err != nil {
		return err
	}
	eachLine(text, func(pattern string, set []assignment) {
		name, is := strings.CutPrefix(pattern, macro)
		if name = strings.TrimLeft(name, blank); !is || name == "" {
			return
		}
		if i := strings.IndexAny(name, blank); i >= 0 {
			name = name[:i]
		}
		if attributeName.MatchString(name) {
			a.macros[name] = set
		}
	})
	return nil
}

// want adds the attribute name, and the macros that set it, directly or through other
// macros.
func (a *Attributes) want(name string) error {
	if a.wanted[name] {
		return nil
	}
	if len(a.wanted) > maxMacros {
		return fmt.Errorf("more than %d macros set filter: define fewer", maxMacros)
	}
	a.wanted[name] = true
	for macro, set := range a.macros {
		if slices.ContainsFunc(set, func(s assignment) bool { return s.name == name }) {
			if err := a.want(macro); err != nil {
				return err
			}
		}
	}
	return nil
}

// read keeps the lines of one file that set filter.
func (a *Attributes) read(tree fs.FS, file string) error {
	text, err := readLimited(tree, file, maxAttributeFile)
	if err != nil {
		return err
	}
	eachLine(text, func(name string, set []assignment) {
		sets := slices.ContainsFunc(set, func(s assignment) bool { return a.wanted[s.name] })
		if !sets || strings.HasPrefix(name, "!") || strings.ContainsAny(name, "\r\n\x00") || // Git forbids negated patterns
			strings.HasPrefix(name, macro) && strings.TrimLeft(name[len(macro):], blank) != "" {
			return
		}
		if a.weight += 64 + 4*len(name); a.weight > maxPatterns {
			return
		}
		if p, ok := parsePattern(name); ok {
			a.files[file] = append(a.files[file], attributeLine{p, set})
		}
	})
	if a.weight > maxPatterns {
		return fmt.Errorf("%s: the patterns for filter up to here take more than %d bytes: use fewer", file, maxPatterns)
	}
	return nil
}

// eachLine calls take with the pattern and the assignments of each line of a file. It
// ignores lines that are not well formed.
func eachLine(text string, take func(pattern string, set []assignment)) {
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		line = strings.TrimLeft(line, blank)
		if line == "" || line[0] == '#' || len(line) > maxAttributeLine {
			continue
		}
		name, rest := firstWord(line)
		if set, ok := parseAssignments(rest); ok {
			take(name, set)
		}
	}
}

var (
	// quoted matches a pattern that is quoted as in C.
	quoted        = regexp.MustCompile(`^"((?:[^"\\]|\\(?:[abfnrtv"\\]|[0-3][0-7]{2}))*)"`)
	escaped       = regexp.MustCompile(`\\(?:[abfnrtv"\\]|[0-3][0-7]{2})`)
	attributeName = regexp.MustCompile(`^[0-9A-Za-z_.][-0-9A-Za-z_.]*$`)
)

// firstWord splits a line after its pattern, which may be quoted.
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
		case f[0] == '-' || f[0] == '!':
			name, value = name[1:], valueUnset
		case !has:
			value = valueTrue
		}
		if !attributeName.MatchString(name) {
			return nil, false
		}
		set = append(set, assignment{name, value})
	}
	return set, true
}

// Tracks reports whether the file name has filter=lfs. As in Git, the last assignment
// counts: in the deepest .gitattributes, in its last line that matches, at the end of
// that.
func (a *Attributes) Tracks(name string) bool {
	values := map[string]string{}
	for dir := name; dir != "." && dir != "/" && len(a.files) > 0; {
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

// assign sets attributes to their values, and those that a macro sets, unless a later
// assignment has set them already.
func (a *Attributes) assign(values map[string]string, set []assignment) {
	for _, s := range slices.Backward(set) {
		if _, decided := values[s.name]; decided || !a.wanted[s.name] {
			continue
		}
		values[s.name] = s.value
		if s.value == valueTrue {
			a.assign(values, a.macros[s.name])
		}
	}
}

// A pattern is the pattern of a line of .gitattributes, as git 2.39 reads it. It is
// matched byte by byte.
type pattern struct {
	byName bool           // there is no / in it: it is matched against the last element of a path
	suffix string         // of a name, if the pattern is * followed by this
	expr   *regexp.Regexp // of a path in [latin1]; nil with suffix
}

// parsePattern returns false for a pattern that matches no file.
func parsePattern(text string) (p pattern, ok bool) {
	p.byName = !strings.Contains(text, "/")
	if text = strings.TrimPrefix(text, "/"); text == "" || strings.HasSuffix(text, "/") {
		return p, false
	}
	if rest, star := strings.CutPrefix(text, "*"); p.byName && star && rest != "" && !strings.ContainsAny(rest, `*?[\`) {
		p.suffix = rest
		return p, true
	}
	expr, err := translate(text, p.byName)
	if err == nil {
		p.expr, err = regexp.Compile(`(?s)\A` + expr + `\z`)
	}
	return p, err == nil
}

// matches reports whether p matches a file, by its path below the directory of
// .gitattributes. The cost is proportional to the product of both lengths.
func (p pattern) matches(name string) bool {
	if p.byName {
		name = path.Base(name)
	}
	if p.expr == nil {
		return strings.HasSuffix(name, p.suffix)
	}
	return p.expr.MatchString(latin1(name))
}

// latin1 returns a text that has a character for each byte of s.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

var errNothing = errors.New("the pattern matches nothing")

// translate returns a regular expression for a pattern.
func translate(glob string, byName bool) (string, error) {
	var b strings.Builder
	literal := true // so far
	for rest := glob; rest != ""; {
		c := rest[0]
		switch c {
		case '*':
			after := strings.TrimLeft(rest, "*")
			prefix := glob[:len(glob)-len(rest)]
			// Git cuts off the literal beginning of a pattern before it looks for **.
			deep := !byName && len(rest)-len(after) > 1 && (literal || strings.HasSuffix(prefix, "/"))
			switch below, dirs := strings.CutPrefix(after, "/"); {
			case deep && dirs:
				b.WriteString("(?:.*/)?")
				after = below
			case deep && (after == "" || strings.HasPrefix(after, `\/`)):
				b.WriteString(".*")
			default:
				b.WriteString("[^/]*")
			}
			literal, rest = false, after
			continue
		case '?':
			b.WriteString("[^/]")
		case '[':
			class, n := translateBracket(rest[1:])
			if n == 0 {
				return "", errNothing
			}
			b.WriteString(class)
			rest = rest[n:]
		case '\\':
			if rest = rest[1:]; rest == "" {
				return "", errNothing
			}
			fallthrough
		default:
			b.WriteString(regexp.QuoteMeta(latin1(rest[:1])))
		}
		literal = literal && c != '?' && c != '[' && c != '\\'
		rest = rest[1:]
	}
	return b.String(), nil
}

// classes are the named classes as git has them: ASCII, and a form feed or a
// vertical tab is no space. Each pair of bytes is a span.
var classes = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f",
	"digit": "09", "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~",
	"space": "\t\n\r\r  ", "upper": "AZ", "xdigit": "09AFaf",
}

// translateBracket translates the bracket expression whose text starts at g, after the [,
// and returns how long that is with the ]; 0 when it matches nothing. No bracket
// expression matches a slash.
func translateBracket(g string) (class string, n int) {
	at := func(i int) byte { // 0 beyond the end: no pattern holds a NUL
		if i < len(g) {
			return g[i]
		}
		return 0
	}
	next := func() byte { // a byte that a backslash may quote
		if at(n) == '\\' {
			n++
		}
		n++
		return at(n - 1)
	}
	var members [256]bool
	span := func(low, high byte) {
		for c := int(low); c <= int(high); c++ {
			members[c] = true
		}
	}
	negate := at(0) == '!' || at(0) == '^'
	if negate {
		n++
	}
	low := byte(0)                                            // what a range could start from, or 0
	for first := true; first || at(n) != ']'; first = false { // a first ] is a member
		name, _, closed := strings.Cut(g[min(n, len(g)):], "]")
		name, opened := strings.CutPrefix(name, "[:")
		named, ends := strings.CutSuffix(name, ":")
		switch {
		case opened && !closed || at(n) == 0:
			return "", 0
		case opened && ends:
			spans, known := classes[named]
			for s := spans; s != ""; s = s[2:] {
				span(s[0], s[1])
			}
			if n, low = n+len("[::]")+len(named), 0; !known {
				return "", 0
			}
		case at(n) == '-' && low != 0 && at(n+1) != 0 && at(n+1) != ']':
			n++
			high := next()
			span(low, high)
			if low = 0; high == 0 {
				return "", 0
			}
		default:
			if low = next(); low == 0 {
				return "", 0
			}
			span(low, low)
		}
	}
	members['/'] = negate
	for c, is := range members {
		if is {
			class += fmt.Sprintf(`\x{%02x}`, c)
		}
	}
	switch {
	case negate:
		return "[^" + class + "]", n + 1
	case class == "":
		return "", 0
	}
	return "[" + class + "]", n + 1
}
