package artifact

import (
	"fmt"
	"strings"
)

// An ignoreText is the text of an ignore file and where it comes from.
type ignoreText struct {
	source string
	domain string // the directory its patterns apply below: "" or ending in /
	body   string
}

// A pattern is one parsed line.
type pattern struct {
	Rule
	domain  string
	glob    string // without !, leading / and trailing /
	byName  bool   // no / in it: matched against the name at any depth
	dirOnly bool
}

// parse appends the patterns of t to list.
func (t ignoreText) parse(list []pattern) ([]pattern, error) {
	line := 0
	for text := range strings.Lines(strings.TrimPrefix(t.body, "\ufeff")) {
		line++
		p, ok, err := parsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", t.source, line, err)
		}
		if !ok {
			continue
		}
		if len(list) == maxIgnoreRules {
			return nil, fmt.Errorf("%s:%d: more than %d patterns: use fewer", t.source, line, maxIgnoreRules)
		}
		p.Source, p.Line, p.domain = t.source, line, t.domain
		list = append(list, p)
	}
	return list, nil
}

// parseDefaults parses patterns that are given one by one.
func parseDefaults(texts []string) ([]pattern, error) {
	list := make([]pattern, 0, len(texts))
	for _, text := range texts {
		p, ok, err := parsePattern(text)
		if err != nil {
			return nil, fmt.Errorf("default pattern %q: %w", text, err)
		}
		if ok {
			p.Source = "default"
			list = append(list, p)
		}
	}
	return list, nil
}

// parsePattern parses one line; ok is false where it holds no pattern.
func parsePattern(line string) (p pattern, ok bool, err error) {
	if strings.HasPrefix(line, "#") {
		return pattern{}, false, nil
	}
	if strings.IndexByte(line, 0) >= 0 {
		return pattern{}, false, fmt.Errorf("a NUL byte in a pattern: save the text as UTF-8")
	}
	if text, cut := strings.CutSuffix(line, "\n"); cut {
		line = strings.TrimSuffix(text, "\r")
	}
	line = trimSpaces(line)
	if line == "" {
		return pattern{}, false, nil
	}
	p.Pattern = line
	p.glob, p.Negate = strings.CutPrefix(line, "!")
	p.glob, p.dirOnly = strings.CutSuffix(p.glob, "/")
	p.byName = !strings.Contains(p.glob, "/")
	p.glob = strings.TrimPrefix(p.glob, "/")
	return p, true, nil
}

// trimSpaces drops the trailing spaces that no backslash quotes.
func trimSpaces(s string) string {
	end := 0 // after the last byte that stays
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case ' ':
			continue
		case '\\':
			i++
		}
		end = i + 1
	}
	return s[:min(end, len(s))]
}

// A tokenKind says what a token of a pattern matches.
type tokenKind uint8

const (
	literal tokenKind = iota // one byte
	oneOf                    // one byte of a set
	star                     // any bytes but /
	deep                     // any bytes
	dirs                     // nothing, or any bytes and a /
)

// A token is one step of a pattern.
type token struct {
	kind tokenKind
	byte byte    // literal
	set  byteSet // oneOf
}

// A byteSet is a set of bytes.
type byteSet [4]uint64

func (s *byteSet) add(c byte)      { s[c>>6] |= 1 << (c & 63) }
func (s *byteSet) has(c byte) bool { return s[c>>6]&(1<<(c&63)) != 0 }

// span adds the bytes from low to high, both included.
func (s *byteSet) span(low, high byte) {
	for c := int(low); c <= int(high); c++ {
		s.add(byte(c))
	}
}

// name completes s as what a token of a pattern may match: its complement
// where negate is set, and never a /.
func (s *byteSet) name(negate bool) byteSet {
	t := *s
	if negate {
		for i := range t {
			t[i] = ^t[i]
		}
	}
	t['/'>>6] &^= 1 << ('/' & 63)
	return t
}

