package lfs

import (
	"regexp"
	"strconv"
	"strings"
)

// maxAttributeLine is the length of the longest line that Git reads, in bytes.
const maxAttributeLine = 2048

// The values of attributes that are no text. No text has a NUL.
const (
	isTrue  = "\x00true"
	isFalse = "\x00false"
	isUnset = "\x00unset"
)

// An assignment gives an attribute a value.
type assignment struct{ name, value string }

// mentioned returns the position of the last assignment to an attribute, -1 without one.
func mentioned(set []assignment, name string) int {
	for i := len(set) - 1; i >= 0; i-- {
		if set[i].name == name {
			return i
		}
	}
	return -1
}

// An attributeLine is a line of .gitattributes. It has a pattern, or defines a macro, or neither when it says nothing.
type attributeLine struct {
	pattern *pattern
	macro   string
	set     []assignment
}

const blank = " \t\r\n"

// parseAttributes reads a line. One that is not well formed says nothing.
func parseAttributes(line string) attributeLine {
	line = strings.TrimLeft(line, blank)
	if line == "" || line[0] == '#' || len(line) > maxAttributeLine {
		return attributeLine{}
	}
	name, rest, ok := unquote(line)
	if !ok {
		name, rest = word(line)
	}
	var l attributeLine
	if macro, ok := strings.CutPrefix(name, "[attr]"); ok && macro != "" {
		l.macro, _ = word(strings.TrimLeft(macro, blank))
		if !validAttribute(l.macro) {
			return attributeLine{}
		}
	} else if l.pattern = parsePattern(cleaned(name)); l.pattern == nil {
		return attributeLine{}
	}
	if l.set, ok = assignments(rest); !ok {
		return attributeLine{}
	}
	return l
}

// word cuts s at its first blank.
func word(s string) (first, rest string) {
	if i := strings.IndexAny(s, blank); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}

// assignments reads what follows the pattern; ok is false when one is not valid.
func assignments(s string) (set []assignment, ok bool) {
	for f := range strings.FieldsFuncSeq(s, func(r rune) bool { return strings.ContainsRune(blank, r) }) {
		var a assignment
		switch name, value, has := strings.Cut(f, "="); {
		case f[0] == '-':
			a = assignment{strings.TrimPrefix(name, "-"), isFalse}
		case f[0] == '!':
			a = assignment{strings.TrimPrefix(name, "!"), isUnset}
		case has:
			a = assignment{name, value}
		default:
			a = assignment{name, isTrue}
		}
		if !validAttribute(a.name) {
			return nil, false
		}
		set = append(set, a)
	}
	return set, true
}

// validAttribute reports whether Git takes s for the name of an attribute.
func validAttribute(s string) bool {
	return s != "" && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune("-_.", r)
	})
}

// cleaned returns a pattern, or "" for one that matches nothing.
func cleaned(pattern string) string {
	if pattern == "" || pattern[0] == '!' || strings.ContainsAny(pattern, "\r\n\x00") {
		return "" // negated ones have no meaning for attributes
	}
	return pattern
}

// octal is a byte by its number.
var octal = regexp.MustCompile(`^\\[0-3][0-7]{2}`)

// escapes are the letters after a backslash in a quoted pattern.
var escapes = map[byte]byte{'a': '\a', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v', '\\': '\\', '"': '"'}

// unquote reads a pattern in double quotes, quoted as in C, at the start of s.
func unquote(s string) (text, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		return "", s, false
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return b.String(), s[i+1:], true
		case c != '\\':
			b.WriteByte(c)
		case octal.MatchString(s[i:]):
			n, _ := strconv.ParseUint(s[i+1:i+4], 8, 8)
			b.WriteByte(byte(n))
			i += 3
		case i+1 < len(s) && escapes[s[i+1]] != 0:
			b.WriteByte(escapes[s[i+1]])
			i++
		default:
			return "", s, false
		}
	}
	return "", s, false
}
