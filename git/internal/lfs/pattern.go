package lfs

import (
	"path"
	"strings"
)

// A pattern is that of a line of .gitattributes, as git 2.39 reads it, which is
// not what ignore rules of a source are read by.
type pattern struct {
	glob   string // without leading /
	byName bool   // no / in it: matched against the name at any depth
	plain  bool   // it is a path without wildcards
	tokens []token
}

// parsePattern parses the pattern of a line; nil matches no file.
func parsePattern(text string) *pattern {
	if text == "" || strings.HasSuffix(text, "/") {
		return nil
	}
	p := &pattern{byName: !strings.Contains(text, "/"), glob: strings.TrimPrefix(text, "/")}
	p.plain = !strings.ContainsAny(p.glob, `*?[\`)
	ok := false
	if p.tokens, ok = p.parse(); !ok {
		return nil
	}
	return p
}

// matches reports whether p matches a file, by its path below the directory of
// .gitattributes. The cost is the product of both lengths.
func (p *pattern) matches(name string) bool {
	if p.byName {
		name = path.Base(name)
	}
	if p.plain {
		return name == p.glob
	}
	now, next := make([]bool, len(p.tokens)+1), make([]bool, len(p.tokens)+1)
	p.enter(now, 0)
	for i := range len(name) {
		clear(next)
		some := false
		for at, reached := range now[:len(p.tokens)] {
			if reached && p.step(next, at, name[i]) {
				some = true
			}
		}
		if !some {
			return false
		}
		now, next = next, now
	}
	return now[len(p.tokens)]
}

// enter adds the token at to a set, and those after it while they may match nothing.
func (p *pattern) enter(set []bool, at int) {
	for ; !set[at]; at++ {
		set[at] = true
		if at == len(p.tokens) || p.tokens[at].kind < star {
			return
		}
	}
}

// step adds to a set where the byte c leads from the token at, if anywhere.
func (p *pattern) step(set []bool, at int, c byte) bool {
	switch t := &p.tokens[at]; t.kind {
	case literal:
		if t.byte != c {
			return false
		}
		p.enter(set, at+1)
	case oneOf:
		if !t.set.has(c) {
			return false
		}
		p.enter(set, at+1)
	case star:
		if c == '/' {
			return false
		}
		p.enter(set, at)
	case deep:
		p.enter(set, at)
	case dirs: // it stays until a slash, after which the next may begin
		set[at] = true
		if c == '/' {
			p.enter(set, at+1)
		}
	}
	return true
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

// parse returns the steps of p; ok is false where p matches nothing.
func (p *pattern) parse() (list []token, ok bool) {
	if p.glob == "" {
		return nil, false
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
