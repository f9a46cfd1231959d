package lfs

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// A pattern is that of a line of .gitattributes, as git 2.39 reads it. It is
// matched byte by byte.
type pattern struct {
	byName bool           // there is no / in it: it is matched against the last element of a path
	text   string         // without wildcards: a path, or with suffix the end of a name
	suffix bool           // the pattern is * and text
	expr   *regexp.Regexp // of a path in [latin1], nil for one without other wildcards
}

// parsePattern returns nil for a pattern that matches no file.
func parsePattern(text string) *pattern {
	p := &pattern{byName: !strings.Contains(text, "/"), text: strings.TrimPrefix(text, "/")}
	if p.text == "" || strings.HasSuffix(text, "/") {
		return nil
	}
	const wildcards = `*?[\`
	if !strings.ContainsAny(p.text, wildcards) {
		return p
	}
	if rest, star := strings.CutPrefix(p.text, "*"); p.byName && star && !strings.ContainsAny(rest, wildcards) {
		p.suffix, p.text = true, rest
		return p
	}
	expr, ok := translate(p.text, p.byName)
	if !ok {
		return nil
	}
	var err error
	if p.expr, err = regexp.Compile(`(?s)\A` + expr + `\z`); err != nil {
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
	switch {
	case p.expr != nil:
		return p.expr.MatchString(latin1(name))
	case p.suffix:
		return strings.HasSuffix(name, p.text)
	}
	return name == p.text
}

// latin1 returns a text that has a character for each byte of s.
func latin1(s string) string {
	runes := make([]rune, len(s))
	for i := range len(s) {
		runes[i] = rune(s[i])
	}
	return string(runes)
}

// translate returns a regular expression for a pattern with wildcards; ok is
// false when it matches nothing.
func translate(glob string, byName bool) (expr string, ok bool) {
	var b strings.Builder
	plain := true // so far
	for rest := glob; rest != ""; {
		c := rest[0]
		switch c {
		case '*':
			after := strings.TrimLeft(rest, "*")
			done := glob[:len(glob)-len(rest)]
			// Git sets the literal beginning of a pattern aside before it looks for **.
			deep := !byName && len(rest)-len(after) > 1 && (plain || strings.HasSuffix(done, "/"))
			switch below, dirs := strings.CutPrefix(after, "/"); {
			case deep && dirs:
				b.WriteString("(?:.*/)?")
				after = below
			case deep && (after == "" || strings.HasPrefix(after, `\/`)):
				b.WriteString(".*")
			default:
				b.WriteString("[^/]*")
			}
			plain, rest = false, after
			continue
		case '?':
			b.WriteString("[^/]")
		case '[':
			class, n, ok := bracket(rest[1:])
			if !ok {
				return "", false
			}
			b.WriteString(class)
			rest = rest[n:]
		case '\\':
			if rest = rest[1:]; rest == "" {
				return "", false
			}
			fallthrough
		default:
			b.WriteString(regexp.QuoteMeta(latin1(rest[:1])))
		}
		plain = plain && c != '?' && c != '[' && c != '\\'
		rest = rest[1:]
	}
	return b.String(), true
}

// bracket translates the bracket expression whose text starts at g, after the [,
// and returns how long that is with the ]. ok is false when it matches nothing.
func bracket(g string) (class string, n int, ok bool) {
	b := bracketReader{text: g}
	negate := b.at(0) == '!' || b.at(0) == '^'
	if negate {
		b.pos++
	}
	for first := true; first || b.at(0) != ']'; first = false { // a first ] is a member
		if !b.item() {
			return "", 0, false
		}
	}
	members := b.members.String()
	if negate {
		return "[^/" + members + "]", b.pos + 1, true
	}
	return "[" + members + "]", b.pos + 1, members != ""
}

// A bracketReader reads the items of a bracket expression.
type bracketReader struct {
	text    string
	pos     int
	members strings.Builder // of a class in a regular expression
	low     byte            // the byte that a range could start from, or 0
}

// at returns the byte n after the position, 0 beyond the end: no pattern holds a NUL.
func (b *bracketReader) at(n int) byte {
	if b.pos+n < len(b.text) {
		return b.text[b.pos+n]
	}
	return 0
}

// item reads a byte, a range's second half or a named class.
func (b *bracketReader) item() bool {
	if b.at(0) == '[' && b.at(1) == ':' {
		name, _, closed := strings.Cut(b.text[b.pos+2:], "]")
		if !closed {
			return false
		}
		if name, is := strings.CutSuffix(name, ":"); is {
			spans, known := classes[name]
			for s := spans; s != ""; s = s[2:] {
				b.span(s[0], s[1])
			}
			b.pos, b.low = b.pos+len("[::]")+len(name), 0
			return known
		}
	}
	if b.at(0) == '-' && b.low != 0 && b.at(1) != 0 && b.at(1) != ']' {
		b.pos++
		high := b.byte()
		b.span(b.low, high)
		b.low = 0
		return high != 0
	}
	b.low = b.byte()
	b.span(b.low, b.low)
	return b.low != 0
}

// byte reads a byte, which a backslash may quote, and returns 0 at the end.
func (b *bracketReader) byte() byte {
	if b.at(0) == '\\' {
		b.pos++
	}
	c := b.at(0)
	b.pos++
	return c
}

// span adds the bytes from low to high, both included, except for /, which no
// bracket expression matches.
func (b *bracketReader) span(low, high byte) {
	if low <= '/' && '/' <= high {
		b.span(low, '/'-1)
		low = '/' + 1
	}
	if low <= high {
		fmt.Fprintf(&b.members, `\x{%02x}-\x{%02x}`, low, high)
	}
}

// classes are the named classes as git has them: ASCII, and a form feed or a
// vertical tab is no space. Each pair of bytes is a span.
var classes = map[string]string{
	"alnum": "09AZaz", "alpha": "AZaz", "blank": "\t\t  ", "cntrl": "\x00\x1f\x7f\x7f",
	"digit": "09", "graph": "!~", "lower": "az", "print": " ~", "punct": "!/:@[`{~",
	"space": "\t\n\r\r  ", "upper": "AZ", "xdigit": "09AFaf",
}