// tokens returns the steps of p after its domain; ok is false where p matches
// nothing.
func (p *pattern) tokens() (list []token, ok bool) {
	if p.glob == "" {
		return nil, false
	}
	if p.byName {
		list = append(list, token{kind: dirs})
	}
	wild := strings.IndexAny(p.glob, `*?[\`)
	for i := 0; i < len(p.glob); {
		t, next, ok := p.token(i, i == wild)
		if !ok {
			return nil, false
		}
		if i = next; t.kind == dirs && len(list) > 0 && list[len(list)-1].kind == dirs {
			continue // **/**/ is **/
		}
		list = append(list, t)
	}
	return list, true
}

// token reads the token at p.glob[i:] and returns where the next one starts.
// first says that only literal text stands before it.
func (p *pattern) token(i int, first bool) (t token, next int, ok bool) {
	switch g := p.glob; g[i] {
	case '*':
		t, next = p.stars(i, first)
		return t, next, true
	case '?':
		return token{kind: oneOf, set: new(byteSet).name(true)}, i + 1, true
	case '[':
		set, next, ok := bracket(g, i+1)
		return token{kind: oneOf, set: set}, next, ok && set != byteSet{}
	case '\\':
		if i++; i == len(g) {
			return token{}, i, false
		}
		fallthrough
	default:
		return token{byte: g[i]}, i + 1, true
	}
}

// stars reads the run of asterisks at p.glob[i:].
func (p *pattern) stars(i int, first bool) (token, int) {
	end := i
	for end < len(p.glob) && p.glob[end] == '*' {
		end++
	}
	rest := p.glob[end:]
	switch {
	case p.byName || end-i == 1 || !first && p.glob[i-1] != '/':
		return token{kind: star}, end
	case strings.HasPrefix(rest, "/"):
		return token{kind: dirs}, end + 1
	case rest == "", strings.HasPrefix(rest, `\/`):
		return token{kind: deep}, end
	default:
		return token{kind: star}, end
	}
}

// bracket reads the bracket expression whose text starts at g[i], after the [,
// and returns where it ends, after the ]. ok is false where it is malformed.
func bracket(g string, i int) (set byteSet, next int, ok bool) {
	at := func(i int) byte { // 0 beyond the end: a pattern holds no NUL
		if i < len(g) {
			return g[i]
		}
		return 0
	}
	negate := at(i) == '!' || at(i) == '^'
	if negate {
		i++
	}
	low := byte(0) // the byte that a range could start from
	for start := i; i == start || at(i) != ']'; i++ {
		c := at(i)
		switch {
		case c == '[' && at(i+1) == ':':
			class, n, ok := namedClass(g[i+2:])
			if !ok {
				return set, i, false
			}
			if n > 0 {
				set.union(class)
				i, low = i+1+n, 0
				continue
			}
		case c == '-' && low != 0 && at(i+1) != 0 && at(i+1) != ']':
			if i++; at(i) == '\\' {
				i++
			}
			if c = at(i); c == 0 {
				return set, i, false
			}
			set.span(low, c)
			low = 0
			continue
		case c == '\\':
			i++
			c = at(i)
		}
		if c == 0 {
			return set, i, false
		}
		set.add(c)
		low = c
	}
	return set.name(negate), i + 1, true
}

func (s *byteSet) union(t byteSet) {
	for i := range s {
		s[i] |= t[i]
	}
}

// namedClass reads NAME:] at the start of g and returns its length. The length
// is 0 where no :] closes it, and ok false where nothing closes it or no class
// has the name.
func namedClass(g string) (set byteSet, n int, ok bool) {
	end := strings.IndexByte(g, ']')
	if end < 0 {
		return set, 0, false
	}
	name, closed := strings.CutSuffix(g[:end], ":")
	if !closed {
		return set, 0, true
	}
	for _, c := range classes {
		if c.name == name {
			for s := c.spans; s != ""; s = s[2:] {
				set.span(s[0], s[1])
			}
			return set, end + 1, true
		}
	}
	return set, 0, false
}

// classes are the named classes as git has them: ASCII, and a form feed or a
// vertical tab is no space. Each pair of bytes is a span.
var classes = [...]struct{ name, spans string }{
	{"alnum", "09AZaz"},
	{"alpha", "AZaz"},
	{"blank", "\t\t  "},
	{"cntrl", "\x00\x1f\x7f\x7f"},
	{"digit", "09"},
	{"graph", "!~"},
	{"lower", "az"},
	{"print", " ~"},
	{"punct", "!/:@[`{~"},
	{"space", "\t\n\r\r  "},
	{"upper", "AZ"},
	{"xdigit", "09AFaf"},
}
