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
		return token{kind: oneOf, set: new(byteSet).matching(true)}, i + 1, true
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
